"""What an agent remembers in a task is remembered once, and found again the way it was."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast import BadId, BadInput, Holdfast, LogDamaged, Redact, Retry, Secret, step, task
from holdfast.agent.memories import Memory
from holdfast.core.events import Forgotten, MemoryBegan, Noted, Remembered
from holdfast.core.memories import Entry, Memories, advance
from holdfast.log.reading import memory_stream
from holdfast.log.store_calls import acquire_one, streams_in
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("{tmp_path}/w")

AT = datetime(2026, 1, 1, tzinfo=UTC)


def texts(found):
    return [each.entry.text for each in found]


def events_of(hf):
    return [msgspec.json.decode(line) for line in hf.store.read(memory_stream("default"))]


# The state


def state_of(*events):
    state = Memories()
    for seq, event in enumerate(events, 1):
        advance(state, msgspec.structs.replace(event, seq=seq, at=AT))
    return state


BEGAN = MemoryBegan(format=1, id="default")


def test_the_same_key_is_taken_in_once_also_after_it_was_forgotten():
    first, second = (Remembered(id=id, text=id, key="k") for id in "ab")
    state = state_of(BEGAN, first, second)
    assert list(state.entries) == ["a"] and state.seq == 3
    state = state_of(BEGAN, first, Forgotten(id="a"), second)
    assert not state.entries and state.keys["k"].id == "a"


def test_a_newer_entry_of_the_same_id_stands_in_the_place_of_the_older():
    state = state_of(BEGAN, *(Remembered(id=id, text=str(n)) for n, id in enumerate("aba")))
    assert [entry.text for entry in state.entries.values()] == ["1", "2"]
    assert (list(state.by_seq), state.gone) == ([3, 4], {4: 2})


@pytest.mark.parametrize("wrong", [Forgotten(id="a"), Noted(text="x", mark="m", scope="")])
def test_an_event_that_makes_no_sense_is_damage(wrong):
    with pytest.raises(LogDamaged, match="memories/default"):
        state_of(BEGAN, wrong)


# What may be remembered


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"text": ""}, "nothing to remember"),
        ({"text": " \n"}, "nothing to remember"),
        ({"text": "é" * 9000}, r"18,000 bytes is too long, at most 16,384.*artifact.*summary"),
        ({"text": 7}, "must be a text"),
        ({"text": "\ud800"}, "must be a text"),
        ({"text": "x", "user": 7}, "user=7 must be a text"),
        ({"text": "x", "labels": ["a"]}, "must be a dict"),
        ({"text": "x", "labels": {"a": 1}}, "must be a text"),
    ],
)
def test_what_can_not_be_an_entry_is_refused_and_nothing_is_written(hf, given, complaint):
    with pytest.raises(BadInput, match=complaint):
        hf.memory.remember(**given)
    assert events_of(hf) == []


@pytest.mark.parametrize("id", ["", "x" * 256, "a\0b", "\ud800", 7])
def test_an_id_that_names_nothing_is_refused(hf, id):
    for call in (lambda: hf.memory.remember("x", id=id), lambda: hf.memory.forget(id)):
        with pytest.raises(BadId):
            call()
    assert events_of(hf) == []


@pytest.mark.parametrize("limit", [0, -1, 1001, "7", True])
def test_a_limit_that_is_none_is_refused(hf, limit):
    with pytest.raises(BadInput, match="1 to 1000"):
        hf.memory.search("x", limit=limit)


def test_any_text_id_and_label_come_back_as_they_were(hf, tmp_path):
    hostile = ["../x", "'; drop", "\u202e", "a\nb" * 5, "\0", "日本"]
    made = []
    for number, text in enumerate(hostile):
        id = text if text.isprintable() else str(number)
        given = {"user": text, "session": text, "labels": {text: text}}
        made.append(hf.memory.remember(text, id=id, **given))
        assert (made[-1].id, made[-1].text, made[-1].labels) == (id, text, {text: text})
    with Holdfast(tmp_path / "w") as again:
        assert list(again.memory.entries()) == made[::-1]
        assert [e.text for e in again.memory.entries(user="\0")] == ["\0"]


def test_to_remember_the_same_under_the_same_id_writes_nothing_new(hf):
    first = hf.memory.remember("likes tea", id="taste", user="ada")
    assert hf.memory.remember("likes tea", id="taste", user="ada") == first
    assert len(events_of(hf)) == 2
    assert hf.memory.remember("likes tea", id="taste", user="bob").user == "bob"
    assert len(events_of(hf)) == 3


def test_to_ask_an_empty_memory_writes_nothing(hf):
    assert hf.memory.search("x") == [] == list(hf.memory.entries())
    assert not hf.memory.forget("x")
    assert list(streams_in(hf.store, "memories/")) == []


def test_a_secret_does_not_get_into_the_log(tmp_path):
    with Holdfast(tmp_path / "w", redact=Redact(patterns=[r"acme-\d+"])) as hf:
        known = Secret("open-sesame-99")
        entry = hf.memory.remember(f"the key is {known.reveal()}, see acme-77")
        assert entry.text == "the key is •••, see •••"
        hf.memory.forget(entry.id, because="it has acme-77 in it")
        assert "acme-77" not in str(events_of(hf)) and "sesame" not in str(events_of(hf))


# In a task


def test_a_task_remembers_once_with_its_source_and_goes_on_with_what_it_found(hf):
    runs = []

    @step(name="memory_inner")
    def inner() -> str:
        return hf.memory.remember("likes cake").step

    @task(name="memory_once")
    def learning(crash: bool) -> tuple[list[str], str]:
        runs.append(1)
        hf.memory.remember("likes tea", labels={"kind": "taste"})
        found = texts(hf.memory.search("tea coffee cake"))
        if len(runs) == 1:
            raise Crash
        return found, inner()

    with pytest.raises(Crash):
        hf.run(learning, True, id="t", user="ada", session="s-1")
    hf.memory.remember("coffee, coffee, coffee")  # the replay does not see it
    assert hf.resume("t") == (["likes tea"], "1")
    assert hf.resume("t") == (["likes tea"], "1")
    first, *_, last = reversed(list(hf.memory.entries()))
    assert msgspec.structs.replace(first, id="", at=AT) == Entry(
        "", "likes tea", "ada", "s-1", "t", "remember=1", {"kind": "taste"}, AT
    )
    assert (last.text, last.user, last.step) == ("likes cake", "ada", "1")
    assert len(list(hf.memory.entries())) == 3


def test_a_crash_between_the_two_logs_remembers_once(hf, monkeypatch):
    @task(name="memory_between")
    def learning() -> str:
        return hf.memory.remember(f"likes tea {len(list(hf.memory.entries()))}").text

    keep, crashed = Memory._remember, []

    def remember_and_crash(self, *args):
        kept = keep(self, *args)
        if not crashed:
            crashed.append(kept)
            raise Crash
        return kept

    monkeypatch.setattr(Memory, "_remember", remember_and_crash)
    with pytest.raises(Crash):
        hf.run(learning, id="t")
    assert hf.resume("t") == "likes tea 0"
    assert [entry.text for entry in hf.memory.entries()] == ["likes tea 0"]
    assert [event["type"] for event in events_of(hf)] == ["memory_began", "remembered"]


def test_what_was_forgotten_since_is_not_remembered_again_by_a_replay(hf):
    runs = []

    @task(name="memory_forgotten")
    def learning() -> bool:
        runs.append(1)
        entry = hf.memory.remember("likes tea", id="taste")
        gone = hf.memory.forget(entry.id)
        if len(runs) == 1:
            raise Crash
        return gone

    with pytest.raises(Crash):
        hf.run(learning, id="t")
    hf.memory.remember("likes coffee", id="taste")
    assert hf.resume("t") is True
    assert [entry.text for entry in hf.memory.entries()] == ["likes coffee"]


def test_a_task_of_the_same_id_that_was_made_anew_remembers_too(hf):
    @task(name="memory_anew")
    def learning(text: str) -> str:
        return hf.memory.remember(text).id

    first = hf.run(learning, "one", id="t")
    hf.store.delete(acquire_one(hf.store, "tasks/t", "me", 60))
    assert hf.run(learning, "two", id="t") != first
    assert [entry.text for entry in hf.memory.entries()] == ["two", "one"]


def test_a_step_that_is_tried_again_remembers_once(hf):
    tries = []

    @step(name="memory_flaky", retry=Retry(attempts=2, delay_s=0))
    def flaky() -> None:
        hf.memory.remember("tried")
        tries.append(1)
        if len(tries) == 1:
            raise OSError("try again")

    @task(name="memory_flaking")
    def flaking() -> None:
        flaky()

    hf.run(flaking, id="t")
    assert (len(tries), len(list(hf.memory.entries()))) == (2, 1)


def test_the_task_says_who_remembers_unless_it_is_told_otherwise(hf):
    @task(name="memory_for_all")
    def learning() -> None:
        hf.memory.remember("for all", user="", session="", step="here")

    hf.run(learning, id="t", user="ada", session="s-1")
    (entry,) = hf.memory.entries()
    assert (entry.user, entry.session, entry.task, entry.step) == ("", "", "t", "here")


def test_in_an_async_task_the_calls_are_awaited_and_leave_the_loop_free(hf):
    loops = []

    @task(name="memory_async")
    async def learning(crash: bool) -> list[str]:
        entries = await asyncio.gather(*(hf.memory.remember(f"tea {n}") for n in range(5)))
        await hf.memory.forget(entries[0].id)
        found = texts(await hf.memory.search("tea"))
        loops.append(1)
        if len(loops) == 1:
            raise Crash
        return sorted(found)

    expected = [f"tea {n}" for n in range(1, 5)]
    with pytest.raises(Crash):
        hf.run(learning, True, id="t")
    hf.memory.remember("tea 7")
    assert hf.resume("t") == expected
    assert len(list(hf.memory.entries())) == 5
    threads = set()
    keep = hf.memory._search

    def search(*args):
        threads.add(threading.current_thread())
        return keep(*args)

    hf.memory._search = search
    assert asyncio.run(hf.arun(learning, True, id="another")) != expected
    assert threads and threading.main_thread() not in threads


def test_a_check_of_the_code_neither_remembers_nor_searches(hf):
    @task(name="memory_checked")
    def learning() -> None:
        hf.memory.remember("likes tea")
        hf.memory.search("tea")

    hf.start(learning, id="t")
    assert hf.check("t").fits
    assert events_of(hf) == []


def test_threads_that_remember_search_and_forget_at_once_do_not_disturb_each_other(tmp_path):
    for url in (str(tmp_path / "w"), f"sqlite:///{tmp_path}/m.db"):
        problems: list[BaseException] = []
        with Holdfast(url, sync=False) as hf:

            def work(who: int, hf=hf, problems=problems) -> None:
                try:
                    for number in range(30):
                        id = f"{who}-{number}"
                        hf.memory.remember(f"word {id}", id=id)
                        assert len(hf.memory.search(f"word {who}", limit=1000)) >= number // 2
                        if number % 2:
                            assert hf.memory.forget(id)
                except BaseException as error:
                    problems.append(error)

            threads = [threading.Thread(target=work, args=[who]) for who in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert problems == []
            assert len(hf.memory.search("word", limit=1000)) == 60


def test_a_memory_that_was_deleted_and_begun_anew_is_searched_as_it_is_now(hf, tmp_path):
    for number in range(3):
        hf.memory.remember(f"old {number}")
    assert len(hf.memory.search("old")) == 3
    with Holdfast(tmp_path / "w") as other:
        other.store.delete(acquire_one(other.store, memory_stream("default"), "me", 60))
        for number in range(5):
            other.memory.remember(f"new {number}")
    assert (hf.memory.search("old"), len(hf.memory.search("new"))) == ([], 5)
