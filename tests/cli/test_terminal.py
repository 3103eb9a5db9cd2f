"""Nothing in a log can act on the terminal it is shown on."""

import json
import re
import shutil
from datetime import UTC, datetime
from typing import get_args

import pytest
from msgspec import Raw
from msgspec.json import encode

from holdfast import Holdfast, step, task
from holdfast.agent import (
    Context,
    Foreign,
    Media,
    Message,
    Orchestrator,
    Refusal,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    assistant,
    compact,
    context,
    session,
    tool_result,
    user,
)
from holdfast.agent.book import Book, BookMeans
from holdfast.cli.text import plain, plain_json, plain_lines
from holdfast.core.events import (
    FORMAT,
    NEWEST_FORMAT,
    Adopted,
    AnswerRefused,
    AnyEvent,
    AttemptFailed,
    CancelRequested,
    Carried,
    Checkpointed,
    ChildEnded,
    ChildMade,
    ChildStarted,
    Claimed,
    Compensating,
    Completed,
    Decided,
    Derived,
    Doubted,
    DriverDied,
    Failed,
    Failure,
    FileKept,
    FileRemoved,
    Fork,
    Hindered,
    HistoryEvent,
    ListGrew,
    MessageAwaited,
    MessageExpired,
    MessageRefused,
    MessageSent,
    MissionSet,
    Moved,
    Noted,
    Observed,
    Parked,
    Patched,
    PauseRequested,
    PlanItem,
    Planned,
    PlanProgressed,
    Progressed,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    Queued,
    QueueTicket,
    Reused,
    Rewound,
    SetAside,
    Settled,
    Started,
    Stepped,
    TaskCompleted,
    TaskContinued,
    TaskCreated,
    TaskErrored,
    TaskEvent,
    TaskRetried,
    TaskStopped,
    TimerSet,
    Woke,
    WorkspaceEvent,
    dump_event,
)
from holdfast.log import chain
from holdfast.log.log import open_log
from holdfast.log.store_calls import acquire_one
from holdfast.stores.files.folder import safe_name
from holdfast.stores.files.locks import LOG

from .conftest import on_terminal, run

ACTS = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\x7f\u202e\u2028"
MARKUP = "[bold red]x[/] :boom: [link=http://evil]y[/link]"
EVIL = f"{ACTS}{MARKUP}\n!"
ID = f"evil{EVIL}"
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def value() -> Raw:
    return Raw(encode({EVIL: [EVIL]}))


