"""A message is there once, for everybody, until it is taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from holdfast.store import Post, Store
from holdfast.testing.contract.samples import STREAM, at_once, begun


def messages(store: Store, *streams: str) -> list[tuple[str, str, bytes]]:
    """What is in inboxes."""
    return [(post.stream, post.name, post.data) for post in store.inbox(streams)]


class Inboxes:
    """Rule 7: an inbox is for who holds no lease."""

    def test_a_message_is_there_once_until_it_is_taken(self, store: Store, other: Store) -> None:
        begun(store)
        assert list(store.inbox([STREAM])) == []
        assert other.post(STREAM, "answer-1", b'{"first":1}') is True
        for again in (store, other):
            assert again.post(STREAM, "answer-1", b'{"second":2}') is False
            assert list(again.inbox([STREAM])) == [Post(STREAM, "answer-1", b'{"first":1}')]
        store.unpost(STREAM, "answer-1")
        store.unpost(STREAM, "answer-1")
        store.unpost("tasks/nobody", "answer-1")
        assert list(store.inbox([STREAM])) == list(other.inbox([STREAM])) == []
        assert store.post(STREAM, "answer-1", b"3")
        assert messages(other, STREAM) == [(STREAM, "answer-1", b"3")]

    def test_a_message_outlives_who_left_it(self, open_store: Callable[[], Store]) -> None:
        with closing(open_store()) as store:
            begun(store)
            store.post(STREAM, "first", b"1")
            store.post(STREAM, "second", b"2")
            store.unpost(STREAM, "first")
        with closing(open_store()) as again:
            assert messages(again, STREAM) == [(STREAM, "second", b"2")]
            assert not again.post(STREAM, "second", b"3")

    def test_messages_come_in_the_order_they_were_left(self, store: Store, other: Store) -> None:
        begun(store)
        names = ["pause-b", "continue-c", "cancel-a", "zz", "aa"]
        for n, name in enumerate(names):
            assert (store, other)[n % 2].post(STREAM, name, b"{}")
            time.sleep(0.02)
        for reader in (store, other):
            assert [post.name for post in reader.inbox([STREAM])] == names
        store.unpost(STREAM, "cancel-a")
        names.remove("cancel-a")
        assert [post.name for post in other.inbox([STREAM])] == names

    @pytest.mark.parametrize(
        "name",
        ["a", "../a", "a/b", ".", "..", "\u00e9 ~1!", "answer-fetch~2.1!0", "'; --", "x" * 255],
    )
    def test_a_message_may_have_any_name(self, store: Store, name: str) -> None:
        begun(store)
        assert store.post(STREAM, name, b"\x00\n\xff")
        assert not store.post(STREAM, name, b"")
        (post,) = store.inbox([STREAM])
        assert (post.name, post.data) == (name, b"\x00\n\xff")
        store.unpost(STREAM, name)
        assert list(store.inbox([STREAM])) == []

    @pytest.mark.parametrize("data", [b"", b"\n\n", bytes(range(256)), b"x" * 1_000_000])
    def test_a_message_may_be_any_bytes(self, store: Store, other: Store, data: bytes) -> None:
        begun(store)
        store.post(STREAM, "m", data)
        assert messages(other, STREAM) == [(STREAM, "m", data)]

    def test_inboxes_are_apart_and_only_those_asked_for_are_read(self, store: Store) -> None:
        streams = [f"tasks/box-{n}" for n in range(3)] + ["tasks/box-1/x", "tasks/BOX-1"]
        for stream in streams:
            begun(store, stream)
            assert store.post(stream, "same", stream.encode())
        found = {post.stream: post.data for post in store.inbox(streams[:2])}
        assert found == {stream: stream.encode() for stream in streams[:2]}
        assert list(store.inbox([])) == []
        store.unpost(streams[1], "same")
        left = {post.stream for post in store.inbox(streams)}
        assert left == {stream for stream in streams if stream != streams[1]}

    def test_of_many_who_leave_the_same_message_one_succeeds(
        self, store: Store, other: Store
    ) -> None:
        begun(store)
        left: list[bool] = []

        def leave(n: int) -> None:
            left.append((store, other)[n % 2].post(STREAM, "m", b"%d" % n))

        at_once([partial(leave, n) for n in range(8)])
        assert sorted(left) == [False] * 7 + [True]
        assert len(store.inbox([STREAM])) == 1

    def test_a_message_is_no_line_and_no_fact(self, store: Store) -> None:
        begun(store)
        before = (list(store.read(STREAM)), list(store.streams("tasks/")))
        store.post(STREAM, "m", b"{}")
        assert (list(store.read(STREAM)), list(store.streams("tasks/"))) == before
