"""Sessions: what is said is there, once, whoever says it and whatever happens."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from holdfast import (
    BadId,
    BadInput,
    CodeChanged,
    Conflict,
    Holdfast,
    HoldsSecret,
    Redact,
    random,
    step,
    task,
)
from holdfast.agent import (
    Media,
    Message,
    Session,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    open_session,
    session,
    system,
    tool_result,
    user,
)
from holdfast.agent.book import Book
from holdfast.core.scope import scope_var
from holdfast.errors import LogDamaged, SessionNotFound, WrongArguments
from holdfast.log import messages as stored
from holdfast.log.messages import media_bytes
from holdfast.log.store_calls import acquire_one, streams_in

pytestmark = pytest.mark.holdfast("sqlite:///{tmp_path}/a.db", "{tmp_path}/ws", "memory://")

CALL = ToolCall("c1", "look", '{"city": "Oslo"}')


def texts(chat: Session) -> list[str]:
    return [message.text for message in chat.messages()]


# Saying


def test_messages_are_numbered_and_know_when_they_were_said(hf):
    chat = hf.session("s", user="ada", labels={"team": "support"})
    first, second = chat.say(system("Be brief."), "Hello")
    assert (first.number, first.role, second.number, second.role) == (1, "system", 2, "user")
    assert first.at is not None and first.at <= second.at
    assert (second.task, second.step) == ("", "")
    assert list(chat.messages()) == [first, second]
    assert (chat.user, chat.state.labels) == ("ada", {"team": "support"})


def test_a_session_is_found_again_with_all_that_was_said(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.session("s", user="ada").say("one", assistant("two"))
    with Holdfast(tmp_path) as hf:
        again = hf.session("s")
        assert texts(again) == ["one", "two"] and again.user == "ada"
        assert hf.verify().sound


def test_a_session_of_somebody_else_is_refused(hf):
    hf.session("s", user="ada")
    with pytest.raises(WrongArguments, match="'ada', not of 'bob'"):
        hf.session("s", user="bob")
    with pytest.raises(BadInput, match="other labels"):
        hf.session("s", labels={"team": "sales"})


def test_a_session_without_an_id_gets_one_of_its_own(hf):
    assert hf.session().id != hf.session().id


def test_reading_a_session_that_is_not_there_makes_none(hf):
    with pytest.raises(SessionNotFound, match="no session 'nobody'"):
        open_session(hf.store, "nobody")
    assert list(streams_in(hf.store, "sessions/")) == []


def test_a_session_that_is_only_read_can_still_be_written_by_others(hf):
    hf.session("s").say("one")
    reader = open_session(hf.store, "s")
    hf.session("s").say("two")
    assert texts(reader) == ["one", "two"]
    with pytest.raises(BadInput, match="opened for reading"):
        reader.say("three")
    assert texts(hf.session("s")) == ["one", "two"]


@pytest.mark.parametrize("id", ["", "a\0b", "x" * 256, 7])
def test_hostile_ids_are_refused(hf, id):
    with pytest.raises(BadId):
        hf.session(id)


@pytest.mark.parametrize("id", ["../x", "/etc/passwd", "CON", "ü", "a/b"])
def test_odd_ids_name_a_session_and_no_path(tmp_path, id):
    with Holdfast(tmp_path / "ws") as hf:
        hf.session(id).say("hi")
        assert texts(hf.session(id)) == ["hi"]
    assert [path.name for path in tmp_path.iterdir()] == ["ws"]


# Pairing


def test_a_call_is_stored_with_its_result_or_not_at_all(hf):
    chat = hf.session("s")
    with pytest.raises(BadInput, match="need their results"):
        chat.say("hi", assistant("", [CALL]))
    with pytest.raises(BadInput, match="not open"):
        chat.say(tool_result("c1", "rain"))
    with pytest.raises(BadInput, match="need their results"):
        chat.say(assistant("", [CALL]), user("and?"), tool_result("c1", "rain"))
    with pytest.raises(BadInput, match="id of its own"):
        chat.say(assistant("", [CALL, CALL]), tool_result("c1", "rain"))
    assert texts(chat) == []
    chat.say(assistant("", [CALL]), tool_result("c1", "rain"))
    assert [message.role for message in chat.messages()] == ["assistant", "tool"]
    assert len(chat.state.turns) == 1, "one event: a crash leaves both or neither"


@pytest.mark.parametrize(
    "message",
    [
        Message("user", (CALL,)),
        Message("assistant", (ToolResult("c1", "x"),)),
        Message("tool", "no result"),
        Message("nobody", "hi"),  # type: ignore[arg-type]
    ],
)
def test_what_no_role_may_say_is_refused(hf, message):
    with pytest.raises(BadInput):
        hf.session("s").say(message)
    assert texts(hf.session("s")) == []


# Values


def test_images_and_files_go_to_blobs_and_come_back(hf):
    chat = hf.session("s")
    picture = b"\x89PNG" * 50_000
    said = user([Text("look"), Media(kind="image", media_type="image/png", data=picture, name="a")])
    chat.say(said, said)
    (_, media), (_, again) = (message.parts for message in chat.messages())
    assert media.data is None and media.artifact == again.artifact
    assert media_bytes(hf.store, media.artifact) == picture
    stored = sum(len(line) for line in hf.store.read("sessions/s"))
    assert stored < 4096


def test_a_message_of_five_megabytes_is_kept(hf):
    text = "ü" * 2_500_000
    hf.session("s").say(text)
    assert texts(open_session(hf.store, "s")) == [text]


def test_ten_thousand_messages_are_read_in_order(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path}/a.db", sync=False) as hf:
        chat = hf.session("s")
        for start in range(0, 10_000, 2000):
            chat.say(*(str(n) for n in range(start, start + 2000)))
        found = open_session(hf.store, "s")
        assert [int(m.text) for m in found.messages(9_990)] == list(range(9_989, 10_000))
        assert [m.number for m in found.messages(5, 7)] == [5, 6, 7]
        assert found.state.messages == 10_000


@pytest.mark.parametrize(
    "meta",
    [{"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"n": float("nan")}, {"t": (1, 2)}, {"o": object()}],
)
def test_what_would_come_back_as_something_else_is_refused(hf, meta):
    with pytest.raises(BadInput, match="can't be stored"):
        hf.session("s").say(user("hi", meta=meta))
    with pytest.raises(BadInput, match="can't be stored"):
        hf.session("s").say("lone \ud800 surrogate")
    assert texts(hf.session("s")) == []


def test_a_secret_is_refused_where_that_is_asked_for(tmp_path):
    with Holdfast(tmp_path, redact=Redact(refuse=True)) as hf:
        with pytest.raises(HoldsSecret):
            hf.session("s").say("my key is sk-ant-api03-" + "a" * 90)
        assert texts(hf.session("s")) == []


@pytest.mark.parametrize("what", [7, None, b"x", {"role": "user"}])
def test_what_is_no_message_is_refused(hf, what):
    with pytest.raises(BadInput):
        hf.session("s").say(what)
    with pytest.raises(BadInput, match="nothing to say"):
        hf.session("s").say()


# Keys


def test_what_was_said_under_a_key_is_said_once(hf):
    chat = hf.session("s")
    (first,) = chat.say("hello", key="k")
    assert chat.say("hello", key="k") == (first,)
    with pytest.raises(Conflict, match="something else was said under the key 'k'"):
        chat.say("goodbye", key="k")
    assert texts(chat) == ["hello"]


def test_a_key_is_known_again_by_another_process(tmp_path):
    for _ in range(2):
        with Holdfast(tmp_path) as hf:
            hf.session("s").say("hello", assistant("hi"), key="k")
    with Holdfast(tmp_path) as hf:
        assert texts(hf.session("s")) == ["hello", "hi"]


# In a task

died = [""]


@step
def think_and_die_in_session() -> str:
    if died[0] == "here":
        raise KeyboardInterrupt
    return "thought"


@step
def says_inside_a_step(text: str) -> int:
    (message,) = session().say(assistant(text))
    return message.number


@task
def talks_in_its_session(extra: bool) -> list[int]:
    chat = session()
    first = chat.say(assistant("one"), assistant("two"))
    think_and_die_in_session()
    number = says_inside_a_step("three")
    last = chat.say(assistant("four"))
    return [first[0].number, first[1].number, number, last[0].number]


def test_what_a_task_says_is_said_once_however_often_it_is_resumed(hf):
    chat = hf.session("s", user="ada")
    died[0] = "here"
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            chat.run(talks_in_its_session, True, id="t")
    died[0] = ""
    assert chat.run(talks_in_its_session, True, id="t") == [1, 2, 3, 4]
    assert chat.run(talks_in_its_session, True, id="t") == [1, 2, 3, 4]
    found = [(message.text, message.task, message.step) for message in chat.messages()]
    assert found == [
        ("one", "t", "say=1"), ("two", "t", "say=1"), ("three", "t", "2"), ("four", "t", "say=2"),
    ]  # fmt: skip
    assert [view.id for view in chat.tasks()] == ["t"]
    assert hf.task("t").state.user == "ada"


def test_a_crash_between_the_two_logs_says_nothing_twice(tmp_path, monkeypatch):
    """The session has it, the task's log does not: the key tells."""

    def dies(*_args, **_options):
        raise KeyboardInterrupt

    with Holdfast(tmp_path) as hf:
        chat = hf.session("s")
        monkeypatch.setattr("holdfast.agent.flow._record", dies)
        with pytest.raises(KeyboardInterrupt):
            chat.run(talks_in_its_session, True, id="t")
        monkeypatch.undo()
        assert texts(chat) == ["one", "two"]
        assert chat.run(talks_in_its_session, True, id="t") == [1, 2, 3, 4]
        assert texts(chat) == ["one", "two", "three", "four"]


