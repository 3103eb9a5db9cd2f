"""A fleet under fire: real worker processes, a real store, and faults by a seed.

`Fleet` keeps workers running, as a supervisor would: one that was killed, or that a poisoned task
ended, is started again. One that ends in any other way gave up, and that is what a test looks for.

    python -m tests.crash.chaos sqlite --tasks 300 --seed 7        the figures of one run
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psycopg
from msgspec import Struct
from msgspec.structs import replace

from holdfast import AlreadyAnswered, Holdfast, HoldfastError
from holdfast.core.events import (
    ChildEnded,
    ChildStarted,
    Claimed,
    DriverDied,
    Hindered,
    Parked,
    QuestionAnswered,
    TimerSet,
    Woke,
)
from holdfast.core.kinds import id_of
from holdfast.core.state import FINISHED
from holdfast.engines.port import Engine
from holdfast.engines.restate import Restate
from holdfast.engines.temporal import Temporal
from holdfast.errors import StorageFailed
from holdfast.log.reading import read_events
from holdfast.log.store_calls import facts_of_all
from holdfast.stores.port import Facts
from holdfast.stores.postgres.database import address_of
from holdfast.testing.servers import RestateServer, TemporalServer, free_ports
from tests.engines import fleet_tasks as fleet
from tests.stores import pgbouncer
from tests.stores.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
APP = "tests.engines.fleet_tasks"
LEASE_S = 3.0
KILLED, POISONED = -signal.SIGKILL, 9
ZERO, _A_WHILE = timedelta(0), timedelta(seconds=0.3)
_BETWEEN_LOOKS = timedelta(seconds=0.5)
_NO_PROGRESS = (Claimed, Parked, DriverDied, Hindered)


class Report(Struct):
    """What came of a run."""

    tasks: int
    faults: int
    ended: dict[str, int]
    gave_up: list[int]
    twice: list[str]
    stuck: list[str]
    failed: list[str]
    left: list[str]
    seconds_after_last_fault: float
    longest_standstill_s: float
    """After the last fault, while a healthy task was left: a poisoned one waits for its workers.

    A worker that a poisoned task ends is a fault too, and a fault ends when a worker is at work:
    how soon Python starts says nothing of Holdfast."""
    waits: list[Wait]
    """The longest waits of healthy tasks after the last fault, the longest first."""
    to_start_s: float
    """How long the first worker took to start: so fast is this machine now."""
    said: str
    """The last words of the workers."""


class Wait(Struct):
    """A time in which nothing happened to a task, though it asked for no time and no person."""

    task: str
    seconds: float
    idle_s: float
    """The longest time of these, between two faults, in which nothing happened to any of them."""
    at: str
    before: str
    then: str


class Fleet:
    """Worker processes on one store, kept running."""

    def __init__(
        self, url: str, folder: Path, size: int, options: Sequence[str] = (), app: str = APP
    ) -> None:
        self._url = url
        self._app = app
        self._folder = folder
        self._options = options
        self._is_up = b"drives tasks" if options else b"looks for tasks"
        self.workers: list[subprocess.Popen[bytes]] = [self._start(n) for n in range(size)]
        self.gave_up: list[int] = []

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "holdfast", "worker", "--app", self._app),
            *("--url", self._url, "--lease", str(LEASE_S), *self._options),
        ]
        with open(self._log(place), "wb") as log:
            env = {**os.environ, "FLEET_FOLDER": str(self._folder)}
            return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)

    def _log(self, place: int) -> Path:
        return self._folder / f"worker-{place}.log"

    def said(self) -> str:
        """The last words of the workers."""
        places = range(len(self.workers))
        return "\n".join(self._log(n).read_text(errors="replace")[-2000:] for n in places)

    def at_work(self) -> int:
        """How many workers have started. To start Python takes long where much else runs."""
        places = range(len(self.workers))
        return sum(self._is_up in self._log(n).read_bytes() for n in places)

    def tend(self) -> bool:
        """Start anew what has ended, and note who gave up; whether one had ended."""
        has_ended = False
        for place, worker in enumerate(self.workers):
            code = worker.poll()
            if code is not None:
                if code not in (KILLED, POISONED):
                    self.gave_up.append(code)
                self.workers[place] = self._start(place)
                has_ended = True
        return has_ended

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()


class Chaos:
    """Faults of a fleet and of its database, chosen by a seed."""

    def __init__(self, seed: int, fleet: Fleet, server: PostgresServer | None, url: str) -> None:
        self.random = random.Random(seed)
        self._fleet = fleet
        self._server = server
        self._url = url
        self.kinds: list[Callable[[], None]] = [self.kill, self.freeze]
        if server is not None:
            self.kinds += [self.stop_fast, self.stop_at_once, self.cut_off]

    def kill(self) -> None:
        self.random.choice(self._fleet.workers).kill()

    def freeze(self) -> None:
        worker = self.random.choice(self._fleet.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S * self.random.choice((0.3, 1.5)))
        worker.send_signal(signal.SIGCONT)

    def stop_fast(self) -> None:
        self.stop(signal.SIGINT, 0.2)

    def stop_at_once(self) -> None:
        self.stop(signal.SIGQUIT, 0.2)

    def stop(self, how: signal.Signals, away_s: float) -> None:
        assert self._server is not None
        self._server.stop(how)
        give_up_at = time.monotonic() + away_s
        while time.monotonic() < give_up_at:
            self._fleet.tend()
            time.sleep(0.1)
        self._server.start()

    def cut_off(self) -> None:
        with psycopg.connect(address_of(self._url).session_url, autocommit=True) as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )


def run(
    folder: Path,
    url: str,
    *,
    seed: int,
    tasks: int,
    faults: int,
    server: PostgresServer | None = None,
    away_s: float = 0.0,
    workers: int = 4,
    patience_s: float = 240.0,
    engine: Engine | None = None,
    options: Sequence[str] = (),
    restart: Callable[[], None] | None = None,
    app: str = APP,
) -> Report:
    """Run tasks on a fleet while faults happen; returns when all have ended, or time is up.

    `options` are those of the workers of an `engine`, and `restart` kills its server and starts it.
    `app` has their tasks, and may break them on purpose.
    """
    os.environ["FLEET_FOLDER"] = str(folder)
    with Holdfast(url, engine=engine) as hf:
        for number in range(tasks):
            kind = fleet.HEALTHY[number % len(fleet.HEALTHY)]
            hf.start(kind, number, id=f"{kind.__name__}-{number}")
        hf.start(fleet.poisoned, id="poisoned-1")
        hf.start(fleet.poisoned_at_once, id="poisoned-2")
        troop = Fleet(url, folder, workers, options, app)
        chaos = Chaos(seed, troop, server, url)
        if restart is not None:
            chaos.kinds.append(restart)
        try:
            return _watch(hf, troop, chaos, tasks, faults, away_s, patience_s, folder)
        finally:
            troop.end()


def _watch(
    hf: Holdfast,
    troop: Fleet,
    chaos: Chaos,
    tasks: int,
    faults: int,
    away_s: float,
    patience_s: float,
    folder: Path,
) -> Report:
    schedule = [chaos.random.choice(chaos.kinds) for _ in range(faults)]
    schedule[: len(chaos.kinds)] = chaos.kinds[:faults]  # each kind at least once
    if away_s:
        schedule.append(lambda: chaos.stop(signal.SIGINT, away_s))
    last_fault = moved_at = time.monotonic()
    faults_at: list[tuple[datetime, datetime]] = []
    began, to_start_s = time.monotonic(), 0.0
    next_fault = time.monotonic() + 2.0
    longest, newest, was_healthy = 0.0, None, True
    give_up_at = time.monotonic() + patience_s
    left: list[str] = []
    while time.monotonic() < give_up_at:
        if troop.tend() or not troop.at_work():
            moved_at = time.monotonic()
            faults_at.append((datetime.now(UTC) - _BETWEEN_LOOKS, datetime.now(UTC)))
        elif not to_start_s:
            to_start_s = round(time.monotonic() - began, 1)
        now = time.monotonic()
        if schedule and now >= next_fault:
            began_at = datetime.now(UTC)
            schedule.pop(0)()
            last_fault = moved_at = time.monotonic()
            faults_at.append((began_at, datetime.now(UTC)))
            next_fault = last_fault + chaos.random.uniform(0.5, 2.0)
        try:
            answer(hf)
            facts = {id_of(stream): each for stream, each in facts_of_all(hf.store, "tasks/")}
        except StorageFailed:
            time.sleep(0.2)
            continue
        left = [id for id, each in facts.items() if not is_over(each)]
        changed = max((each.updated_at for each in facts.values() if each), default=None)
        is_healthy = any(not id.startswith("poisoned") for id in left)
        if changed != newest or not is_healthy:
            if not schedule and was_healthy:
                longest = max(longest, time.monotonic() - moved_at)
            newest, moved_at = changed, time.monotonic()
        was_healthy = is_healthy
        if not left and not schedule:
            break
        time.sleep(0.2)
    counted: dict[str, int] = {}
    found = list(hf.tasks(limit=None))
    for each in found:
        counted[each.status] = counted.get(each.status, 0) + 1
    return Report(
        tasks=tasks,
        faults=faults + bool(away_s),
        ended=counted,
        gave_up=troop.gave_up,
        twice=sorted(path.name for path in folder.glob("*.twice")),
        stuck=sorted(task.id for task in found if task.status == "stuck"),
        failed=sorted(task.id for task in found if task.status == "failed"),
        left=left,
        seconds_after_last_fault=round(time.monotonic() - last_fault, 1),
        longest_standstill_s=round(longest, 1),
        waits=longest_waits(hf, faults_at),
        to_start_s=to_start_s,
        said=troop.said(),
    )


def longest_waits(
    hf: Holdfast, faults: Sequence[tuple[datetime, datetime]], most: int = 8
) -> list[Wait]:
    """The longest waits of healthy tasks between faults and after them, by the times in their logs.

    A task that waits for a processor is not forgotten: others are given one meanwhile, and their
    logs grow. So time is idle only where no log of a healthy task grew for a while.
    """
    logs = {
        id: [each for each in read_events(hf.store, stream) if not isinstance(each, _NO_PROGRESS)]
        for stream, _ in facts_of_all(hf.store, "tasks/")
        if not (id := id_of(stream)).startswith("poisoned")
    }
    ended = {id: log[-1].at for id, log in logs.items()}
    moments = [(event.at, event.at) for log in logs.values() for event in log]
    quiet = between(sorted([*moments, *faults]))
    found = []
    for id, log in logs.items():
        children = {each.path: each.id for each in log if isinstance(each, ChildStarted)}
        for before, then in pairwise(log):
            begin = before.at
            if isinstance(then, Woke) and isinstance(before, TimerSet):
                begin = max(begin, before.until)
            if isinstance(then, ChildEnded):
                begin = max(begin, ended.get(children.get(then.path, ""), begin))
            if then.at <= begin or isinstance(then, QuestionAnswered):  # by us
                continue
            idle = [min(then.at, two) - max(begin, one) for one, two in quiet]
            found.append(
                Wait(
                    task=id,
                    seconds=round((then.at - begin).total_seconds(), 1),
                    idle_s=round(max([ZERO, *idle]).total_seconds(), 1),
                    at=f"{begin:%H:%M:%S}",
                    before=type(before).__name__,
                    then=type(then).__name__,
                )
            )
    return sorted(found, key=lambda wait: (-wait.idle_s, -wait.seconds))[:most]


def between(times: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """The times between these, which are in their order and may overlap."""
    found: list[tuple[datetime, datetime]] = []
    end: datetime | None = None
    for begin, until in times:
        if end is not None and begin - end > _A_WHILE:
            found.append((end, begin))
        end = until if end is None else max(end, until)
    return found


def is_over(facts: Facts | None) -> bool:
    return facts is not None and (facts.status == "stuck" or facts.status in FINISHED)


def answer(hf: Holdfast) -> None:
    """Be the person who is asked."""
    for task in hf.tasks(status="awaiting_user", limit=None):
        try:
            hf.answer(task.id, "yes", question="go", by="ada")
        except AlreadyAnswered:
            continue
        except StorageFailed:
            raise
        except HoldfastError:  # it is not asked yet, or any more
            continue


def on_temporal(
    folder: Path, stack: ExitStack
) -> tuple[Engine, tuple[str, ...], Callable[[], None]]:
    """A server of Temporal, what workers of it are told, and how to restart it."""
    (folder / "temporal").mkdir()
    server = stack.enter_context(TemporalServer(folder / "temporal"))
    options = ("--engine", "temporal", "--address", server.address, "--queue", "chaos")
    return Temporal(server.address, queue="chaos"), options, server.restart


def on_restate(
    folder: Path, stack: ExitStack
) -> tuple[Engine, tuple[str, ...], Callable[[], None]]:
    """The same for Restate, whose workers share an address."""
    (folder / "restate").mkdir()
    server = stack.enter_context(RestateServer(folder / "restate"))
    listen = f"127.0.0.1:{next(free_ports())}"
    options = ("--engine", "restate", "--address", server.url, "--admin", server.admin_url)
    engine = Restate(server.url, admin=server.admin_url, listen=listen)
    return engine, (*options, "--listen", listen), server.restart


ON = {"temporal": on_temporal, "restate": on_restate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=("sqlite", "postgres", "pgbouncer", *ON))
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--faults", type=int, default=15)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, ExitStack() as stack:
        folder = Path(name)
        os.chmod(folder, 0o755)
        server, url, away_s = None, f"sqlite:///{folder}/chaos.db", 0.0
        if given.store in ("postgres", "pgbouncer"):
            (folder / "server").mkdir()
            server = PostgresServer(folder / "server", durable=True)
            server.start()
            stack.callback(server.stop)
            url, away_s = server.new_database(), 15.0
            if given.store == "pgbouncer":
                url = stack.enter_context(pgbouncer.running(server)).url(url)
        engine, options, restart = (
            ON[given.store](folder, stack) if given.store in ON else (None, (), None)
        )
        report = run(
            folder, url, seed=given.seed, tasks=given.tasks, faults=given.faults, server=server,
            away_s=away_s, patience_s=900.0, engine=engine, options=options, restart=restart,
        )  # fmt: skip
        print(f"seed {given.seed}: {replace(report, said='')}")
        if report.gave_up or report.left:
            print(report.said)


if __name__ == "__main__":
    main()
