"""Writes the golden logs of today's format: `python -m tests.golden.record`.

Each is written once and never again: the logs that are kept are what users have on their disks.
Together they use every type of event there is.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
from msgspec import Raw

from holdfast import (
    Happened,
    Holdfast,
    InDoubt,
    Limit,
    PlanItem,
    Queue,
    Rate,
    Retry,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    TaskPaused,
    Unanswered,
    Worker,
    ask,
    checkpoint,
    current,
    decide,
    gather,
    note,
    now,
    patched,
    progress,
    receive,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.agent import (
    Media,
    Message,
    Text,
    ToolCall,
    assistant,
    session,
    system,
    tool_result,
    user,
)
from holdfast.agent.compaction import compact
from holdfast.agent.externals import external, fact
from holdfast.core import memories as remembering
from holdfast.core.crashes import set_aside
from holdfast.core.events import (
    FORK_FORMAT,
    FORMAT,
    NEWEST_FORMAT,
    Claimed,
    Forgotten,
    MemoryBegan,
    MissionSet,
    Moved,
    QueueTurned,
    Remembered,
    Started,
)
from holdfast.core.memories import Memories
from holdfast.core.spec import task_spec
from holdfast.engines.deaths import record_death, record_hindrance
from holdfast.engines.local.tasks import TaskOptions
from holdfast.engines.queues import QueueLog
from holdfast.log.ledger import Ledger
from holdfast.log.reading import memory_stream
from holdfast.log.states import facts_in, load_any
from holdfast.stores.files.folder import safe_name
from holdfast.testing import Clock
from holdfast.workspace import files
from tests.flavors import Crash

FOLDER = Path(__file__).parent
tries = {"answer": 0, "flaky": 0, "letter": 0, "invite": 0, "body": 0}


@step(retry=Retry(attempts=3, delay_s=0, jitter=0))
def flaky(city: str) -> list[str]:
    tries["flaky"] += 1
    if tries["flaky"] < 2:
        raise ConnectionError("no route")
    return [f"{city} Inn", "Ünïcødé ✓"]


@step
def never_works() -> None:
    raise ValueError("closed on Mondays")


@tool(check=lambda key: Happened({"id": 7}))
def invite(guest: str) -> dict[str, int]:
    tries["invite"] += 1
    raise Crash


@tool
def letter(to: str) -> str:
    tries["letter"] += 1
    if tries["letter"] == 1:
        raise Crash
    return "sent"


@task
def golden(city: str) -> str:
    current().plan(["flaky", "never_works", "invite", "letter"])
    room = decide("room", flaky(city)[0], options=["a", "b"], because="it is the first")
    note("chose a room", {"room": room})
    try:
        never_works()
    except StepFailed:
        note("carried on")
    invite("ada")
    sent = letter("ada")
    sleep(0.001)
    note(f"asked at {now()}")
    if ask("Go on?", Literal["yes", "no"], id="go") == "no":
        return "no"
    try:
        ask("Anybody?", timeout_s=0.001)
    except StepFailed:
        note("nobody")
    tries["body"] += 1
    if tries["body"] == 1:
        raise RuntimeError("failed once")
    return f"{room}: {sent}"


@task
def golden_messages() -> list[int]:
    first = receive("number", int)
    late = receive("number", int, timeout_s=0.001, default=0)
    try:
        receive("word", str, timeout_s=0.001)
    except StepFailed:
        note("no word")
    return [first, late]


def run_messages(hf: Holdfast) -> None:
    hf.start(golden_messages, id="golden-messages")
    hf.send("golden-messages", "number", "many", by="ada")
    hf.send("golden-messages", "number", 3, id="three", by="ada")
    hf.send("golden-messages", "unread", {"kept": True}, by="ada")
    hf.resume("golden-messages")


@task
def golden_child(night: int) -> str:
    return f"slept through night {night}"


@step
def forecast(days: int) -> Iterator[str]:
    for day in range(days):
        yield f"day {day}: fog"
        if day == 2:
            raise ConnectionError("no more")


def return_car(result: str, *, key: str) -> None: ...


def empty_room(result: str) -> None:
    raise PermissionError("the door is locked")


@tool(undo=return_car)
def rent_car(city: str) -> str:
    return f"a car in {city}"


@tool(undo=empty_room, approve=True)
def take_room(city: str) -> str:
    return f"a room in {city}"


@task(version=2, timeout_s=3600)
def golden_control(city: str) -> str:
    done = restore(list[str]())
    while len(done) < 3:
        night = len(done)
        progress("nights", done=night, total=3)
        if night == 0 and patched("forecast"):
            list(forecast(2))
            try:
                list(forecast(3))
            except StepFailed:
                note("no forecast")
        if night == 1:
            rent_car(city)
            take_room(city)
        done = checkpoint([*done, start(golden_child, night).result()])
    sleep(0.001)
    return str(ask("Stay for good?", id="stay"))


@step
def reply(chat: list[dict[str, str]], mood: str) -> str:
    return f"{mood} reply {len(chat)} {'to what was said ' * 16}"


@task
def golden_lists(turns: int) -> list[dict[str, str]]:
    """A conversation that grows, is cut and goes on: with the whole of it for each step."""
    chat: list[dict[str, str]] = []
    for turn in range(turns):
        chat.append({"role": "assistant", "text": reply(chat, "glad")})
        if turn == turns // 2:
            chat = chat[:-2]
    return chat


@step
def quote(supplier: str) -> int:
    return len(supplier)


@task
def golden_plan(suppliers: int) -> str:
    """A plan that is followed, revised, and outlives a checkpoint; a choice that is taken back."""
    best = restore("")
    plan: list[str | PlanItem] = [
        PlanItem("ask all", id="ask"),
        PlanItem("choose", id="choose", after=("ask",)),
        "order",
    ]
    if not best:
        current().plan(plan)
        current().mark("ask", "doing")
        for number in range(suppliers):
            quote("x" * number)
        current().mark("ask", "done", because="all have answered")
        best = decide("supplier", "the first", options=["the first", "the last"], because="cheap")
        best = checkpoint(best)
    best = decide("supplier", "the last", because="the first is closed", supersedes="supplier")
    current().mark("choose", "done")
    current().plan([*plan, PlanItem("tell Ada", id="tell", after=("3",))])
    current().mark("3", "failed", because="out of stock")
    current().mark("tell", "skipped")
    return best


@task
def golden_workspace(city: str) -> str:
    """Files that are written, written again, carried over a checkpoint, and removed."""
    if restore(0) == 0:
        files.write("notes/rooms.md", f"# Rooms in {city}")
        files.write("Ünïcødé ✓.txt", "kept")
        checkpoint(1)
    files.write("notes/rooms.md", "# One room", expected=files.version("notes/rooms.md"))
    files.write("draft.md", "soon gone")
    files.remove("draft.md")
    return files.read_text("notes/rooms.md")


def run_workspace(hf: Holdfast) -> None:
    hf.run(golden_workspace, "Oslo", id="golden-workspace")
    with hf._holding.hold("golden-workspace") as log:
        text = log.stow(msgspec.json.encode("Find a room.\n"))
        log.append(MissionSet(text=text, by="ada", diff="-Find two rooms.\n+Find a room.\n"))
    seen = hf.files("golden-workspace").version("notes/rooms.md")
    hf.files("golden-workspace").write("notes/rooms.md", "# No room", expected=seen, by="ada")


def run_plan(hf: Holdfast) -> None:
    hf.run(golden_plan, 2, id="golden-plan")


@external(ttl_s=60)
def golden_prices(share: str) -> dict[str, float]:
    return {share: 12.5}


@external
def golden_shares(owner: str) -> int:
    return 3


@tool(invalidates=[golden_prices, "golden_shares"])
def golden_sell(share: str) -> str:
    return f"sold one of {share}"


@task
def golden_external(share: str) -> float:
    """Asked, answered by what was seen, made untrue, asked again; and what was made of it."""
    prices, shares = golden_prices.reading(share), golden_shares.reading("ada")
    worth = fact("worth", prices.value[share] * shares.value, of=[prices, shares])
    seen = golden_prices(share)
    golden_sell(share)
    return worth + seen[share] + golden_prices(share)[share]


def run_external(hf: Holdfast) -> None:
    hf.run(golden_external, "ACME", id="golden-external")


@task
def golden_engine(city: str) -> str:
    return f"{city}: {ask('Go?', bool, id='go')}"


def run_engine(hf: Holdfast) -> None:
    """A task that was made for a remote engine, and was moved here, there, and here again."""
    given = TaskOptions(id="golden-engine", engine="temporal")
    made = hf._driving.starting(task_spec(golden_engine), ("Oslo",), {}, given)
    with hf._holding.hold(made.task_id) as log:
        made.begin(log)
        log.append(Moved(engine="", by="ada", post="moved-1"))
    try:
        hf.resume(made.task_id)
    except Unanswered:
        hf.answer(made.task_id, True, by="ada")
    with hf._holding.hold(made.task_id) as log:
        log.append(Moved(engine="restate", by="ada"))
        log.append(Moved(engine="", by="ada"))
    hf.resume(made.task_id)


class GoldenOrder(pydantic.BaseModel):
    city: str
    beds: int = 1
    at: datetime | None = None


class GoldenLine(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = {}


@step
def golden_order(order: GoldenOrder, urgent: bool = False) -> GoldenOrder:
    return order


@step
def golden_say(lines: list[GoldenLine], orders: list[GoldenOrder]) -> GoldenLine:
    return GoldenLine(f"line {len(lines)} of {len(orders)}: " + "blah " * 30, ("said",))


golden_crash: list[type[BaseException]] = []


@task
def golden_classes(order: GoldenOrder, turns: int = 9) -> str:
    order = golden_order(order, False)
    lines: list[GoldenLine] = []
    for _ in range(turns):
        lines.append(golden_say(lines, [order]))
    for error in golden_crash:
        raise error
    lines.append(golden_say(lines, [order, golden_order(order)]))
    return lines[-1].text[:12]


def run_classes(hf: Holdfast) -> None:
    """By a version that wrote these classes with tags, to a task that had not ended."""
    golden_crash.append(KeyboardInterrupt)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    with suppress(KeyboardInterrupt):
        hf.run(golden_classes, GoldenOrder(city="Oslo", at=when), 9, id="golden-classes")
    golden_crash.clear()


def run_lists(hf: Holdfast) -> None:
    hf.run(golden_lists, 44, id="golden-lists")


def run_golden(hf: Holdfast) -> None:
    for _ in range(10):
        try:
            hf.run(golden, "Oslo", id="golden", user="ada", session="s-1", labels={"team": "x"})
            return
        except Crash:
            continue
        except InDoubt:
            hf.resolve("golden", "4", happened=False, because="looked", by="a person")
        except Unanswered as waiting:
            if waiting.id == "go":
                hf.answer("golden", "yes" if tries["answer"] else "maybe", by="a person")
                tries["answer"] += 1
        except TaskFailed:
            hf.retry("golden")
    raise AssertionError("it never ended")


def run_control(hf: Holdfast) -> None:
    """Paused while it waits for a yes; cancelled, and undone as far as that works."""
    try:
        hf.run(golden_control, "Oslo", id="golden-control", user="ada")
    except Unanswered as approval:
        hf.pause("golden-control", because="lunch", by="a person")
        hf.answer("golden-control", True, question=approval.id, by="a person")
    try:
        hf.run(golden_control, "Oslo", id="golden-control", user="ada")
    except TaskPaused:
        hf.unpause("golden-control", by="a person")
    try:
        hf.run(golden_control, "Oslo", id="golden-control", user="ada")
    except Unanswered:
        hf.cancel("golden-control", because="rain", by="a person")
    try:
        hf.resume("golden-control")
    except TaskCancelled:
        hf.compensate("golden-control")


PICTURE = Media(kind="image", media_type="image/png", data=b"a picture")


def golden_in_short(messages: Sequence[Message]) -> str:
    return f"{len(messages)} messages about fog"


@task
def golden_talk(city: str) -> str:
    chat = session()
    call = ToolCall("c-1", "forecast", '{"city":"Oslo"}')
    chat.say(assistant("Let me look.", [call]), tool_result("c-1", "fog"))
    chat.say(assistant(f"Fog in {city}."))
    compact(chat, golden_in_short, keep_turns=2)
    return chat.summary


@step
def golden_poison() -> None: ...


@task
def golden_stuck() -> str:
    golden_poison()
    return "well"


NO_ARGUMENTS = "44136fa355b3678a"


def run_stuck(hf: Holdfast) -> None:
    """Its code was another once; then two drivers died during its step, and it was set aside."""
    hf.start(golden_stuck, id="golden-stuck")
    with hf._holding.hold("golden-stuck") as log:
        log.append(Claimed(format=FORMAT, epoch=1, owner="host process 1", process="00000001"))
        record_hindrance(log, "CodeChanged", "step 1 is another one", "host process 1")
        for number in (2, 3):
            log.append(
                Claimed(format=FORMAT, epoch=number, owner="host process 2", process=f"{number:08}")
            )
            log.append(
                Started(path="1", name="golden_poison", args_hash=NO_ARGUMENTS, attempt=number - 1)
            )
            record_death(log, hf._holding)
        log.append(lambda state: set_aside(state, 2))


def run_session(hf: Holdfast) -> None:
    chat = hf.session("golden-session", user="ada", labels={"team": "x"})
    chat.say(system("Be brief."), *(f"Is there fog on day {day}?" for day in range(6)), key="r-1")
    chat.say(user([Text("Ünïcødé ✓"), PICTURE]), key="r-2")
    for pinned in (True, False):
        chat.pin(2, pinned=pinned)
    chat.pin(1)
    chat.run(golden_talk, "Oslo", id="golden-talk")
    chat.end("she has left")


def run_memory(hf: Holdfast) -> None:
    ledger: Ledger[Memories] = Ledger(
        hf.store, memory_stream("golden-memory"), "host process 1", hf._holding.clock,
        new=Memories, advance=remembering.advance, facts=facts_in,
    )  # fmt: skip
    events = (
        MemoryBegan(format=FORMAT, id="golden-memory"),
        Remembered(
            id="m-1", text="Ada dislikes fog", user="ada", session="golden-session",
            task="golden-talk", step="2", labels={"team": "x"}, vector=Raw(b"[0.5,-1.0]"), key="k",
        ),
        Remembered(id="m-2", text="It is foggy in Oslo"),
        Forgotten(id="m-2", because="it has lifted"),
    )  # fmt: skip
    for event in events:
        ledger.write(lambda state, event=event: event)  # type: ignore[misc]


@step
def golden_room(city: str) -> str:
    return f"the {city} Inn"


@tool
def golden_book(room: str, nights: int) -> str:
    return f"booked {room} for {nights}"


@task
def golden_way(city: str) -> str:
    chat = session()
    room = golden_room(city)
    chat.say(assistant(f"It will be {room}."))
    golden_book(room, 1)
    files.write("booked.md", room)
    return golden_book(room, 2)


def run_forks(hf: Holdfast) -> None:
    """Forked after a result that was edited, with what was called reused; and the original put
    back along with its session, and gone on with."""
    chat = hf.session("golden-talk", user="ada")
    chat.say("Book me a room.")
    chat.run(golden_way, "Oslo", id="golden-way")
    hf.fork(
        "golden-way", at=1, results={"1": "the Grand"}, effects="reuse", new_id="golden-fork",
        stubs={"golden_book": "booked nothing"}, by="ada", because="she prefers the Grand",
    )  # fmt: skip
    hf.resume("golden-fork")
    hf.fork("golden-way", at=2, effects="reuse", new_id="golden-again", labels={"try": "2"})
    hf.resume("golden-again")
    hf.rewind("golden-way", to=1, by="ada", because="it is full")
    hf.resume("golden-way")


FORKS = {
    "way.jsonl": ("tasks", "golden-way"),
    "fork.jsonl": ("tasks", "golden-fork"),
    "again.jsonl": ("tasks", "golden-again"),
    "talk.jsonl": ("sessions", "golden-talk"),
    "talk-fork.jsonl": ("sessions", "golden-talk~golden-fork"),
    "talk-again.jsonl": ("sessions", "golden-talk~golden-again"),
}
"""The logs of the forks, and where each belongs in a store."""


def write_forks(folder: Path) -> None:
    """Logs that share their past, and one that was rewound; each with what it comes to."""
    with Holdfast(folder / "w", clock=Clock(tick_s=0.001)) as hf:
        hf._holding.owner = "host process 1"
        run_forks(hf)
        for file, (kind, id) in FORKS.items():
            state = load_any(hf.store, f"{kind}/{id}")
            if not isinstance(state, Memories):
                state.trail = []  # the events, once more
            shown = msgspec.json.format(msgspec.json.encode(state, order="deterministic"), indent=1)
            (folder / file).with_suffix(".json").write_bytes(shown + b"\n")
    for file, (kind, id) in FORKS.items():
        shutil.move(folder / "w" / kind / safe_name(id) / "events.jsonl", folder / file)
    shutil.move(folder / "w/blobs", folder / "blobs")
    shutil.rmtree(folder / "w")


def write_others(folder: Path) -> None:
    """A session and a memory, which have a log each, and what the session comes to."""
    with Holdfast(folder / "w", clock=Clock(tick_s=0.001)) as hf:
        hf._holding.owner = "host process 1"
        run_session(hf)
        run_memory(hf)
        state = load_any(hf.store, "sessions/golden-session")
    shown = msgspec.json.encode(state)
    (folder / "session.json").write_bytes(msgspec.json.format(shown, indent=1) + b"\n")
    for kind, name in (("sessions", "session"), ("memories", "memory")):
        log = folder / "w" / kind / f"golden-{name}" / "events.jsonl"
        log.rename(folder / f"{name}.jsonl")
    shutil.move(folder / "w/blobs", folder / "blobs")
    shutil.rmtree(folder / "w")


def run_values(hf: Holdfast) -> None:
    values = hf.values("golden")
    values.put_many({"room": {"nights": (1, 2)}, "desk": None})
    values.put("large", "fog " * 20_000)
    values.put("soon gone", 7, lifetime_s=0.5)
    values.delete("desk")


def write_values(folder: Path) -> None:
    """A namespace of values, which is a memory with events of its own."""
    with Holdfast(folder / "w", clock=Clock(tick_s=0.001)) as hf:
        hf._holding.owner = "host process 1"
        run_values(hf)
    log = folder / "w/memories" / safe_name("values/golden") / "events.jsonl"
    log.rename(folder / "values.jsonl")
    shutil.move(folder / "w/blobs", folder / "blobs")
    shutil.rmtree(folder / "w")


@task
def golden_queued(n: int) -> int:
    return n


def write_queue(folder: Path) -> None:
    """A task that waited for its time and then in a queue, and the log of the queue's places."""
    with Holdfast(folder / "w", clock=Clock(tick_s=0.001, skips=True)) as hf:
        hf._holding.owner = "host process 1"
        hf.queue(Queue("golden", concurrency=2, rate=Rate(9)))
        options = hf.options(
            id="golden-queued", queue="golden", key="ada", priority=2, delay_s=0.01
        )
        options.start(golden_queued, 7)
        Worker(hf).run_until_idle()
        QueueLog(hf._holding, "golden")._ledger.write(lambda state: QueueTurned())
    for name, log in (("task", "tasks/golden-queued"), ("places", QUEUE_LOG)):
        (folder / "w" / log / "events.jsonl").rename(folder / f"{name}.jsonl")
    shutil.rmtree(folder / "w")