words = ["hello"]


@task
def says_other_words() -> None:
    session().say(assistant(words[0]))
    think_and_die_in_session()


def test_code_that_says_something_else_than_the_log_holds_is_noticed(hf):
    chat = hf.session("s")
    died[0] = "here"
    with pytest.raises(KeyboardInterrupt):
        chat.run(says_other_words, id="t")
    died[0], words[0] = "", "goodbye"
    with pytest.raises(CodeChanged, match="session 's'"):
        chat.run(says_other_words, id="t")
    assert texts(chat) == ["hello"]
    words[0] = "hello"
    chat.run(says_other_words, id="t")


def test_a_check_of_the_code_says_nothing(hf):
    chat = hf.session("s")
    chat.start(talks_in_its_session, True, id="t")
    assert hf.check("t").fits
    assert texts(chat) == []


@task
async def talks_async() -> list[int]:
    chat = session()
    numbers = []
    for word in ("one", "two"):
        (said,) = await chat.say(assistant(word))
        numbers.append(said.number)
    await asyncio.gather(*(branch_says(n) for n in range(3)))
    return numbers


async def branch_says(n: int) -> None:
    await session().say(assistant(f"branch {n}"))


def test_an_async_task_awaits_what_it_says(hf):
    chat = hf.session("s")
    assert chat.run(talks_async, id="t") == [1, 2]
    assert chat.run(talks_async, id="t") == [1, 2]
    assert sorted(texts(chat)) == ["branch 0", "branch 1", "branch 2", "one", "two"]


