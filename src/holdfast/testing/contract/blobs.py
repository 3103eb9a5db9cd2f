"""Blobs are kept by content, whole, and checked when they are read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import sha256

import pytest

from holdfast.errors import LogDamaged
from holdfast.store import Store
from holdfast.testing.contract.samples import at_once


class Blobs:
    """What is too large for a line."""

    def spoil_blob(self, store: Store, digest: str) -> None:
        """Change the bytes of a blob where they are kept, behind the store's back."""
        pytest.skip("the test class gives no `spoil_blob`")

    @pytest.mark.parametrize(
        "data", [b"", b"\n", bytes(range(256)), b"x" * 100_000, b"y" * 3_000_000]
    )
    def test_blobs_are_kept_by_content(self, store: Store, other: Store, data: bytes) -> None:
        digest = store.put_blob(data)
        assert digest == sha256(data).hexdigest()
        assert store.put_blob(data) == other.put_blob(data) == digest
        assert store.get_blob(digest) == other.get_blob(digest) == data

    def test_blobs_are_apart(self, store: Store) -> None:
        many = [b"%d" % n for n in range(50)]
        digests = [store.put_blob(data) for data in many]
        assert [store.get_blob(digest) for digest in digests] == many

    def test_a_blob_is_there_when_the_store_is_opened_again(
        self, open_store: Callable[[], Store]
    ) -> None:
        with closing(open_store()) as store:
            digest = store.put_blob(b"kept")
        with closing(open_store()) as again:
            assert again.get_blob(digest) == b"kept"

    def test_threads_put_the_same_blob_at_once(self, store: Store, other: Store) -> None:
        data = b"z" * 200_000
        at_once([partial(asked.put_blob, data) for asked in (store, other) * 4])
        assert store.get_blob(sha256(data).hexdigest()) == data

    @pytest.mark.parametrize(
        "digest", ["0" * 64, "", "no digest", "'", "../../x", "0" * 63, "0" * 128, "\u00e9" * 64]
    )
    def test_a_blob_that_is_not_there_is_damage(self, store: Store, digest: str) -> None:
        store.put_blob(b"another")
        with pytest.raises(LogDamaged):
            store.get_blob(digest)

    def test_a_blob_that_was_changed_is_damage(self, store: Store, other: Store) -> None:
        digest = store.put_blob(b"right")
        whole = store.put_blob(b"left alone")
        self.spoil_blob(store, digest)
        for reader in (store, other):
            with pytest.raises(LogDamaged):
                reader.get_blob(digest)
            assert reader.get_blob(whole) == b"left alone"

    @pytest.mark.parametrize("data", [b"", b"right", b"x" * 3_000_000])
    def test_a_put_believes_no_blob_because_of_its_name(
        self, store: Store, other: Store, data: bytes
    ) -> None:
        digest = store.put_blob(data)
        whole = store.put_blob(b"left alone")
        self.spoil_blob(store, digest)
        for putter in (other, store):
            assert putter.put_blob(data) == digest
            for reader in (store, other):
                assert reader.get_blob(digest) == data
                assert reader.get_blob(whole) == b"left alone"

    def test_a_blob_may_have_another_name_if_who_gave_it_checks(self, store: Store) -> None:
        name = "ab" * 32
        assert store.put_blob(b"y" * 1000, name) == name
        assert store.get_blob(name, checked=False) == b"y" * 1000
        with pytest.raises(LogDamaged):
            store.get_blob(name)
