"""One holder at a time, known by name, for as long as it says that it is alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

import pytest

from holdfast.errors import Conflict, LeaseLost, TaskBusy
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    holder_of,
    inbox_of,
    post_to,
    streams_in,
    sync_one,
    unpost,
)
from holdfast.stores.port import Facts, Lease, Post, Store
from holdfast.testing.contract import (
    AT,
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
    """The lease: its holder may append."""

    def test_a_second_writer_is_told_who_has_it(self, store: Store, other: Store) -> None:
        lease = acquire_one(store, STREAM, "the first writer", LONG_S)
        for asked in (store, other):
            with pytest.raises(TaskBusy, match="the first writer"):
                acquire_one(asked, STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)
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
            lease = acquire_one(taker, STREAM, f"writer {n}", LONG_S)
            taker.append(lease, n, [b"%d" % n])
            epochs.append(lease.epoch)
            taker.release([lease])
            taker.release([lease])
        assert epochs == sorted(set(epochs))
        assert list(store.read(STREAM)) == [b"0", b"1", b"2", b"3"]

    def test_a_lease_that_was_given_back_is_of_no_use(self, store: Store) -> None:
        lease = begun(store)
        store.release([lease])
        with pytest.raises(LeaseLost):
            store.renew(lease)
        with pytest.raises(LeaseLost):
            store.append(lease, 1, [b"late"])
            sync_one(store, lease)
        with pytest.raises(LeaseLost):
            store.delete(lease)
        assert list(store.read(STREAM)) == lines_of(STREAM, 1)

    def test_a_lease_that_is_given_back_late_takes_nobody_elses_away(
        self, store: Store, other: Store
    ) -> None:
        first = begun(store)
        store.release([first])
        second = acquire_one(other, STREAM, "the second", LONG_S)
        store.release([first])
        assert holder_of(other, STREAM) == "the second"
        with pytest.raises(TaskBusy, match="the second"):
            acquire_one(store, STREAM, "me", LONG_S)
        other.append(second, 1, [b"two"])
        sync_one(other, second)

    def test_who_holds_a_stream_is_known_to_everybody(self, store: Store, other: Store) -> None:
        assert store.holder(STREAM) is None
        lease = begun(store)
        assert (holder_of(store, STREAM), holder_of(other, STREAM)) == ("me", "me")
        assert store.holder("tasks/t") is None
        store.release([lease])
        assert (store.holder(STREAM), other.holder(STREAM)) == (None, None)

    def test_a_renewed_lease_is_not_taken_over(self, store: Store, other: Store) -> None:
        lease = acquire_one(store, STREAM, "alive", 0.3)
        for _ in range(4):
            time.sleep(0.1)
            store.renew(lease)
        for asked in (store, other):
            held = asked.holder(STREAM)
            assert held is not None and held.name == "alive"
            if held.until is not None:  # of the lease as it was renewed, where the store knows
                assert -0.2 < (held.until - datetime.now(UTC)).total_seconds() < 0.4
            with pytest.raises(TaskBusy):
                acquire_one(asked, STREAM, "taker", LONG_S)

    def test_a_lease_that_ran_out_is_good_until_another_is_taken(
        self, store: Store, other: Store
    ) -> None:
        lease = hung(store)
        store.append(lease, 1, lines_of(STREAM, 2)[1:])
        sync_one(store, lease)
        store.renew(lease)
        assert list(other.read(STREAM)) == lines_of(STREAM, 2)

    def test_of_a_late_renewal_and_a_takeover_one_wins(self, store: Store, other: Store) -> None:
        """A driver that is told that its lease holds runs the next step."""
        names, lease_s = [f"tasks/late-{n}" for n in range(10)], 1.0
        leases = [acquire_one(store, name, "late", lease_s) for name in names]
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
                    acquire_one(other, name, "taker", LONG_S)
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
                    got.append((asked, acquire_one(asked, STREAM, "one of many", SHORT_S)))
                    time.sleep(SHORT_S / 5)
                except TaskBusy:
                    pass

            stores = (store, other) * 3
            holder = acquire_one(store, STREAM, "before", SHORT_S if turn % 2 else LONG_S)
            run_out()  # or not: a long one is given back
            if not turn % 2:
                store.release([holder])
            at_once([partial(want, asked) for asked in stores])
            epochs = [lease.epoch for _, lease in got]
            assert len(epochs) == len(set(epochs)) >= 1
            for asked, lease in got:
                asked.release([lease])


# A message is there once, for everybody, until it is taken.


def messages(store: Store, *streams: str) -> list[tuple[str, str, bytes]]:
    """The messages in inboxes."""
    return [(post.stream, post.name, post.data) for post in inbox_of(store, streams)]


class Inboxes:
    """Rule 7: an inbox is for senders that hold no lease."""

    def test_a_message_is_there_once_until_it_is_taken(self, store: Store, other: Store) -> None:
        begun(store)
        assert list(inbox_of(store, [STREAM])) == []
        assert post_to(other, STREAM, "answer-1", b'{"first":1}') is True
        for again in (store, other):
            assert post_to(again, STREAM, "answer-1", b'{"second":2}') is False
            assert list(inbox_of(again, [STREAM])) == [Post(STREAM, "answer-1", b'{"first":1}')]
        unpost(store, STREAM, "answer-1")
        unpost(store, STREAM, "answer-1")
        unpost(store, "tasks/nobody", "answer-1")
        assert list(inbox_of(store, [STREAM])) == list(inbox_of(other, [STREAM])) == []
        assert post_to(store, STREAM, "answer-1", b"3")
        assert messages(other, STREAM) == [(STREAM, "answer-1", b"3")]

    def test_a_message_outlives_who_left_it(self, open_store: Callable[[], Store]) -> None:
        with closing(open_store()) as store:
            begun(store)
            post_to(store, STREAM, "first", b"1")
            post_to(store, STREAM, "second", b"2")
            unpost(store, STREAM, "first")
        with closing(open_store()) as again:
            assert messages(again, STREAM) == [(STREAM, "second", b"2")]
            assert not post_to(again, STREAM, "second", b"3")

    def test_messages_come_in_the_order_they_were_left(self, store: Store, other: Store) -> None:
        begun(store)
        names = ["pause-b", "continue-c", "cancel-a", "zz", "aa"]
        for n, name in enumerate(names):
            assert post_to((store, other)[n % 2], STREAM, name, b"{}")
            time.sleep(0.02)
        for reader in (store, other):
            assert [post.name for post in inbox_of(reader, [STREAM])] == names
        unpost(store, STREAM, "cancel-a")
        names.remove("cancel-a")
        assert [post.name for post in inbox_of(other, [STREAM])] == names

    @pytest.mark.parametrize(
        "name",
        ["a", "../a", "a/b", ".", "..", "\u00e9 ~1!", "answer-fetch~2.1!0", "'; --", "x" * 255],
    )
    def test_a_message_may_have_any_name(self, store: Store, name: str) -> None:
        begun(store)
        assert post_to(store, STREAM, name, b"\x00\n\xff")
        assert not post_to(store, STREAM, name, b"")
        (post,) = inbox_of(store, [STREAM])
        assert (post.name, post.data) == (name, b"\x00\n\xff")
        unpost(store, STREAM, name)
        assert list(inbox_of(store, [STREAM])) == []

    @pytest.mark.parametrize("data", [b"", b"\n\n", bytes(range(256)), b"x" * 1_000_000])
    def test_a_message_may_be_any_bytes(self, store: Store, other: Store, data: bytes) -> None:
        begun(store)
        post_to(store, STREAM, "m", data)
        assert messages(other, STREAM) == [(STREAM, "m", data)]

    def test_inboxes_are_apart_and_only_those_asked_for_are_read(self, store: Store) -> None:
        streams = [f"tasks/box-{n}" for n in range(3)] + ["tasks/box-1/x", "tasks/BOX-1"]
        for stream in streams:
            begun(store, stream)
            assert post_to(store, stream, "same", stream.encode())
        found = {post.stream: post.data for post in inbox_of(store, streams[:2])}
        assert found == {stream: stream.encode() for stream in streams[:2]}
        assert list(inbox_of(store, [])) == []
        unpost(store, streams[1], "same")
        left = {post.stream for post in inbox_of(store, streams)}
        assert left == {stream for stream in streams if stream != streams[1]}

    def test_of_many_who_leave_the_same_message_one_succeeds(
        self, store: Store, other: Store
    ) -> None:
        begun(store)
        left: list[bool] = []

        def leave(n: int) -> None:
            left.append(post_to((store, other)[n % 2], STREAM, "m", b"%d" % n))

        at_once([partial(leave, n) for n in range(8)])
        assert sorted(left) == [False] * 7 + [True]
        assert len(inbox_of(store, [STREAM])) == 1

    def test_a_message_is_no_line_and_no_fact(self, store: Store) -> None:
        begun(store)
        before = (list(store.read(STREAM)), list(streams_in(store, "tasks/")))
        post_to(store, STREAM, "m", b"{}")
        assert (list(store.read(STREAM)), list(streams_in(store, "tasks/"))) == before


# A holder that was silent for too long, and what it may still do: nothing that counts.
#
# Whether it went silent in this process or in another must make no difference, so each test is run
# with a taker that is the same store object and with one that is another.


REFUSED = (Conflict, LeaseLost)
"""The errors for a stale writer that was refused already and tries again: its own count of the
lines may have gone on."""


class Takeovers:
    """Rule 3: a stale writer is never acknowledged."""

    @pytest.fixture(params=["by the same store object", "by another store object"])
    def taker(self, request: pytest.FixtureRequest, store: Store, other: Store) -> Store:
        """The store that takes over from `store`."""
        return store if "same" in request.param else other

    @pytest.mark.parametrize("written", [0, 1, 2])
    def test_a_stale_writer_is_refused_and_changes_nothing(
        self, store: Store, taker: Store, written: int
    ) -> None:
        stale = hung(store)
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        assert fresh.epoch > stale.epoch
        lines = lines_of(STREAM, 1 + written)
        if written:  # else only its lease tells the stale one from the other
            taker.append(fresh, 1, lines[1:])
            sync_one(taker, fresh)
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"] * max(written, 1))
            sync_one(store, stale)
        with pytest.raises(REFUSED):
            store.append(stale, 1, [b"zombie"])
            sync_one(store, stale)
        assert list(taker.read(STREAM)) == lines
        with pytest.raises(LeaseLost):
            store.renew(stale)
        taker.append(fresh, 1 + written, [b"next"])
        sync_one(taker, fresh)
        assert list(taker.read(STREAM)) == list(store.read(STREAM)) == [*lines, b"next"]

    def test_a_sync_after_the_takeover_acknowledges_only_what_the_taker_reads(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        lines = lines_of(STREAM, 4)
        store.append(stale, 1, lines[1:3])
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        found = list(taker.read(STREAM))
        assert found in (lines[:1], lines[:2], lines[:3])
        try:
            sync_one(store, stale)
        except LeaseLost:
            pass
        else:
            assert found == lines[:3]
        assert list(taker.read(STREAM)) == found
        taker.append(fresh, len(found), [b"next"])
        sync_one(taker, fresh)
        assert list(taker.read(STREAM)) == [*found, b"next"]

    def test_what_was_synced_before_the_takeover_is_read_by_the_taker(
        self, store: Store, taker: Store
    ) -> None:
        hung(store, count=5)
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 5)
        taker.append(fresh, 5, lines_of(STREAM, 6)[5:])
        sync_one(taker, fresh)
        assert list(store.read(STREAM)) == lines_of(STREAM, 6)

    def test_a_writer_frozen_before_its_first_append_changes_nothing(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store, count=0)
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.append(stale, 0, lines_of(STREAM, 3))
            sync_one(store, stale)
        assert list(taker.read(STREAM)) == []
        taker.append(fresh, 0, lines_of(STREAM, 1))
        sync_one(taker, fresh)
        with pytest.raises(REFUSED):
            store.append(stale, 0, [b"zombie"])
            sync_one(store, stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)

    def test_who_took_over_is_known_and_not_taken_over_in_turn(
        self, store: Store, taker: Store
    ) -> None:
        first = hung(store)
        second = acquire_one(taker, STREAM, "taker", LONG_S)
        for asked in (store, taker):
            with pytest.raises(TaskBusy, match="taker"):
                acquire_one(asked, STREAM, "third", LONG_S)
            assert holder_of(asked, STREAM) == "taker"
        taker.release([second])
        assert taker.holder(STREAM) is None
        assert acquire_one(store, STREAM, "third", LONG_S).epoch > second.epoch > first.epoch

    def test_a_stale_holder_that_lets_go_takes_nothing_from_the_taker(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        store.release([stale])
        assert holder_of(taker, STREAM) == "taker"
        with pytest.raises(TaskBusy, match="taker"):
            acquire_one(store, STREAM, "third", LONG_S)
        taker.renew(fresh)
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:])
        sync_one(taker, fresh)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 2)

    def test_a_stale_holder_can_not_renew_its_lease(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        second = acquire_one(taker, STREAM, "second", SHORT_S)
        run_out()
        with pytest.raises(LeaseLost):
            store.renew(stale)
        assert acquire_one(taker, STREAM, "third", LONG_S).epoch > second.epoch

    def test_a_stale_holder_can_delete_nothing(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        post_to(store, STREAM, "m", b"{}")
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.delete(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert [post.name for post in inbox_of(taker, [STREAM])] == ["m"]
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:])
        sync_one(taker, fresh)

    def test_a_stale_writer_stays_refused_when_the_taker_has_let_go(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        taker.release([acquire_one(taker, STREAM, "taker", LONG_S)])
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"])
            sync_one(store, stale)
        with pytest.raises(LeaseLost):
            store.renew(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert taker.holder(STREAM) is None

    def test_a_lease_of_a_deleted_stream_fits_no_new_one(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        taker.delete(acquire_one(taker, STREAM, "who deletes", LONG_S))
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"])
            sync_one(store, stale)
        assert list(taker.read(STREAM)) == []
        begun(taker)
        with pytest.raises(REFUSED):
            store.append(stale, 1, [b"zombie"])
            sync_one(store, stale)
        with pytest.raises(LeaseLost):
            store.renew(stale)
        with pytest.raises(LeaseLost):
            store.delete(stale)
        store.release([stale])
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert holder_of(taker, STREAM) == "me"

    def test_a_stale_writer_changes_no_facts(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        fresh = acquire_one(taker, STREAM, "taker", LONG_S)
        right, wrong = Facts("job", "in_progress", wake_at=AT), Facts("job", "completed")
        with pytest.raises(LeaseLost):
            store.append(stale, 1, lines_of(STREAM, 2)[1:], wrong)
            sync_one(store, stale)
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:], right)
        sync_one(taker, fresh)
        assert dict(facts_of_all(taker, "tasks/")) in ({STREAM: right}, {STREAM: None})
        taker.append(fresh, 2, lines_of(STREAM, 3)[2:])
        with pytest.raises(LeaseLost):  # a line like the taker's, so that the logs are as long
            store.append(stale, 2, lines_of(STREAM, 3)[2:], wrong)
            sync_one(store, stale)
        sync_one(taker, fresh)
        assert dict(facts_of_all(taker, "tasks/")) in ({STREAM: right}, {STREAM: None})
        assert STREAM in dict(due_in(taker, "tasks/", AT))
