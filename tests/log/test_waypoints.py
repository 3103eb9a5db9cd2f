"""Any state of a log is had by waypoints, and is what folding the log comes to."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import BadInput, Holdfast, LogDamaged, StorageFailed, step, task
from holdfast.core.fold import advance, apply, fold
from holdfast.core.state import Later, State
from holdfast.log.reading import read_events, read_sums
from holdfast.log.states import find_call, reach, state_upto, whole
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.log.trail import Trail, Waypoints, WaypointWriter
from holdfast.log.waypoints import PLAIN, RECORDS, way_to
from holdfast.stores.memory import MemoryStore
from tests.random_logs import STREAM, Story

LENGTH = 300
GOLDEN = sorted(
    folder
    for folder in (Path(__file__).parents[1] / "golden").glob("format-*")
    if (folder / "events.jsonl").exists()
    and "-sessions" not in folder.name
    and "-forks" not in folder.name
)


def stored(lines, stream=STREAM):
    store = MemoryStore()
    lease = acquire_one(store, stream, "me", 60)
    store.append(lease, 0, lines)
    sync_one(store, lease)
    return store


def must_be_the_fold(state, events):
    # The events that it was made of are in the log, not in a waypoint.
    expected, state = fold(events), replace(state, trail=[])
    expected.trail.clear()
    assert state == expected
    # A dict is equal to one in another order, and the order is part of a state.
    for name in (*RECORDS, "last", "marks", "files", "reads", "writers", "progress"):
        assert list(getattr(state, name)) == list(getattr(expected, name)), name
    plain = msgspec.json.encode(whole(state), order="deterministic")
    assert plain == msgspec.json.encode(expected, order="deterministic")


@pytest.mark.parametrize("seed", range(20))
def test_any_state_is_what_folding_the_log_comes_to(seed):
    story = Story(seed)
    events = story.go_on(LENGTH)
    store, every = stored(story.lines()), 2 + seed % 4
    seqs = Random(seed).sample(range(1, LENGTH + 1), 60)
    for seq in seqs:
        state = state_upto(store, STREAM, seq, every)
        must_be_the_fold(state, events[:seq])
    assert len(Waypoints(store).seqs(STREAM)) == max(seqs) // every


@pytest.mark.parametrize("seed", range(10))
def test_a_state_that_was_read_back_goes_on_like_any_other(seed):
    story = Story(seed + 100)
    events = story.go_on(LENGTH)
    store = stored(story.lines())
    state_upto(store, STREAM, LENGTH, 4)
    for seq in Random(seed).sample(range(1, LENGTH), 15):
        state = state_upto(store, STREAM, seq, 4)
        before = state.seq
        must_be_the_fold(fold(events[seq:], state), events)
        must_be_the_fold(apply(state, events[seq]), events[: seq + 1])
        assert state.seq == before
        must_be_the_fold(state, events[:seq])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_lost_or_damaged_of_the_waypoints_the_state_is_right(seed):
    story, random = Story(seed + 200), Random(seed)
    events = story.go_on(LENGTH)
    store = stored(story.lines())
    state_upto(store, STREAM, LENGTH, 3)
    parts = store._derived
    for _ in range(25):
        for key in random.sample(sorted(parts), 3):
            data = bytearray(parts[key])
            if data and random.random() < 0.5:
                data[random.randrange(len(data))] ^= 1
                parts[key] = bytes(data)
            elif data and random.random() < 0.5:
                parts[key] = bytes(data[: random.randrange(len(data))])
            else:
                del parts[key]
        seq = random.randrange(1, LENGTH + 1)
        must_be_the_fold(state_upto(store, STREAM, seq, 3), events[:seq])


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_every_old_log_has_its_states_by_waypoints(folder, tmp_path):
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    stream = f"tasks/{msgspec.json.decode(lines[0])['id']}"
    store = stored(lines, stream)
    events = list(read_events(store, stream))
    for _ in range(2):
        for seq in range(1, len(events) + 1):
            must_be_the_fold(state_upto(store, stream, seq, 2), events[:seq])


def test_waypoints_of_another_log_of_that_name_are_not_used():
    one, other = Story(1), Story(2)
    one.go_on(64), other.go_on(64)
    store, elsewhere = stored(one.lines()), stored(other.lines())
    state_upto(elsewhere, STREAM, 64, 4)
    store._derived.update(elsewhere._derived)
    must_be_the_fold(state_upto(store, STREAM, 63, 4), one.events[:63])


def test_waypoints_of_lines_that_a_crash_took_are_not_used_and_made_anew():
    story = Story(3)
    story.go_on(40)
    lost = stored(story.lines())
    state_upto(lost, STREAM, 40, 4)
    again = Story(3)
    again.random.seed(9)
    again.events, again.state = story.events[:21], fold(story.events[:21])
    again.go_on(40)
    store = stored(again.lines())
    store._derived.update(lost._derived)
    must_be_the_fold(state_upto(store, STREAM, 40, 4), again.events)
    kept = store._derived
    assert kept[STREAM, "20.head"] == lost._derived[STREAM, "20.head"]
    assert kept[STREAM, "24.head"] != lost._derived[STREAM, "24.head"]


def test_few_waypoints_are_read_for_a_state_and_few_calls_are_made():
    story = Story(4)
    story.go_on(LENGTH)
    store = stored(story.lines())
    state_upto(store, STREAM, LENGTH, 1)
    state = state_upto(store, STREAM, LENGTH, 1)
    assert isinstance(state.calls, Later)
    made = [call for call in dict.values(state.calls) if type(call) is not int]
    assert made == []
    assert len(state.calls) > 50
    assert state.calls.get("nobody") is None
    assert way_to(LENGTH) == [256, 272, 288, *range(289, 301)]


def test_what_is_stored_grows_with_the_log_and_not_with_its_square():
    shares = []
    for length in (500, 1000, 4000):
        story = Story(5)
        story.go_on(length)
        store = stored(story.lines())
        state_upto(store, STREAM, length, 16)
        kept = sum(map(len, store._derived.values()))
        shares.append(kept / sum(map(len, story.lines())))
    assert max(shares) < 1.5 * shares[0]


def test_a_line_that_was_damaged_since_is_noticed():
    story = Story(6)
    story.go_on(60)
    lines = story.lines()
    store = stored(lines)
    state_upto(store, STREAM, 60, 4)
    store._streams[STREAM][57] = lines[57].replace(b"2026", b"2025", 1)
    with pytest.raises(LogDamaged, match="event 58 is damaged"):
        state_upto(store, STREAM, 59, 4)
    state_upto(store, STREAM, 56, 4)


def test_an_event_that_is_not_there_is_said_to_be_none():
    story = Story(7)
    story.go_on(30)
    store = stored(story.lines())
    for _ in range(2):
        with pytest.raises(BadInput, match="has 30 events: there is no event 31"):
            state_upto(store, STREAM, 31, 4)
    state = state_upto(store, STREAM, 0, 4)
    assert state == State()


# The writer


@step
def next_one(text: str) -> str:
    return text[-300:] + "y"


@task
def goes_far(count: int) -> int:
    text = "x"
    for _ in range(count):
        text = next_one(text)
    return count


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(WaypointWriter.__init__, "__defaults__", (8,))


def test_the_writer_leaves_waypoints_that_are_those_of_a_reader(often):
    with Holdfast("memory://") as hf:
        hf.run(goes_far, 60, id="far")
        left = dict(hf.store._derived)
        events = list(read_events(hf.store, "tasks/far"))
        hf.store.drop_side("tasks/far", "derived")
        must_be_the_fold(state_upto(hf.store, "tasks/far", len(events), 8), events)
        assert hf.store._derived == left
        seqs = {int(name.partition(".")[0]) for _, name in left}
        assert seqs == {8 * n for n in range(1, len(events) // 8 + 1)}


def writing_on(story, begun, left):
    """A store with the first lines of a story and some waypoints, and what writes the rest."""
    store = stored(story.lines()[:begun])
    if left:
        state_upto(store, STREAM, left, 8)
    leaving = WaypointWriter(store, STREAM, 8)
    leaving.go_on(begun, lambda seq: reach(store, STREAM, seq, 8))
    sums = [total for _, total in read_sums(stored(story.lines()), STREAM)]
    state = fold(story.events[:begun])
    for event, total in zip(story.events[begun:], sums[begun:], strict=True):
        advance(state, event)
        leaving.events.append(event)
        if event.seq % 8 == 0:
            leaving.catch_up(state, total)
    store._streams[STREAM].extend(story.lines()[begun:])
    leaving.put()
    return store


@pytest.mark.parametrize("left", [50, 40, 32])
def test_a_writer_that_goes_on_goes_on_with_them(left):
    story = Story(8)
    story.go_on(100)
    store = writing_on(story, 50, left)
    made = dict(store._derived)
    assert max(int(name.partition(".")[0]) for _, name in made) == 96
    store.drop_side(STREAM, "derived")
    state_upto(store, STREAM, 100, 8)
    assert store._derived.keys() == made.keys()
    for seq in range(90, 100):
        store._derived.clear()
        store._derived.update(made)
        must_be_the_fold(state_upto(store, STREAM, seq, 8), story.events[:seq])


def test_a_writer_that_finds_none_near_leaves_none():
    story = Story(9)
    story.go_on(100)
    assert Waypoints(writing_on(story, 50, 0)).seqs(STREAM) == []


@pytest.mark.parametrize(("spoilt", "is_near"), [(0, True), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_writer_goes_on_from_the_nearest_waypoint_that_is_sound(spoilt, is_near, how):
    story = Story(10)
    story.go_on(100)
    other = stored(story.lines())
    state_upto(other, STREAM, 100, 8)
    newest = sorted({int(name.partition(".")[0]) for _, name in other._derived})[::-1]
    store = stored(story.lines())
    store._derived.update(other._derived)
    for seq in newest[:spoilt]:
        head = store._derived.pop((STREAM, f"{seq}.head"))
        if how == "damaged":
            store._derived[STREAM, f"{seq}.head"] = head[:-1] + b"?"
    found = reach(store, STREAM, 99, 8)
    assert (found is not None) is is_near
    if found is not None:
        must_be_the_fold(found[0], story.events[:99])
        assert store._derived.keys() == other._derived.keys(), (
            "those that were spoilt are made anew"
        )
        for seq in newest:
            must_be_the_fold(reach(store, STREAM, seq, 8)[0], story.events[:seq])


class Away(MemoryStore):
    """A store that can't be asked for what is derived."""

    fails: tuple[str, ...] = ()

    def get_side(self, streams, kind, names=None, *, only_names=False):
        if kind == "derived" and ("names" if only_names else "data") in self.fails:
            raise StorageFailed("the cable was pulled")
        return super().get_side(streams, kind, names, only_names=only_names)


