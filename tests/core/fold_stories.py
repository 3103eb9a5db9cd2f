"""What each event does to the state, recorded: `python -m tests.core.fold_stories` writes it anew.

The stories are random and of every kind of event. A line is an event, and the fields of the state
that it changed. Write them anew only when the fold is meant to come to something else than before,
and look at the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.fold import advance
from holdfast.core.fold.history import effective
from holdfast.core.fold.task import carried
from holdfast.core.state import UNDO, State
from tests.random_logs import AT, Story, raw

RECORDED = Path(__file__).with_suffix(".jsonl")
_SEEDS, _EVENTS = range(8), 260


class Everything(Story):
    """A story in which anything happens that an event can tell."""

    def add(self, event: AnyEvent) -> None:
        super().add(event)
        if self.random.random() < 0.1:  # at the very same time
            at = self.events[-1].at
            again = msgspec.structs.replace(e.Patched(mark="x"), seq=len(self.events) + 1, at=at)
            advance(self.state, again)
            self.events.append(again)

    def value(self) -> Raw:
        return raw(self.random.choice([7, "short", {"a": [1, None]}, None, ["x", "y"]]))

    def path(self) -> str:
        if self.random.random() < 0.1:
            return f"{UNDO}.{len(self.events)}"
        return super().path()

    def one_of(self, *statuses: str, kind: str = "") -> str:
        """The path of a call, or nothing."""
        paths = [p for p in self.calls(*statuses) if self.state.calls[p].kind.startswith(kind)]
        return self.random.choice(paths) if paths else ""

    def post(self) -> str:
        return self.random.choice(("", f"p-{len(self.events)}"))

    def rarely(self) -> bool:
        return self.random.random() < 0.1

    def _to_read(self) -> AnyEvent:
        return e.Started(path=self.path(), name="look", args_hash="a", external=True)

    def _to_have_read(self) -> AnyEvent | None:
        reading = [c.path for c in self.state.calls.values() if c.reads and c.status == "running"]
        if not reading:
            return None
        return e.Completed(path=self.random.choice(reading), result=self.value())

    def _to_read_it_again(self) -> AnyEvent | None:
        return self._to_reuse()

    def _to_start_inside(self) -> AnyEvent | None:
        outer = self.one_of("running", "backing_off", kind="step")
        if not outer or outer.count(".") > 3:
            return None
        return e.Started(path=f"{outer}.{len(self.events)}", name="inner", args_hash="a")

    def _to_fail_inside(self) -> AnyEvent | None:
        inner = [p for p in self.calls("running", "backing_off") if self._is_inside(p)]
        if not inner:
            return None
        path = self.random.choice(inner)
        if self.state.calls[path].status == "backing_off":
            return e.Failed(path=path)
        return e.AttemptFailed(path=path, attempt=1, failure=Failure("E", "inside"))

    def _to_try_around(self) -> AnyEvent | None:
        failed = {p.rpartition(".")[0] for p in self.calls("failed") if self._is_inside(p)}
        outer = [p for p in failed if self.state.calls[p].status in ("running", "backing_off")]
        if not outer:
            return None
        path = self.random.choice(outer)
        if self.state.calls[path].status == "backing_off":
            return e.Started(path=path, attempt=2)
        return e.AttemptFailed(path=path, attempt=1, failure=Failure("E", "around"), retry_at=AT)

    def _is_inside(self, path: str) -> bool:
        outer = self.state.calls.get(path.rpartition(".")[0])
        return bool(self.state.calls[path].attempts and outer and outer.attempts)

    def _to_fail_a_writer(self) -> AnyEvent | None:
        backing_off = self.calls("backing_off")
        paths = [path for path in backing_off if self.state.calls[path].invalidates]
        return e.Failed(path=self.random.choice(paths)) if paths else None

    def _to_fail_in_doubt(self) -> AnyEvent | None:
        path = self.one_of("running", kind="tool")
        failure = Failure("Timeout", "no reply", timed_out=True)
        if not path or not self.state.calls[path].attempts:
            return None
        retry_at = self.random.choice((None, AT))
        return e.AttemptFailed(path=path, attempt=1, failure=failure, doubt=True, retry_at=retry_at)

    def _to_settle_by_check(self) -> AnyEvent | None:
        path = self.one_of("in_doubt", "backing_off", kind="tool")
        if not path:
            return None
        verdict: Any = self.random.choice(("happened", "did_not_happen"))
        return e.Settled(path=path, verdict=verdict, by="check", because="I looked")

    def _to_wake(self) -> AnyEvent | None:
        path = self.one_of("waiting", kind="sleep")
        return e.Woke(path=path) if path else None

    def _to_ask_whether(self) -> AnyEvent | None:
        path = self.one_of("running", kind="tool")
        if not path:
            return None
        return e.QuestionAsked(
            path=f"{path}?{len(self.events)}", call=path, id="q", question="May I?",
            args_hash="h", expects="bool", until=AT,
        )  # fmt: skip

    def _to_ask_until(self) -> AnyEvent:
        until = AT + timedelta(seconds=len(self.events) + 50)
        return e.QuestionAsked(
            path=self.path(), id="q", question="?", args_hash="h", expects="x", until=until
        )

    def _to_answer_by_post(self) -> AnyEvent | None:
        path = self.one_of("waiting", kind="question") or self.one_of("waiting", kind="approval")
        if not path:
            return None
        return e.QuestionAnswered(path=path, answer=self.value(), by="bob", post=self.post())

    def _to_refuse_an_answer(self) -> AnyEvent | None:
        path = self.one_of("completed", kind="question")
        return e.AnswerRefused(path=path, why="no number") if path else None

    def _to_expire(self) -> AnyEvent | None:
        path = self.one_of("waiting", kind="question")
        return e.QuestionExpired(path=path) if path and self.random.random() < 0.4 else None

    def _to_start_a_child(self) -> AnyEvent:
        on_cancel: Any = self.random.choice(("cancel", "leave"))
        path = self.path()
        return e.ChildStarted(
            path=path, id=f"t-1.{path}", name="help", args=self.value(), args_hash="h",
            on_cancel=on_cancel,
        )  # fmt: skip

    def _to_make_a_child(self) -> AnyEvent | None:
        path = self.one_of("running", kind="child")
        return e.ChildMade(path=path) if path else None

    def _to_end_a_child(self) -> AnyEvent | None:
        path = self.one_of("running", "waiting", kind="child")
        if not path:
            return None
        if self.random.random() < 0.5:
            return e.ChildEnded(path=path, failure=Failure("E", "m"), post=self.post())
        return e.ChildEnded(path=path, result=self.value(), post=self.post())

    def _to_await_a_message(self) -> AnyEvent:
        return e.MessageAwaited(
            path=self.path(), name=self.random.choice("xy"), args_hash="h", expects="any",
            until=self.random.choice((None, AT)),
            default=self.random.choice((UNSET, raw("none came"))),
        )  # fmt: skip

    def _to_send_a_message(self) -> AnyEvent:
        name = self.random.choice("xy")
        return e.MessageSent(name=name, value=self.value(), by="ada", post=self.post())

    def _to_refuse_a_message(self) -> AnyEvent | None:
        path = self.one_of("completed", kind="message")
        if not path or not self.state.calls[path].ended_seq or self.rarely():
            return None
        return e.MessageRefused(path=path, why="no number")

    def _to_miss_a_message(self) -> AnyEvent | None:
        path = self.one_of("waiting", kind="message")
        return e.MessageExpired(path=path) if path and self.random.random() < 0.4 else None

    def _to_move(self) -> AnyEvent | None:
        forced = self.random.random() < 0.5
        engine = self.random.choice(("", "temporal"))
        event = e.Moved(engine=engine, by="ada", forced=forced, post=self.post())
        return event if self.random.random() < 0.5 else None

    def _to_pause(self) -> AnyEvent | None:
        event = e.PauseRequested(by="ada", because="lunch", post=self.post())
        return event if self.random.random() < 0.5 else None

    def _to_die(self) -> AnyEvent | None:
        path = self.one_of("running", kind=self.random.choice(("step", "tool")))
        if self.random.random() < 0.5:
            return e.DriverDied(owner="me", path=path, name="x", deaths=2, beside=("1",))
        return None

    def _to_be_set_aside(self) -> AnyEvent | None:
        event = e.SetAside(owner="me", path="1", name="x", deaths=5, post=self.post())
        return event if self.rarely() else None

    def _to_be_hindered(self) -> AnyEvent | None:
        error = self.random.choice(("CodeChanged", "CodeMissing"))
        return e.Hindered(error=error, why="w", by="me") if self.random.random() < 0.3 else None

    def _to_continue(self) -> AnyEvent:
        return e.TaskContinued(by="ada", post=self.post())

    def _to_cancel(self) -> AnyEvent | None:
        event = e.CancelRequested(by="ada", because="rain", post=self.post())
        return event if self.random.random() < 0.4 else None

    def _to_stop(self) -> AnyEvent | None:
        because = self.random.choice(("", "no money"))
        return e.TaskStopped(because=because) if self.random.random() < 0.3 else None

    def _to_fail_for_causes(self) -> AnyEvent | None:
        failed = self.calls("failed")
        if not failed:
            return None
        some = tuple(self.random.sample(failed, min(2, len(failed))))
        batches = tuple(f"{path.rpartition('.')[0]}.*" for path in some if "." in path)
        return e.TaskErrored(failure=Failure("E", "m"), causes=(*some, *batches))

    def _to_retry(self) -> AnyEvent | None:
        return e.TaskRetried(by="ada") if self.state.status == "failed" else None

    def _to_undo(self) -> AnyEvent | None:
        if self.random.random() < 0.6:
            return None
        return e.Compensating(ending="cancelled", causes=tuple(self.calls("failed")[:1]))

    def _to_plan_by_hand(self) -> AnyEvent:
        items = (e.PlanItem(text="look", id="a"), "book")
        return e.Planned(items=items, by="ada", post=self.post(), mark=f"m-{len(self.events)}")

    def _to_progress_a_plan(self) -> AnyEvent | None:
        if not self.state.plan:
            return None
        item = self.random.choice(self.state.plan)
        mark = f"m-{len(self.events)}"
        return e.PlanProgressed(id=item.id, status="done", because="so", mark=mark)

    def _to_decide_again(self) -> AnyEvent:
        of = self.state.decisions[-1].path if self.state.decisions else ""
        return e.Decided(
            path=self.path(), name="d", choice=self.value(), because="b", supersedes=of
        )

    def _to_derive_from_reads(self) -> AnyEvent:
        sources = tuple(self.state.reads.values())[:2]
        return e.Derived(path=self.path(), name="f", value=raw(1), as_of=AT, sources=sources)

    def _to_patch(self) -> AnyEvent:
        return e.Patched(mark=f"p-{len(self.events)}")

    def _to_set_a_mission(self) -> AnyEvent:
        return e.MissionSet(text=self.value(), by="ada", post=self.post())

    def _to_keep_an_edit(self) -> AnyEvent:
        return e.FileKept(name="c", file=self.value(), path="1", by="ada", post=self.post())

    def _to_progress_far(self) -> AnyEvent:
        return e.Progressed(scope="", number=3, text="half", done=1.0, total=2.0)

    def _to_adopt(self) -> AnyEvent:
        kind: Any = self.random.choice(("step", "tool", "question", "approval", "reading", "child"))
        how: Any = self.random.choice(("reused", "stub", "recorded"))
        failure = self.random.choice((None, Failure("E", "m")))
        return e.Adopted(
            path=self.path(), name="book", kind=kind, how=how, args=self.value(), args_hash="h",
            result=UNSET if failure else self.value(), failure=failure,
            of=self.random.choice(("", "t-0")), of_path="4", child="t-0.4", key="k", why="w",
            by="ada", undo=self.random.random() < 0.3,
        )  # fmt: skip

    def _to_edit(self) -> AnyEvent | None:
        path = self.one_of("completed", "failed", kind="step")
        if not path:
            return None
        failure = self.random.choice((None, Failure("E", "m")))
        return e.Adopted(
            path=path, name="look", kind="step", how="edited", result=self.value(),
            failure=failure, by="ada",
        )  # fmt: skip

    def _to_checkpoint(self) -> AnyEvent | None:
        if self.random.random() > 0.4:
            return None
        number = self.state.checkpoints + 1
        if number > 1 and self.random.random() < 0.5:
            return e.Checkpointed(number=number, change=self.value(), version=2)
        stowed = self.random.choice((Raw, lambda _: raw({"$blob": "x"})))
        return e.Checkpointed(
            number=number, state=self.value(), version=3, carried=carried(self.state, stowed)
        )

    def _to_rewind(self) -> AnyEvent | None:
        if self.random.random() > 0.5 or len(self.events) < 20:
            return None
        past = effective(self.events, len(self.events))
        number, seq = self.state.rewinds + 1, len(self.events)
        return e.Rewound(
            to=self.random.choice(past[-len(past) // 4 :]).seq, number=number, epoch=seq,
            claims=self.state.claims, posts=self.state.posts, by="ada",
            because=self.random.choice(("", "wrong")),
            effects=self.random.choice(("live", "reuse", "stub")),
            sessions=self.random.choice(({}, {"s-1": 4})),
        )  # fmt: skip

    def _to_fork(self) -> AnyEvent | None:
        if self.random.random() > 0.2 or self.state.fork is not None:
            return None
        fork = e.Fork(of="t-1", seq=len(self.events), sum="s", effects="stub")
        return e.TaskCreated(
            format=2, id="t-2", task="job", args=raw({}), args_hash="h2", session="s-1",
            parent="t-9", parent_path="4", engine="restate", version=2, fork=fork,
        )  # fmt: skip


def in_a_queue() -> list[AnyEvent]:
    """The story of a task that waits for its time, then in a queue, twice, and is forked."""
    ticket = e.QueueTicket("reports", 7, "ada", priority=2, ahead_s=120.0)
    created = e.TaskCreated(
        format=1, id="t-1", task="job", args=raw({}), args_hash="h", ticket=ticket,
        not_before=AT + timedelta(seconds=1),
    )  # fmt: skip
    fork = e.Fork(of="t-1", seq=7, sum="s")
    told: list[AnyEvent] = [
        created,
        e.Queued(),
        e.Claimed(format=1, epoch=1, owner="w"),
        e.Parked(until=AT + timedelta(seconds=9), why="waits"),
        e.Queued(ticket=e.QueueTicket("reports", 8, "ada")),
        e.PauseRequested(by="ada"),
        e.TaskContinued(by="ada"),
        e.TaskCreated(format=2, id="t-2", task="job", args=raw({}), args_hash="h", fork=fork),
    ]
    return [
        msgspec.structs.replace(event, seq=seq, at=AT + timedelta(seconds=seq))
        for seq, event in enumerate(told, 1)
    ]


def told(events: list[AnyEvent]) -> Iterator[dict[str, Any]]:
    """The events one by one, each with the fields of the state that it changed."""
    state = State()
    before = shown_state(state)
    for event in events:
        advance(state, event)
        after = shown_state(state)
        yield {"event": event, "changed": _changes(before, after)}
        before = after


def shown_state(state: State) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(state, order="deterministic"))
    shown["trail"] = len(state.trail)
    # Their order counts: the newest list is the one that the next goes on from.
    shown["order of lists"] = list(state.lists)
    return shown


def _changes(before: Any, after: Any) -> Any:
    if isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        return {"+": after[len(before) :]}
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    changes = {
        key: _changes(before.get(key), value)
        for key, value in after.items()
        if key not in before or before[key] != value
    }
    return changes | {f"-{key}": True for key in before.keys() - after.keys()}


def record() -> None:
    """Write what each event does now."""
    with RECORDED.open("wb") as out:
        for seed in _SEEDS:
            for line in told(Everything(seed).go_on(_EVENTS)):
                out.write(msgspec.json.encode(line, order="deterministic") + b"\n")
        for line in told(in_a_queue()):
            out.write(msgspec.json.encode(line, order="deterministic") + b"\n")


if __name__ == "__main__":
    record()
