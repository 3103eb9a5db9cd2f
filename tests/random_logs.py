"""Random logs that make sense: any event that may come next, with values small and large."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Failure, dump_event
from holdfast.core.fold import advance
from holdfast.core.state import State
from holdfast.log import chain

AT = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = "tasks/t-1"


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


class Story:
    """Makes events one after the other, each fit for the state before it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = State()
        self.events: list[AnyEvent] = []
        self.add(
            e.TaskCreated(
                format=1, id="t-1", task="job", args=raw({"n": "x" * 300}), args_hash="h",
                user="ada", labels={"a": "b"}, timeout_s=60.0,
            )
        )  # fmt: skip

    def add(self, event: AnyEvent) -> None:
        seq = len(self.events) + 1
        late = self.random.random() < 0.02  # the clock was set back
        at = AT + timedelta(seconds=seq - (9 if late else 0), microseconds=seq)
        placed = msgspec.structs.replace(event, seq=seq, at=at)
        # As it will be read: what was written and what is in memory are the same.
        placed = e.load_event(dump_event(placed))
        advance(self.state, placed)
        self.events.append(placed)

    def value(self) -> Raw:
        kinds: list[Any] = [7, "short", {"a": [1, None]}, "x" * 300, ["long"] * 90]
        kinds += [{"$at": [1, "args"]}, None]
        return raw(self.random.choice(kinds))

    def path(self) -> str:
        scopes = ["", *(path for path in list(self.state.calls)[-5:] if path.count(".") < 3)]
        scope = self.random.choice(scopes)
        checkpoints = self.state.checkpoints
        top = f"@{checkpoints}." if checkpoints else ""
        return f"{scope}.{len(self.events)}" if scope else f"{top}{len(self.events)}"

    def calls(self, *statuses: str) -> list[str]:
        return [path for path, call in self.state.calls.items() if call.status in statuses]

    def go_on(self, count: int) -> list[AnyEvent]:
        makers = [getattr(type(self), name) for name in dir(type(self)) if name.startswith("_to_")]
        while len(self.events) < count:
            event = self.random.choice(makers)(self)
            if event is not None:
                self.add(event)
        return self.events

    def lines(self) -> list[bytes]:
        total, lines = chain.ROOT, []
        for event in self.events:
            line, total = chain.seal(total, dump_event(event))
            lines.append(line)
        return lines

    def _to_start(self) -> AnyEvent:
        kind: Any = self.random.choice(("step", "tool"))
        given: dict[str, Any] = {"external": True} if kind == "step" else {"invalidates": ("look",)}
        extra = given if self.random.random() < 0.5 else {}
        return e.Started(
            path=self.path(), name=self.random.choice(("look", "book")), kind=kind,
            args=self.value(), args_hash=self.random.choice("ab"), key="k", undo=kind == "tool",
            **extra,
        )  # fmt: skip

    def _to_step(self) -> AnyEvent | None:
        return e.Stepped(
            path=self.path(), began=AT + timedelta(seconds=len(self.events)), name="look",
            args=self.value(), args_hash="a", result=self.value(),
        )  # fmt: skip

    def _to_complete(self) -> AnyEvent | None:
        running = self.calls("running")
        tried = [path for path in running if self.state.calls[path].attempts]
        if not tried:
            return None
        return e.Completed(path=self.random.choice(tried), result=self.value())

    def _to_fail_once(self) -> AnyEvent | None:
        tried = [path for path in self.calls("running") if self.state.calls[path].attempts]
        if not tried:
            return None
        failure = Failure("ValueError", "no", "trace")
        retry_at = self.random.choice((None, AT))
        return e.AttemptFailed(
            path=self.random.choice(tried), attempt=1, failure=failure, retry_at=retry_at,
            parts=self.random.choice((UNSET, self.value())),
        )  # fmt: skip

    def _to_try_again(self) -> AnyEvent | None:
        paths = [p for p in self.calls("backing_off", "retrying") if self.state.calls[p].attempts]
        return e.Started(path=self.random.choice(paths), attempt=2) if paths else None

    def _to_fail(self) -> AnyEvent | None:
        paths = self.calls("backing_off")
        return e.Failed(path=self.random.choice(paths)) if paths else None

    def _to_doubt(self) -> AnyEvent | None:
        paths = self.calls("running")
        return e.Doubted(path=self.random.choice(paths), why="it was cut off") if paths else None

    def _to_settle(self) -> AnyEvent | None:
        paths = self.calls("in_doubt")
        if not paths:
            return None
        verdict: Any = self.random.choice(("happened", "did_not_happen"))
        result = self.value() if verdict == "happened" else UNSET
        post = self.random.choice(("", f"p-{len(self.events)}"))
        path = self.random.choice(paths)
        return e.Settled(path=path, verdict=verdict, by="ada", result=result, post=post)

    def _to_decide(self) -> AnyEvent:
        return e.Decided(path=self.path(), name="d", choice=self.value(), options=self.value())

    def _to_note(self) -> AnyEvent:
        return e.Noted(scope="", text="noted", mark=f"m-{len(self.events)}", data=self.value())

    def _to_observe(self) -> AnyEvent:
        return e.Observed(path=self.path(), name="now", value=self.value())

    def _to_derive(self) -> AnyEvent:
        return e.Derived(path=self.path(), name="f", value=self.value(), as_of=AT)

    def _to_reuse(self) -> AnyEvent | None:
        seen = list(self.state.reads.values())
        if not seen:
            return None
        return e.Reused(path=self.path(), name="look", args_hash="a", of=self.random.choice(seen))

    def _to_ask(self) -> AnyEvent:
        return e.QuestionAsked(
            path=self.path(), id="q", question="Really?", args=self.value(), args_hash="h",
            default=self.value(), expects="x",
        )  # fmt: skip

    def _to_answer(self) -> AnyEvent | None:
        paths = [p for p in self.calls("waiting") if self.state.calls[p].kind == "question"]
        if not paths:
            return None
        return e.QuestionAnswered(path=self.random.choice(paths), answer=self.value(), by="ada")

    def _to_sleep(self) -> AnyEvent:
        return e.TimerSet(path=self.path(), name="s", args=self.value(), args_hash="h", until=AT)

    def _to_plan(self) -> AnyEvent:
        return e.Planned(items=("look", "book"), mark=f"m-{len(self.events)}")

    def _to_progress(self) -> AnyEvent:
        return e.Progressed(scope=self.random.choice(("", "1")), number=len(self.events), done=1.5)

    def _to_keep_a_file(self) -> AnyEvent:
        return e.FileKept(name=self.random.choice("ab"), file=self.value(), mark="m")

    def _to_remove_a_file(self) -> AnyEvent | None:
        names = list(self.state.files)
        return e.FileRemoved(name=self.random.choice(names)) if names else None

    def _to_grow_a_list(self) -> AnyEvent:
        number = self.random.randrange(6)  # some come again, and go to the end
        items = raw(["x" * 300] if number % 2 else ["x"])
        newest = next(reversed(self.state.lists.values()), None)
        may_go_on = newest is not None and newest.length <= number
        base = self.random.choice((None, "")) if may_go_on else ""
        return e.ListGrew(digest=f"{number:032}", length=number + 1, base=base, items=items)

    def _to_copy_a_result(self) -> AnyEvent | None:
        done = [c for c in self.state.calls.values() if c.ended_seq and isinstance(c.result, Raw)]
        if not done:
            return None
        call = self.random.choice(done)
        copied = (((0,), call.path, call.ended_seq),)
        digest = f"c{len(self.events):031}"
        return e.ListGrew(digest=digest, length=1, base="", items=raw([None]), copied=copied)

    def _to_checkpoint(self) -> AnyEvent | None:
        if self.random.random() < 0.5:
            return None
        number = self.state.checkpoints + 1
        if number > 1 and self.random.random() < 0.6:
            return e.Checkpointed(number=number, change=self.value())
        is_open = [c for c in self.state.calls.values() if c.status == "running"]
        carried = e.Carried(
            status=self.state.status,
            plan=self.state.plan,
            posts=self.state.posts[-2:],
            open=tuple(raw(call) for call in is_open),
            files=raw(list(self.state.files.values())),
        )
        return e.Checkpointed(number=number, state=self.value(), carried=carried)

    def _to_claim(self) -> AnyEvent:
        return e.Claimed(epoch=len(self.events), owner="me", engine="local", format=1)

    def _to_park(self) -> AnyEvent:
        return e.Parked(until=AT)

    def _to_end(self) -> AnyEvent | None:
        kind = self.random.randrange(8)
        failed = self.calls("failed")[:2]
        if kind == 0:
            return e.TaskErrored(failure=Failure("E", "m", "t"), causes=tuple(failed))
        if kind == 1:
            return e.Compensating(ending="failed", failure=Failure("E", "m", "t"))
        if kind == 2 and self.state.status == "failed":
            return e.TaskRetried()
        return e.TaskCompleted(result=self.value()) if kind == 3 else None