@pytest.mark.parametrize("fails", [("names",), ("data",), ("names", "data")])
def test_where_waypoints_are_out_of_reach_the_log_is_read(fails):
    story = Story(11)
    story.go_on(80)
    made = stored(story.lines())
    state_upto(made, STREAM, 80, 8)
    store = Away()
    store._streams, store._derived = made._streams, made._derived
    store.fails = fails
    must_be_the_fold(state_upto(store, STREAM, 79, 8), story.events[:79])
    assert find_call(store, STREAM, next(iter(story.state.calls)), 8) is None


def test_a_large_value_whose_line_was_damaged_since_is_not_taken_from_there():
    story = Story(13)
    story.go_on(120)
    lines, noticed = story.lines(), 0
    made = stored(lines)
    state_upto(made, STREAM, 120, 4)
    for seq, line in enumerate(lines[:110], 1):
        if b"x" * 300 not in line:
            continue
        store = stored(lines)
        store._derived.update(made._derived)
        store._streams[STREAM][seq - 1] = line.replace(b"x" * 300, b"y" * 300, 1)
        state = state_upto(store, STREAM, 120, 4)
        try:
            found = whole(state)
        except LogDamaged as error:
            assert error.seq == seq
            noticed += 1
        else:
            assert b"y" * 300 not in msgspec.json.encode(found)
    assert noticed > 5


