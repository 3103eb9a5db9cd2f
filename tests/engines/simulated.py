"""An engine of one thread, in which everything that can go wrong does, at random but repeatably.

It keeps of each task what a real one would: what was asked for, and what came, in the lumps in
which the function saw it. At any moment it forgets the function and runs it again from its top, or
loses what came of the last lump, as when a worker dies. It insists on being asked for the same.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast import Holdfast
from holdfast.core.journal import Asked
from holdfast.core.state import FINISHED, State
from holdfast.engines.port import Driven, Job
from holdfast.engines.remote.attempt import attempt, settle
from holdfast.engines.remote.carrier import Lost, Pending, Waits
from holdfast.engines.remote.course import RunEnd, drive
from holdfast.engines.remote.host import Host
from holdfast.engines.routing import CANCEL
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of
from holdfast.testing import Clock


class OtherwiseAsked(AssertionError):
    """A function asked for something else when it ran again."""


class Thing:
    """What was asked for, as one run of the function knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.said: Any = None
        self.has_come = False
        self.is_given_up = False

    def done(self) -> bool:
        return self.has_come

    def result(self) -> Waits | Lost | None:
        found: Waits | Lost | None = self.said
        return found

    def has_ended(self) -> bool:
        return bool(self.said)

    def give_up(self) -> None:
        self.is_given_up = True


class _News:
    def __await__(self) -> Any:
        yield