def events(id: str) -> list[AnyEvent]:
    """Every kind of event, with what no agent of ours would write but somebody may send."""
    failure = Failure(EVIL, EVIL, EVIL)
    return [
        TaskCreated(
            format=FORMAT,
            id=id,
            task=EVIL,
            args=value(),
            args_hash="",
            user=EVIL,
            session=EVIL,
            labels={EVIL: EVIL},
            timeout_s=60,
            parent=EVIL,
            parent_path=EVIL,
        ),
        Claimed(format=FORMAT, epoch=1, owner=EVIL, engine=EVIL),
        Planned(items=(EVIL, EVIL, EVIL, EVIL)),
        Planned(items=(EVIL, PlanItem(EVIL, id=EVIL, after=(EVIL, "?")), PlanItem("", id=EVIL))),
        PlanProgressed(id=EVIL, status="failed", because=EVIL),
        PlanProgressed(id="in no plan", status="done"),
        Rewound(to=6, number=1, epoch=1, path=EVIL, when=EVIL, by=EVIL, because=EVIL),
        TaskContinued(by=EVIL),
        Decided(path="a?1", name=EVIL, choice=value(), options=value(), because=EVIL),
        Decided(path="a?2", name=EVIL, choice=value(), options=Raw(encode([EVIL])), because=EVIL),
        Decided(path=f"{EVIL}?1", name=EVIL, choice=value(), because=EVIL, supersedes="a?2"),
        Decided(path="a?4", name=EVIL, choice=value(), supersedes=f"{EVIL}?1"),
        Noted(scope="", mark="", text=EVIL, data=value()),
        Derived(path=f"{EVIL}+1", name=EVIL, value=value(), as_of=LATER, sources=(EVIL, EVIL)),
        Started(path="1", name=EVIL, kind="tool", args=value(), key=EVIL),
        AttemptFailed(path="1", attempt=1, failure=failure),
        Failed(path="1"),
        Started(path=f"1.{EVIL}", name=EVIL),
        Completed(path=f"1.{EVIL}", result=Raw(encode(EVIL))),
        Stepped(
            path=f"1.s{EVIL}", began=LATER, name=EVIL, args=value(), args_hash="", result=value()
        ),
        Started(path=f"1.r{EVIL}", name=EVIL, external=True),
        Completed(path=f"1.r{EVIL}", result=value()),
        Reused(path=f"1.s{EVIL}", name=EVIL, args_hash=EVIL, of=f"1.r{EVIL}"),
        Started(path="2", name=EVIL, kind="tool", args=value(), key=EVIL),
        Settled(path="2", verdict="happened", by=EVIL, result=value(), because=EVIL),
        TaskErrored(failure=failure),
        TaskRetried(by=EVIL),
        Started(path="3", name=EVIL, kind="tool", args=value(), key=EVIL),
        Doubted(path="3", why=EVIL),
        TimerSet(path="4", name=EVIL, args=value(), args_hash="", until=LATER),
        TimerSet(path="5", name=EVIL, args=value(), args_hash="", until=LATER),
        Woke(path="5"),
        Observed(path="b=1", name=EVIL, value=value()),
        *(asked(path) for path in ("6", "7", "8")),
        QuestionAnswered(path="6", answer=value(), by=EVIL),
        AnswerRefused(path="6", why=EVIL),
        QuestionAnswered(path="7", answer=value(), by=EVIL),
        QuestionExpired(path="8"),
        *(
            MessageAwaited(path=path, name=EVIL, args_hash="", expects=EVIL, until=LATER)
            for path in ("12", "13")
        ),
        MessageSent(name=EVIL, value=value(), by=EVIL),
        MessageRefused(path="12", why=EVIL),
        MessageExpired(path="13"),
        *(
            ChildStarted(path=path, id=f"child {EVIL}", name=EVIL, args=value(), args_hash="")
            for path in ("9", "10", "11")
        ),
        ChildMade(path="9"),
        ChildEnded(path="9", result=value()),
        ChildEnded(path="10", failure=failure),
        Progressed(scope="", number=1, text=EVIL, done=1, total=2),
        Progressed(scope=f"1.{EVIL}#2", number=1, text=EVIL),
        Patched(mark=EVIL),
        MissionSet(text=value(), by=EVIL, diff=EVIL),
        FileKept(name=EVIL, file=value(), path=EVIL, by=EVIL),
        FileRemoved(name=EVIL, path=EVIL, by=EVIL),
        Checkpointed(
            number=1,
            state=value(),
            carried=Carried(plan=(EVIL, PlanItem(EVIL, EVIL, "done")) * 6, because=EVIL),
        ),
        Checkpointed(number=2, change=Raw(encode(["=", {EVIL: EVIL}]))),
        ListGrew(digest=EVIL, length=3, base=EVIL, items=Raw(encode([EVIL]))),
        Started(
            path="12",
            name=EVIL,
            kind="tool",
            args=value(),
            key=EVIL,
            undo=True,
            invalidates=(EVIL,),
        ),
        Completed(path="12", result=value()),
        *(
            Adopted(
                path=path,
                name=EVIL,
                kind="tool",
                how=how,  # type: ignore[arg-type]
                args=value(),
                result=value(),
                failure=why,
                of=EVIL,
                of_path=EVIL,
                by=EVIL,
                why=EVIL,
            )
            for path, how, why in (("13", "reused", None), ("14", "stub", failure))
        ),
        Adopted(path="12", name=EVIL, kind="tool", how="edited", result=value(), by=EVIL),
        PauseRequested(by=EVIL, because=EVIL),
        TaskContinued(by=EVIL),
        Moved(engine=EVIL, by=EVIL),
        CancelRequested(by=EVIL, because=EVIL),
        DriverDied(owner=EVIL, path=EVIL, name=EVIL, beside=(EVIL,)),
        Hindered(error=EVIL, why=EVIL, by=EVIL),
        SetAside(owner=EVIL, path=EVIL, name=EVIL, deaths=5),
        TaskContinued(by=EVIL),
        Parked(until=LATER, why=EVIL),
        Queued(ticket=QueueTicket(EVIL, 7, EVIL)),
        Compensating(ending="failed", by=EVIL, failure=failure),
        Started(path="undo.12", name=EVIL, kind="tool", args=value(), key=EVIL),
        AttemptFailed(path="undo.12", attempt=1, failure=failure),
        Failed(path="undo.12"),
    ]


def asked(path: str) -> QuestionAsked:
    return QuestionAsked(
        path=path, id=EVIL, question=EVIL, args_hash="", expects=EVIL, until=LATER, default=value()
    )