class Asked(MemoryStore):
    """Counts the heads of waypoints that are read."""

    heads: int = 0

    def get_side(self, streams, kind, names=None, *, only_names=False):
        found = super().get_side(streams, kind, names, only_names=only_names)
        self.heads += sum(post.name.endswith(".head") for post in found) if not only_names else 0
        return found


def test_the_heads_that_were_read_last_are_remembered_and_no_others():
    story = Story(12)
    story.go_on(LENGTH)
    made, store = stored(story.lines()), Asked()
    state_upto(made, STREAM, LENGTH, 4)
    store._streams, store._derived = made._streams, made._derived

    def read(seq: int) -> int:
        before = store.heads
        must_be_the_fold(state_upto(store, STREAM, seq, 4), story.events[:seq])
        return store.heads - before

    assert read(60) == len(way_to(15)) and read(61) == 0
    assert read(300) == len(set(way_to(75)) - set(way_to(15)))
    assert read(300) == 0, "the newest are there still"
    for seq in range(64, 300, 4):
        read(seq)
    assert read(296) == 0 and read(60) > 0, "the oldest are not"


class Full(MemoryStore):
    """Has no room for waypoints."""

    def put_side(self, *given):
        raise OSError(28, "No space left on device")


def test_a_store_without_room_for_waypoints_keeps_its_log(often):
    with Holdfast(Full()) as hf:
        assert hf.run(goes_far, 40, id="far") == 40