class Carrier:
    """One run of the function from its top."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.things: list[Thing] = []
        self.asked: list[tuple[Any, ...]] = []
        self._messages: list[str] = []
        self._at = flow.began_at

    def _ask(self, *what: Any) -> Thing:
        number = len(self.asked)
        self.asked.append(what)
        known = self._flow.asked
        if number < len(known) and known[number][:2] != what[:2]:
            raise OtherwiseAsked(f"{number}: {known[number][:2]} before, {what[:2]} now")
        thing = Thing(number)
        self.things.append(thing)
        return thing

    def call(self, asked: Asked, data: bytes) -> Thing:
        return self._ask("call", asked.path, asked.spec, data)

    def settle(self) -> Thing:
        return self._ask("settle", "")

    def sleep(self, until: datetime) -> Thing:
        return self._ask("sleep", "", until)

    def start_child(self, id: str, task: str) -> Thing:
        return self._ask("child", id)

    def is_full(self) -> bool:
        return bool(self._flow.most) and len(self.asked) >= self._flow.most

    def now(self) -> datetime:
        return self._at

    def messages(self) -> Sequence[str]:
        messages, self._messages = self._messages, []
        return messages

    async def first(self, pendings: Sequence[Pending]) -> None:
        while not self._messages and not any(each.done() for each in pendings):
            await _News()

    def take(self, lump: Sequence[tuple[Any, ...]], at: datetime) -> None:
        self._at = at
        for what, *rest in lump:
            if what == "message":
                self._messages.append(rest[0])
            else:
                thing = self.things[rest[0]]
                thing.said, thing.has_come = rest[1], True


class Flow:
    """A task, as the engine knows it."""

    def __init__(self, engine: Simulated, job: Job, most: int) -> None:
        self.engine, self.id, self.most = engine, job.id, most
        self.begin(job.seq)

    def begin(self, seq: int) -> None:
        self.seq = seq
        self.began_at = self.engine.clock()
        self.asked: list[tuple[Any, ...]] = []
        self.lumps: list[tuple[list[tuple[Any, ...]], datetime]] = []
        self.coming: list[tuple[Any, ...]] = []
        self.open: set[int] = set()
        self.given_up: set[int] = set()
        self.carrier: Carrier | None = None
        self.course: Coroutine[Any, Any, RunEnd] | None = None
        self.has_begun = False

    # The function

    def forget(self) -> None:
        """What is in memory is gone."""
        course, self.course, self.carrier = self.course, None, None
        if course is not None:
            course.close()

    def think(self, *, dies: bool = False) -> RunEnd | None:
        """Let the function go on with what has come; if the worker dies, for nothing."""
        end = self._caught_up()
        assert end is None, f"{self.id} ended when it ran again, and not before"
        lump, at = list(self.coming), self.engine.clock()
        end = self._step(lump, at) if self.has_begun else self._step(None, at)
        carrier = self.carrier
        assert carrier is not None
        if dies:
            self.forget()
            return None
        if self.has_begun:
            self.lumps.append((lump, at))
            del self.coming[: len(lump)]
        self.has_begun = True
        for number in range(len(self.asked), len(carrier.asked)):
            self.open.add(number)
            if carrier.asked[number][0] == "child":
                self.engine.start_child(carrier.asked[number][1])
        self.asked = list(carrier.asked)
        self.given_up = {thing.number for thing in carrier.things if thing.is_given_up}
        return end

    def _caught_up(self) -> RunEnd | None:
        if self.course is not None or not self.has_begun:
            return None
        end = self._step(None, self.began_at)
        for lump, at in self.lumps:
            assert end is None, f"{self.id} ended too early when it ran again"
            end = self._step(lump, at)
        carrier = self.carrier
        assert carrier is not None
        if len(carrier.asked) != len(self.asked):
            before = [each[:2] for each in self.asked]
            now = [each[:2] for each in carrier.asked]
            raise OtherwiseAsked(f"{before} before, {now} now")
        return end

    def _step(self, lump: Sequence[tuple[Any, ...]] | None, at: datetime) -> RunEnd | None:
        if self.course is None:
            self.carrier = Carrier(self)
            self.course = drive(self.engine.host, self.carrier, self.id, self.seq)
        assert self.carrier is not None
        if lump is not None:
            self.carrier.take(lump, at)
        try:
            self.course.send(None)
        except StopIteration as ended:
            self.course = None
            found: RunEnd = ended.value
            return found
        return None

    # What comes

    def make(self, number: int) -> None:
        """Do what was asked for, whether or not the engine hears of it."""
        what, *rest = self.asked[number]
        said: Any = None
        if what == "call":
            path, spec, data = rest
            said = attempt(self.engine.host, self.id, path, spec, data)
        elif what == "settle":
            said = settle(self.engine.host, self.id)
        elif what == "sleep":
            self.engine.clock.now = max(self.engine.clock.now, rest[1])
        if isinstance(said, Waits) and self._is_backing_off(number) and number not in self.given_up:
            assert said.until is not None
            self.engine.clock.now = max(self.engine.clock.now, said.until)
            return self.make(number)  # as Temporal does: attempts are its own
        self.coming.append(("come", number, said))
        self.open.discard(number)
        return None

    def _is_backing_off(self, number: int) -> bool:
        if self.engine.lets_back_off or self.asked[number][0] != "call":
            return False
        call = self.engine.state(self.id).calls.get(self.asked[number][1])
        return call is not None and call.status == "backing_off"


class Simulated:
    """The engine. `seed` says what happens."""

    name = "simulated"

    def __init__(self, seed: int, most: int = 0) -> None:
        self.random = random.Random(seed)
        self.clock = Clock(datetime(2030, 1, 1, tzinfo=UTC), tick_s=0.000001)
        self.most = most
        self.lets_back_off = bool(self.random.randrange(2))
        self.flows: dict[str, Flow] = {}
        self.hf: Holdfast
        self.host: Host
        self.is_deaf = False
        self.runs = 0
        """How often a task began anew."""

    def open(self) -> Holdfast:
        self.hf = Holdfast("memory://", engine=self, clock=self.clock)
        # Who says something does not wait until it was heard: nothing happens meanwhile.
        poke = self.hf._holding.poke
        self.hf._holding.poke = lambda state, name: bool(poke and poke(state, name)) and False
        self.host = Host(self.hf._driving, self.name, linger_s=3600)
        return self.hf

    def close(self) -> None: ...

    def shut(self) -> None:
        for flow in self.flows.values():
            flow.forget()
        self.host.close()

    def start(self, job: Job) -> None:
        if job.id not in self.flows:
            self.flows[job.id] = Flow(self, job, self.most)

    def tell(self, job: Job, message: str) -> None:
        flow = self.flows.get(job.id)
        if flow is not None and not self.is_deaf:
            flow.coming.append(("message", message))

    def cancel(self, job: Job) -> None:
        self.tell(job, CANCEL)

    def query(self, job: Job) -> Driven | None:
        return Driven(job.id, "running", self.name) if job.id in self.flows else None

    def stop(self, job: Job) -> None:
        self.flows.pop(job.id, None)

    def worker(self, hf: Any, *, concurrency: int = 16, say: Any = None) -> Any:
        raise NotImplementedError

    def state(self, id: str) -> State:
        return load(self.hf.store, id, missing_ok=True)

    # Time

    def die(self) -> None:
        """The worker is gone, and so is all it had in memory."""
        for flow in self.flows.values():
            flow.forget()
        self.host.close()
        self.host = Host(self.hf._driving, self.name, linger_s=3600)

    def turn(self) -> bool:
        """Let one thing happen; False if nothing can."""
        moves: list[Any] = []
        for flow in list(self.flows.values()):
            if flow.coming or not flow.has_begun:
                moves += [(self._think, flow, False)] * 4 + [(self._think, flow, True)]
            for number in flow.open:
                what = flow.asked[number][0]
                if what == "child":
                    if flow.asked[number][1] not in self.flows:
                        moves.append((self._child_ended, flow, number))
                else:
                    moves += [(self._make, flow, number)] * 3
                    if what in ("call", "settle"):
                        moves += [(self._make_twice, flow, number), (self._lose, flow, number)]
        if not moves:
            return False
        if not self.random.randrange(8):
            flow = self.random.choice(list(self.flows.values()))
            flow.forget()
        if not self.random.randrange(25):
            self.die()
        act, flow, how = self.random.choice(moves)
        act(flow, how)
        return True

    def _think(self, flow: Flow, dies: bool) -> None:
        end = flow.think(dies=dies)
        if end is None:
            return
        flow.forget()
        if end.how == "again":
            self.runs += 1
            told = flow.coming
            flow.begin(end.seq)
            flow.coming = [each for each in told if each[0] == "message"]
        else:
            del self.flows[flow.id]

    def _make(self, flow: Flow, number: int) -> None:
        flow.make(number)

    def _make_twice(self, flow: Flow, number: int) -> None:
        flow.make(number)
        coming = list(flow.coming)
        flow.make(number)
        flow.coming = coming

    def _lose(self, flow: Flow, number: int) -> None:
        if self.random.randrange(2):
            flow.make(number)
            flow.coming.pop()
        flow.coming.append(("come", number, Lost()))
        flow.open.discard(number)

    def start_child(self, id: str) -> None:
        if id not in self.flows and self.state(id).status not in FINISHED:
            self.flows[id] = Flow(self, Job(id, "", 1), self.most)

    def _child_ended(self, flow: Flow, number: int) -> None:
        flow.coming.append(("come", number, True))
        flow.open.discard(number)

    def sweep(self) -> bool:
        """Tell of what is still in the inboxes."""
        told = False
        for flow in self.flows.values():
            for post in inbox_of(self.hf.store, [stream_of(flow.id)]):
                name = CANCEL if post.name.partition("-")[0] == CANCEL else post.name
                flow.coming.append(("message", name))
                told = True
        return told