def write(folder, stream_id: str, found: list[AnyEvent]) -> None:
    with Holdfast(folder / "workspace") as hf:
        log = open_log(hf.store, stream_id, EVIL, 30, hf._holding.clock)
        for event in found:
            log.append(event)
        log.close()


def fork(folder) -> None:
    """One that says hostile things of where it comes from; and those of one whose id is."""
    with Holdfast(folder / "workspace") as hf:
        total = chain.sum_of(next(hf.store.read(f"tasks/{ID}")))
        origin = Fork(
            of=ID, seq=1, sum=total.decode(), path=EVIL, when=EVIL, by=EVIL, because=EVIL,
            stubs={EVIL: value()}, arguments={EVIL: {EVIL: value()}}, sessions={EVIL: EVIL},
        )  # fmt: skip
        made = TaskCreated(
            seq=1, at=LATER, format=NEWEST_FORMAT, id="fork", task=EVIL, args=value(),
            args_hash="", fork=origin,
        )  # fmt: skip
        lease = acquire_one(hf.store, "tasks/fork", EVIL, 30)
        hf.store.append(lease, 0, [chain.seal(chain.ROOT, dump_event(made))[0]])
        hf.store.release([lease])


@step
def evil_step(seen: Context) -> str:
    return seen.messages[-1].text


def evil_model(request: Request) -> Reply:
    calls = [ToolCall(EVIL, EVIL, EVIL)] if request.messages[-1].role == "user" else []
    return Reply(assistant(EVIL, calls), stop="tool_calls" if calls else "end")


evil_agent = Orchestrator("evil_agent", evil_model, plan=False, system=EVIL)


@task
def talks_evil() -> None:
    session().say(assistant(EVIL, [ToolCall(EVIL, EVIL, EVIL)]), tool_result(EVIL, EVIL))
    session().say(user([Text(EVIL), Media(kind="file", name=EVIL, url=EVIL, media_type=EVIL)]))
    session().say(Message("assistant", (Thinking(EVIL), Refusal(EVIL), Foreign(EVIL, EVIL))))
    evil_step(context(session(), budget_tokens=100_000, goal=EVIL, plan=[EVIL], system=EVIL))
    compact(session(), lambda messages: EVIL, keep_turns=1)
    evil_step(context(session(), budget_tokens=100_000))


def talk(folder) -> None:
    with Holdfast(folder / "workspace") as hf:
        Book(BookMeans(hf.store, EVIL, hf._holding.clock), ID).begin(EVIL, {EVIL: EVIL})
        chat = hf.session("talk", user=EVIL, labels={EVIL: EVIL})
        chat.say(Message("user", EVIL, name=EVIL), EVIL * 30)
        chat.pin(1)
        chat.run(talks_evil, id="talks")
        evil_agent.run(chat, EVIL, id="agent")
        chat.end(EVIL)


@pytest.fixture(scope="session")
def _written(tmp_path_factory):
    # One whose very id is hostile, and some that can be asked for by name.
    folder = tmp_path_factory.mktemp("hostile")
    write(folder, ID, events(ID))
    write(folder, "doubted", events("doubted"))
    write(folder, "done", [*events("done"), TaskCompleted(result=value())])
    write(folder, "failed", [*events("failed"), TaskErrored(failure=Failure(EVIL, EVIL, EVIL))])
    write(folder, "ended", [*events("ended"), TaskStopped(because=EVIL)])
    fork(folder)
    talk(folder)
    return folder


@pytest.fixture
def folder(_written, tmp_path):
    shutil.copytree(_written, tmp_path, dirs_exist_ok=True)
    return tmp_path