def test_the_files_of_waypoints_are_private_beside_the_log_and_may_be_deleted(often, tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.run(goes_far, 80, id="far")
        events = list(read_events(hf.store, "tasks/far"))
        folder = tmp_path / "tasks/far/waypoints"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        must_be_the_fold(state_upto(hf.store, "tasks/far", 70, 8), events[:70])
        hf.gc()
        assert folder.is_dir()
        shutil.rmtree(folder)
        must_be_the_fold(state_upto(hf.store, "tasks/far", 70, 8), events[:70])
        assert hf.verify().sound
        assert folder.is_dir()


def test_no_symlink_is_followed_to_where_waypoints_would_be(often, tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(goes_far, 40, id="far")
        folder = tmp_path / "w/tasks/far/waypoints"
        shutil.rmtree(folder)
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
        events = list(read_events(hf.store, "tasks/far"))
        must_be_the_fold(state_upto(hf.store, "tasks/far", 30, 8), events[:30])
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_trail_knows_every_field_of_a_state():
    assert PLAIN.keys() >= {"seq", "status", "plan", "checkpoint"}
    Trail(State())


@pytest.mark.parametrize("seed", range(12))
def test_a_call_that_is_found_by_waypoints_alone_is_the_one_of_the_state(seed):
    story = Story(seed)
    events = story.go_on(LENGTH)
    store, every = stored(story.lines()), 4 + seed % 4
    state_upto(store, STREAM, LENGTH, every)
    calls = fold(events).calls
    found = {path: find_call(store, STREAM, path, every) for path in (*calls, "nobody")}
    assert found.pop("nobody") is None
    assert all(call is None or call == calls[path] for path, call in found.items())
    plain = Story(seed)
    plain.go_on(every)
    assert find_call(stored(plain.lines()), STREAM, next(iter(calls)), every) is None


def test_a_call_is_found_in_a_long_log_of_a_task():
    with Holdfast("memory://") as hf:
        hf.run(many_steps, 1500, id="t")
        for path in ("1", "700", "1000"):
            assert find_call(hf.store, "tasks/t", path) == hf.task("t").state.calls[path]
        assert find_call(hf.store, "tasks/t", "1501") is None
        assert hf.fork("t", at=700, effects="live").state.fork.seq == hf.task("t").at(700).seq


@step
def one_step(number: int) -> int:
    return number


@task
def many_steps(count: int) -> int:
    return sum(one_step(number) for number in range(count))


texts = Random(7)


@step
def said(messages: list[dict[str, str]]) -> str:
    return f"{len(messages)} {texts.randbytes(600).hex()}"


@task
def talked(turns: int) -> int:
    messages: list[dict[str, str]] = []
    for _ in range(turns):
        messages.append({"role": "assistant", "content": said(messages)})
    return len(messages)


def test_the_messages_of_a_conversation_are_in_the_log_and_not_once_more_in_waypoints(often):
    with Holdfast("memory://") as hf:
        hf.run(talked, 60, id="t-1")
        events = list(read_events(hf.store, STREAM))
        assert sum(getattr(event, "copied", ()) != () for event in events) > 40
        state_upto(hf.store, STREAM, len(events), 8)  # it goes by those of the writer
        derived = hf.store.get_side([STREAM], "derived")
        lists = [post.data for post in derived if post.name.endswith(".lists")]
        assert lists and sum(map(len, lists)) < 60 * 200, "a message packs to 600 bytes"
        for seq in range(1, len(events) + 1, 7):
            must_be_the_fold(state_upto(hf.store, STREAM, seq, 8), events[:seq])