@task
def has_no_session() -> None:
    session()


@task
def with_a_session_by_name() -> str:
    session().say(assistant("hi"))
    return session().user


def test_a_task_without_a_session_is_told_so(hf):
    from holdfast import TaskFailed

    with pytest.raises(TaskFailed, match="belongs to no session"):
        hf.run(has_no_session)
    assert hf.run(with_a_session_by_name, session="made", user="ada") == "ada"
    assert texts(hf.session("made")) == ["hi"]


def test_a_key_of_ones_own_makes_no_sense_in_a_task(hf):
    @task(name="own_key_in_task")
    def body() -> str:
        try:
            session().say("x", key="k")
        except BadInput as error:
            return str(error)
        return ""

    assert "leave it out" in hf.session("s").run(body)


# Pins and ends


def test_a_pin_is_there_until_it_is_taken_off(hf):
    chat = hf.session("s")
    chat.say("a", "b")
    chat.pin(2)
    chat.pin(2)
    assert list(open_session(hf.store, "s").state.pinned) == [2]
    chat.pin(2, pinned=False)
    assert list(open_session(hf.store, "s").state.pinned) == []
    for number in (0, 3, True, "1"):
        with pytest.raises(BadInput, match="has no message"):
            chat.pin(number)


@task
async def pins_async() -> list[int]:
    await session().pin(1)  # type: ignore[func-returns-value, misc]
    return list(session().state.pinned)