QUEUE_LOG = f"queues/{safe_name('golden/1')}"


@step(limit=Limit("golden", per_minute=6, tokens_per_minute=600, concurrency=1).of(tokens=5))
def golden_look(n: int) -> dict[str, dict[str, int]]:
    return {"usage": {"input_tokens": n}}


@task
def golden_limited() -> int:
    return sum(golden_look(n)["usage"]["input_tokens"] for n in (3, 4))


def write_limit(folder: Path) -> None:
    """A task whose second call waits for a limit, and the log of the limit."""
    clock = Clock(tick_s=0.001)
    with Holdfast(folder / "w", clock=clock) as hf:
        hf._holding.owner = "host process 1"
        hf.start(golden_limited, id="golden-limited")
        Worker(hf, patience_s=0).run_until_idle()
    for name, log in (("task", "tasks/golden-limited"), ("limit", LIMIT_LOG)):
        (folder / "w" / log / "events.jsonl").rename(folder / f"{name}.jsonl")
    shutil.rmtree(folder / "w")


LIMIT_LOG = f"limits/{safe_name('golden/1')}"


@step
def golden_weather(city: str) -> str:
    return f"{city} fog"


@step
def golden_loud(city: str) -> str:
    return f"{golden_weather(city)}!"


@tool
def golden_post(text: str) -> str:
    return "sent"


