"""One holder at a time, known by name, for as long as it says that it is alive."""

from __future__ import annotations

import time
from functools import partial

import pytest

from holdfast.errors import LeaseLost, TaskBusy
from holdfast.store import Lease, Store
from holdfast.testing.contract.samples import (
    LONG_S,
    SHORT_S,
    STREAM,
    at_once,
    begun,
    hung,
    lines_of,
    run_out,
)


class Leases:
    """Who may append."""

    def test_a_second_writer_is_told_who_has_it(self, store: Store, other: Store) -> None:
        lease = store.acquire(STREAM, "the first writer", LONG_S)
        for asked in (store, other):
            with pytest.raises(TaskBusy, match="the first writer"):
                asked.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        store.sync(lease)
        store.renew(lease)
        assert list(store.read(STREAM)) == [b"one"]

    def test_streams_are_held_one_by_one(self, store: Store, other: Store) -> None:
        names = ("tasks/t", "tasks/t-1", "tasks/t-10", "tasks/T-1", "sessions/t-1")
        leases = [begun((store, other)[n % 2], name) for n, name in enumerate(names)]
        for n, lease in enumerate(leases):
            (store, other)[n % 2].renew(lease)

    def test_a_released_stream_can_be_taken_and_epochs_only_grow(
        self, store: Store, other: Store
    ) -> None:
        epochs = []
        for n, taker in enumerate((store, other, other, store)):
            lease = taker.acquire(STREAM, f"writer {n}", LONG_S)
            taker.append(lease, n, [b"%d" % n])
            epochs.append(lease.epoch)
            taker.release(lease)
            taker.release(lease)
        assert epochs == sorted(set(epochs))
        assert list(store.read(STREAM)) == [b"0", b"1", b"2", b"3"]

    def test_a_lease_that_was_given_back_is_of_no_use(self, store: Store) -> None:
        lease = begun(store)
        store.release(lease)
        with pytest.raises(LeaseLost):
            store.renew(lease)
        with pytest.raises(LeaseLost):
            store.append(lease, 1, [b"late"])
            store.sync(lease)
        with pytest.raises(LeaseLost):
            store.delete(lease)
        assert list(store.read(STREAM)) == lines_of(STREAM, 1)

    def test_a_lease_that_is_given_back_late_takes_nobody_elses_away(
        self, store: Store, other: Store
    ) -> None:
        first = begun(store)
        store.release(first)
        second = other.acquire(STREAM, "the second", LONG_S)
        store.release(first)
        assert other.holder(STREAM) == "the second"
        with pytest.raises(TaskBusy, match="the second"):
            store.acquire(STREAM, "me", LONG_S)
        other.append(second, 1, [b"two"])
        other.sync(second)

    def test_who_holds_a_stream_is_known_to_everybody(self, store: Store, other: Store) -> None:
        assert store.holder(STREAM) is None
        lease = begun(store)
        assert (store.holder(STREAM), other.holder(STREAM)) == ("me", "me")
        assert store.holder("tasks/t") is None
        store.release(lease)
        assert (store.holder(STREAM), other.holder(STREAM)) == (None, None)

    def test_a_renewed_lease_is_not_taken_over(self, store: Store, other: Store) -> None:
        lease = store.acquire(STREAM, "alive", 0.3)
        for _ in range(4):
            time.sleep(0.1)
            store.renew(lease)
        for asked in (store, other):
            assert asked.holder(STREAM) == "alive"
            with pytest.raises(TaskBusy):
                asked.acquire(STREAM, "taker", LONG_S)

    def test_a_lease_that_ran_out_is_good_until_another_is_taken(
        self, store: Store, other: Store
    ) -> None:
        lease = hung(store)
        store.append(lease, 1, lines_of(STREAM, 2)[1:])
        store.sync(lease)
        store.renew(lease)
        assert list(other.read(STREAM)) == lines_of(STREAM, 2)

    def test_of_a_late_renewal_and_a_takeover_one_wins(self, store: Store, other: Store) -> None:
        """Whoever is told that its lease holds runs the next step."""
        names, lease_s = [f"tasks/late-{n}" for n in range(10)], 1.0
        leases = [store.acquire(name, "late", lease_s) for name in names]
        time.sleep(lease_s + 5 * SHORT_S)
        for name, lease in zip(names, leases, strict=True):
            refused: list[str] = []

            def renew(lease: Lease = lease, refused: list[str] = refused) -> None:
                try:
                    store.renew(lease)
                except LeaseLost:
                    refused.append("the renewal")

            def take(name: str = name, refused: list[str] = refused) -> None:
                try:
                    other.acquire(name, "taker", LONG_S)
                except TaskBusy:
                    refused.append("the takeover")

            began = time.monotonic()
            at_once([renew, take])
            if time.monotonic() - began < lease_s:  # else it may have run out again
                assert len(refused) == 1, f"refused: {refused}"

    def test_of_many_who_want_a_stream_one_gets_it(self, store: Store, other: Store) -> None:
        for turn in range(4):
            got: list[tuple[Store, Lease]] = []

            def want(asked: Store, got: list[tuple[Store, Lease]] = got) -> None:
                try:
                    got.append((asked, asked.acquire(STREAM, "one of many", SHORT_S)))
                    time.sleep(SHORT_S / 5)
                except TaskBusy:
                    pass

            stores = (store, other) * 3
            holder = store.acquire(STREAM, "before", SHORT_S if turn % 2 else LONG_S)
            run_out()  # or not: a long one is given back
            if not turn % 2:
                store.release(holder)
            at_once([partial(want, asked) for asked in stores])
            epochs = [lease.epoch for _, lease in got]
            assert len(epochs) == len(set(epochs)) >= 1
            for asked, lease in got:
                asked.release(lease)