COMMANDS = [
    ["ls"],
    ["doubt"],
    ["answer"],
    ["doctor"],
    ["show", "doubted"],
    ["show", "done", "--full"],
    ["show", "failed", "--full"],
    ["show", "ended", "--full"],
    ["why", "ended"],
    ["why", "evil", "--full"],
    ["why", "ended", "nothing"],
    ["log", "failed"],
    ["log", "fork"],
    ["show", "fork"],
    ["show", "fork", "--json"],
    ["show", "evil"],
    ["pause", "ended"],
    ["cancel", "doubted"],
    ["resume", "ended"],
    ["resume", "doubted", "--worker"],
    ["compensate", "done"],
    ["compensate", "failed"],
    ["check"],
    ["worker", "--app", "json", "--until-idle"],
    ["resolve", "doubted", "9", "--did-not-happen"],
    ["resolve", "doubted", "3", "--happened", "--result", "1"],
    ["resume", "failed"],
    ["resume", "doubted"],
    ["ls", "--json"],
    ["show", "failed", "--json"],
    ["why", "failed", "--json"],
    ["log", "failed", "--json"],
    ["doubt", "--json"],
    ["answer", "--json"],
    ["show", "evil", "--json"],
    ["doctor", "--json"],
    ["check", "--json"],
    ["sessions"],
    ["sessions", "--json"],
    ["session", "talk"],
    ["session", "talk", "--full"],
    ["session", "talk", "--markdown"],
    ["session", "talk", "--json"],
    ["session", "evil"],
    ["say", "evil", "x"],
    ["say", "talk", EVIL],
    ["say", "talk", EVIL, "--user", "x"],
    ["context", "talks"],
    ["context", "talks", "--step", "1"],
    ["context", "talks", "--step", "3", "--full"],
    ["context", "talks", "--step", "3", "--json"],
    ["context", "talks", "--step", "1", "--format", "openai"],
    ["context", "agent", "--step", "@2.1", "--full"],
    ["context", "agent", "--step", EVIL],
    ["context", "failed"],
    ["cancel", "doubted", "--json"],
    ["worker", "--app", "json", "--until-idle", "--json"],
]


def test_every_kind_of_event_is_tried():
    tried = {type(event) for event in events("")} | {TaskCompleted, TaskStopped}
    assert tried == set(get_args(TaskEvent | WorkspaceEvent | HistoryEvent))


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: plain(" ".join(args)))
def test_what_a_terminal_would_act_on_is_written_out(folder, args):
    seen = on_terminal(*args, cwd=folder, columns=200, TERM="dumb")
    assert seen
    acting = {character for character in seen if not character.isprintable()} - {"\n"}
    assert acting == set()
    coloured = on_terminal(*args, cwd=folder, columns=200)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).replace("\n", "").isprintable()


def test_markup_is_shown_as_it_is(folder):
    for args in (["ls"], ["show", "doubted"], ["log", "doubted"]):
        assert MARKUP in on_terminal(*args, cwd=folder, columns=3000, TERM="dumb")


def test_a_newline_makes_no_new_row(folder):
    out = run("ls", cwd=folder).out
    assert len(out.splitlines()) == 9
    assert r"\n!" in out
    assert len(run("log", "failed", cwd=folder).out.split("\n")) - 1 == len(events("")) + 1


def test_a_checkpoint_that_makes_no_sense_is_damage(tmp_path):
    write(tmp_path, "t", [*events("t"), Checkpointed(number=3, change=Raw(b"[]"))])
    assert run("show", "t", "--json", cwd=tmp_path).code == 4


def test_an_error_can_not_pass_for_another(folder):
    lines = run("show", "evil", cwd=folder).err.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == lines[:1]


def test_machines_get_the_very_values(folder):
    found = json.loads(run("show", "failed", "--json", cwd=folder).out)
    assert found["user"] == EVIL
    assert found["outputs"][0]["output"] == EVIL
    shown = on_terminal("show", "failed", "--json", cwd=folder)
    assert json.loads(shown) == found


def test_a_copied_command_can_not_do_anything_else(tmp_path):
    evil = "a b; touch owned; $(touch owned)"
    write(tmp_path, evil, events(evil))
    out = run("doubt", cwd=tmp_path).out
    assert "holdfast resolve 'a b; touch owned; $(touch owned)' 3 --did-not-happen" in out


def test_a_path_of_absurd_depth_is_shown(tmp_path):
    deep = ".".join(["1"] * 5_000)
    write(tmp_path, "deep", [*events("deep"), Started(path=deep, name="x")])
    assert run("show", "deep", cwd=tmp_path).code == 0


def test_a_first_line_that_is_not_utf8_is_damage(folder):
    log = folder / "workspace/tasks" / safe_name(ID) / LOG
    log.write_bytes(b'{"id":"\xff"}\n' + log.read_bytes())
    assert run("doctor", cwd=folder).code == 4


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain å 🙂", "plain å 🙂"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("a\tb\n", r"a\tb\n"),
        ("\x00\x1b\x7f\x9b", r"\x00\x1b\x7f\x9b"),
        ("\u202e\u2066\ufeff", r"\u202e\u2066\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)  # fmt: skip
def test_what_is_written_out(text, shown):
    assert plain(text) == shown


def test_lines_stay_lines():
    assert plain_lines("a\r\n\tb\u2028c\x1b") == "a\n    b\\u2028c\\x1b"


def test_json_keeps_its_value():
    for text in ("\x7f\x9b\u202e", "\U000e0041", "å\n"):
        assert json.loads(plain_json(json.dumps(text, ensure_ascii=False))) == text