@step
async def golden_asks(name: str) -> str:
    return f"{name}?"


@task
async def golden_steps(city: str) -> list[str]:
    found = [golden_weather(city), golden_loud(city), golden_post("fog")]
    return [*found, *await gather(golden_asks("a"), golden_asks("b"))]


def run_steps(hf: Holdfast) -> None:
    """Plain steps that are one event, and steps and tools that are two."""
    asyncio.run(hf.arun(golden_steps, "Oslo", id="golden-steps"))


def write(folder: Path, task_id: str, run_it: Callable[[Holdfast], None]) -> None:
    with Holdfast(folder / "w", clock=Clock(tick_s=0.001)) as hf:
        hf._holding.owner = "host process 1"
        run_it(hf)
        state = msgspec.json.encode(hf.task(task_id).state, order="deterministic")
    (folder / "state.json").write_bytes(msgspec.json.format(state, indent=1) + b"\n")
    (folder / "w/tasks" / task_id / "events.jsonl").rename(folder / "events.jsonl")
    if (folder / "w/blobs").exists():
        shutil.move(folder / "w/blobs", folder / "blobs")
    shutil.rmtree(folder / "w")


def main() -> None:
    # A golden log must not depend on where the project was checked out.
    setattr(traceback, "format_exception", lambda error: [f"Traceback: {type(error).__name__}"])
    logs = {
        f"format-{FORMAT}": ("golden", run_golden),
        f"format-{FORMAT}-control": ("golden-control", run_control),
        f"format-{FORMAT}-lists": ("golden-lists", run_lists),
        f"format-{FORMAT}-plan": ("golden-plan", run_plan),
        f"format-{FORMAT}-external": ("golden-external", run_external),
        f"format-{FORMAT}-workspace": ("golden-workspace", run_workspace),
        f"format-{FORMAT}-engine": ("golden-engine", run_engine),
        f"format-{FORMAT}-classes": ("golden-classes", run_classes),
        f"format-{FORMAT}-messages": ("golden-messages", run_messages),
        f"format-{FORMAT}-stuck": ("golden-stuck", run_stuck),
        f"format-{NEWEST_FORMAT}-steps": ("golden-steps", run_steps),
    }
    missing = {name: log for name, log in logs.items() if not (FOLDER / name).exists()}
    others = FOLDER / f"format-{FORMAT}-sessions"
    forks = FOLDER / f"format-{FORK_FORMAT}-forks"
    values = FOLDER / f"format-{FORMAT}-values"
    queue = FOLDER / f"format-{FORMAT}-queue"
    limit = FOLDER / f"format-{FORMAT}-limit"
    rest = (others, forks, values, queue, limit)
    if not missing and all(each.exists() for each in rest):
        every = ", ".join((*logs, *(each.name for each in rest)))
        sys.exit(f"{every} exist, and what is golden stays as it is")
    for name, (task_id, run_it) in missing.items():
        write(FOLDER / name, task_id, run_it)
    if not others.exists():
        write_others(others)
    if not forks.exists():
        write_forks(forks)
    if not values.exists():
        write_values(values)
    if not queue.exists():
        write_queue(queue)
    if not limit.exists():
        write_limit(limit)


if __name__ == "__main__":
    main()