def test_an_async_task_pins_by_awaiting_it(hf):
    chat = hf.session("s")
    chat.say("a", "b")
    assert asyncio.run(chat.arun(pins_async)) == [1]


def test_a_session_ends_and_begins_again_with_the_next_word(hf):
    chat = hf.session("s")
    chat.say("hi")
    chat.end("she left")
    chat.end("again")
    assert (chat.state.status, chat.state.because) == ("ended", "she left")
    chat.say("back")
    assert chat.state.status == "open"


# Many at once


def _say_many(folder: str, name: str, count: int) -> None:
    with Holdfast(folder) as hf:
        chat = hf.session("s")
        for n in range(count):
            chat.say(f"{name} {n}", key=f"{name}-{n}")


@pytest.mark.parametrize("url", ["{}/ws", "sqlite:///{}/a.db"])
def test_processes_that_speak_at_once_lose_nothing(tmp_path, url):
    url = url.format(tmp_path)
    with Holdfast(url) as hf:
        hf.session("s")
    context = multiprocessing.get_context("spawn")
    speakers = [context.Process(target=_say_many, args=(url, name, 20)) for name in "abc"]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join(60)
        assert speaker.exitcode == 0
    with Holdfast(url) as hf:
        found = texts(hf.session("s"))
        assert sorted(found) == sorted(f"{name} {n}" for name in "abc" for n in range(20))
        for name in "abc":
            assert [f for f in found if f.startswith(name)] == [f"{name} {n}" for n in range(20)]
        assert hf.verify().sound


def test_threads_that_speak_at_once_lose_nothing(hf):
    chat = hf.session("s")
    threads = [
        threading.Thread(target=lambda i=i: [chat.say(f"{i} {n}") for n in range(10)])
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts(chat))) == 40


def test_a_session_that_was_deleted_and_begun_anew_is_read_anew(tmp_path):
    with Holdfast(tmp_path) as hf, Holdfast(tmp_path) as other:
        old = hf.session("s")
        old.say("one", "two")
        lease = acquire_one(other.store, "sessions/s", "me", 30)
        other.store.delete(lease)
        other.session("s").say("new")
        assert texts(old) == ["new"]
        old.say("more")
        assert texts(other.session("s")) == ["new", "more"]


def test_a_damaged_session_is_refused(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.session("s").say("one", "two")
    log = tmp_path / "sessions" / "s" / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"one"', b'"eno"'))
    with Holdfast(tmp_path) as hf, pytest.raises(LogDamaged):
        hf.session("s").say("three")


@task
def says_what_it_drew() -> None:
    session().say(assistant(f"{random()}"))


def test_what_a_task_says_does_not_outlive_what_it_followed_from(monkeypatch):
    durable = []
    say = Book.say

    def look_and_say(book, form, said):
        durable.append(not scope_var.get().run.log.has_to_be_synced())
        return say(book, form, said)

    monkeypatch.setattr(Book, "say", look_and_say)
    with Holdfast("memory://") as hf:
        hf.session("drawn").run(says_what_it_drew)
    assert durable == [True]


@task
async def says_a_file() -> None:
    await session().say(user([Media(kind="image", media_type="image/png", data=b"png")]))


def test_in_an_async_task_files_are_stored_off_the_loop(monkeypatch):
    threads = []
    keep = stored.kept

    def look_and_keep(*given):
        threads.append(threading.current_thread())
        return keep(*given)

    monkeypatch.setattr(stored, "kept", look_and_keep)
    with Holdfast("memory://") as hf:
        asyncio.run(hf.session("files").arun(says_a_file))
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_who_waits_for_another_process_keeps_no_reader_waiting(tmp_path):
    with Holdfast(tmp_path / "w") as hf, Holdfast(tmp_path / "w") as other:
        chat = hf.session("held")
        lease = acquire_one(other.store, "sessions/held", "another", 30)
        with ThreadPoolExecutor(2) as pool:
            saying = pool.submit(chat.say, "Hello")
            reading = [pool.submit(lambda: chat.state.messages).result(60) for _ in range(20)]
            assert (reading, saying.done()) == ([0] * 20, False)
            other.store.release([lease])
            saying.result(60)
        assert chat.state.messages == 1
