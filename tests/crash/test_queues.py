"""The limits of queues hold at every instant, whatever happens to workers: a judge outside says so.

The judge is a server that every task visits while it works. It counts those inside. A process that
is killed leaves at once, because its connection ends.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from holdfast import Holdfast, Queue, Rate
from holdfast.core.events import PlacesChanged
from holdfast.core.facts import Query
from tests.crash.queue_agents import A_SECOND, AT_ONCE, visit, visit_by_limit
from tests.stores import pgbouncer
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH

__all__ = ["postgres_server", "postgres_url"]

LEASE_S = 10.0
WORKERS = 4


class Judge:
    """Counts who is inside, and remembers who came when."""

    def __init__(self, folder) -> None:
        self.path = str(folder / "judge")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(200)
        self._inside: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        self.most, self.most_of_key = 0, Counter[str]()
        self.came: list[tuple[float, int, str]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                door, _ = self._server.accept()
                threading.Thread(target=self._visit, args=(door,), daemon=True).start()

    def _visit(self, door: socket.socket) -> None:
        n, _, key = door.recv(100).decode().partition(" ")
        if not key:  # it was killed at the door
            return door.close()
        with suppress(OSError):
            with self._lock:
                self._send_home()
                self._inside[door] = key = key.strip()
                self.came.append((time.monotonic(), int(n), key))
                self.most = max(self.most, len(self._inside))
                inside = Counter(self._inside.values())
                self.most_of_key[key] = max(self.most_of_key[key], inside[key])
            door.sendall(b".")

    def _send_home(self) -> None:
        for door in list(self._inside):
            try:
                is_gone = door.recv(1, socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                continue
            except OSError:  # it was killed
                is_gone = True
            if is_gone:
                del self._inside[door]
                door.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for door in self._inside:
            door.close()


@contextmanager
def judged(folder) -> Iterator[Judge]:
    judge = Judge(folder)
    try:
        yield judge
    finally:
        judge.close()


def start_worker(url: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.crash.queue_agents", url, str(LEASE_S)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def end(worker: subprocess.Popen[str]) -> None:
    with worker:
        worker.kill()


def disturb(workers: list[subprocess.Popen[str]], url: str, chance: random.Random) -> None:
    """Kill a worker and start another, or stop one for a moment that is shorter than its lease."""
    index = chance.randrange(len(workers))
    if chance.random() < 0.4:
        end(workers[index])
        workers[index] = start_worker(url)
    else:
        pid = workers[index].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.01, 0.5))
        os.kill(pid, signal.SIGCONT)


def places_taken(hf: Holdfast) -> int:
    return sum(queue.info().running for queue in hf.queues())


def number_completed(hf: Holdfast) -> int:
    return len(hf.store.find(Query(status=("completed",), limit=None)).found)


def drive_all(
    hf: Holdfast, url: str, count: int, disturbances: int, seed: int, often: float = 1.0
) -> None:
    """Have four workers drive everything, disturbed at random, until all is done."""
    chance = random.Random(seed)
    workers = [start_worker(url) for _ in range(WORKERS)]
    try:
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline().startswith("ready")
        give_up_at = time.monotonic() + 60 + count / 5
        # No place is lost: those of the dead come back with their leases.
        while number_completed(hf) < count or places_taken(hf):
            assert time.monotonic() < give_up_at, "the queue does not get empty"
            if disturbances and chance.random() < often:
                disturbances -= 1
                disturb(workers, url, chance)
            time.sleep(0.2)
    finally:
        for worker in workers:
            end(worker)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db"
    return str(request.getfixturevalue("postgres_url"))


def test_a_limit_is_never_exceeded_while_workers_are_killed_and_stopped(url, tmp_path):
    a_limit_is_never_exceeded(url, tmp_path, *((2000, 60) if THOROUGH else (80, 5)))


def test_a_limit_is_never_exceeded_behind_a_pooler_of_transactions(
    postgres_server, postgres_url, tmp_path
):
    with pgbouncer.running(postgres_server) as bouncer:
        url = bouncer.url(postgres_url)
        a_limit_is_never_exceeded(url, tmp_path, *((1000, 30) if THOROUGH else (40, 4)))


def a_limit_is_never_exceeded(url: str, tmp_path: Path, count: int, disturbances: int) -> None:
    with judged(tmp_path) as judge, Holdfast(url, lease_s=LEASE_S) as hf:
        hf.queue(Queue("visits", concurrency=10, key_concurrency=4))
        for n in range(count):
            key = f"k{n % 5}"
            hf.options(id=f"v-{n}", queue="visits", key=key).start(visit, n, judge.path, key)
        drive_all(hf, url, count, disturbances, seed=count)
        assert {n for _, n, _ in judge.came} == set(range(count))
        assert judge.most <= 10
        assert max(judge.most_of_key.values()) <= 4
        longest_s = max(spans_of_places(hf, "visits"))
        print(f"{count} tasks: {judge.most} at once, a place for {longest_s:.1f} s at most")
        # A place is looked at a moment after it is as old as a lease; a busy machine takes longer.
        assert longest_s <= LEASE_S * (1.25 if THOROUGH else 3)


def test_a_rate_holds_for_all_workers_together(url, tmp_path):
    count, rate = (2000, Rate(100, per_s=1)) if THOROUGH else (60, Rate(30, per_s=1))
    came, _ = starts_at_a_rate(url, tmp_path, rate, count)
    # As the world outside saw it: within 5 % over 10 s.
    assert max(in_windows(came, 10.0)) <= 1.05 * rate.count * 10.0


def test_a_rate_is_used_up_and_holds_while_workers_are_killed_and_stopped(url, tmp_path):
    # Other tests on the machine hold starts up, and make those after them come together. And where
    # it can't carry 100 a second, a quarter of what it carries without a rate is tried.
    rate, least, most = (10, 0.7, 1.2)
    if THOROUGH:
        rate, least, most = min(100, int(carried(url, tmp_path) / 4)), 0.95, 1.05
    # A worker is stopped for half a second at most: what may start at once makes up for that.
    given = Rate(rate * 10, per_s=10, burst=max(4, 2 * rate // 5))
    disturbances = 6 if THOROUGH else 3
    came, empty_at = starts_at_a_rate(
        url, tmp_path, given, rate * (30 if THOROUGH else 14), disturbances
    )
    # As long as tasks wait: after that, only those of the dead come, when their leases have ended.
    full = [start for start in came if came[0] + 1.0 <= start <= empty_at - 10.0]
    found = [in_window(came, start, 10.0) / (10 * rate) for start in full]
    print(f"{rate} a second: {min(found):.3f} to {max(found):.3f} in {len(found)} windows")
    assert least <= min(found) <= max(found) <= most


def carried(url: str, tmp_path: Path) -> float:
    """How many tasks of a queue without a rate four workers begin in a second."""
    with judged(tmp_path) as judge, Holdfast(url, lease_s=LEASE_S) as hf:
        hf.queue(Queue("free"))
        for n in range(500):
            hf.options(id=f"f-{n}", queue="free").start(visit, n, judge.path)
        drive_all(hf, url, 500, 0, seed=1)
        came = sorted(at for at, _, _ in judge.came)
    Path(judge.path).unlink()
    return 300 / (came[400] - came[100])


def starts_at_a_rate(
    url: str, tmp_path: Path, rate: Rate, count: int, disturbances: int = 0
) -> tuple[list[float], float]:
    """When tasks of a queue began, as the judge saw it, and when none waited any more.

    The grants of places keep to the rate.
    """
    with judged(tmp_path) as judge, Holdfast(url, lease_s=LEASE_S) as hf:
        hf.queue(Queue("visits", rate=rate))
        before = number_completed(hf)
        for n in range(count):
            hf.options(id=f"v-{n}", queue="visits").start(visit, n, judge.path)
        drive_all(hf, url, before + count, disturbances, seed=1, often=0.1)
        places = [event for event in queue_events(hf, "visits") if isinstance(event, PlacesChanged)]
        granted = sorted(place.at.timestamp() for event in places for place in event.taken)
        assert len(granted) >= count
        for window_s in (rate.per_s, 10.0):
            share = rate.count * window_s / rate.per_s
            assert max(in_windows(granted, window_s)) <= share + rate.at_once
        empty_at = min(at for at, n, _ in judge.came if n >= count - 10)
        return sorted(at for at, _, _ in judge.came), empty_at


def test_a_limit_of_a_tool_holds_while_workers_are_killed_and_stopped(url, tmp_path):
    count, disturbances = (1000, 30) if THOROUGH else (60, 4)
    with judged(tmp_path) as judge, Holdfast(url, lease_s=LEASE_S) as hf:
        for n in range(count):
            hf.options(id=f"v-{n}").start(visit_by_limit, n, judge.path)
        drive_all(hf, url, count, disturbances, seed=count)
        assert {n for _, n, _ in judge.came} == set(range(count))
        assert judge.most <= AT_ONCE
        # A worker that is stopped at the door comes late: so a second may see a few more.
        most = max(in_windows(sorted(at for at, _, _ in judge.came), 10.0))
        assert most <= 1.05 * A_SECOND * 10.0 + AT_ONCE
        assert sum(each.held for each in hf.limits()) <= AT_ONCE


def in_windows(times: list[float], length: float) -> list[int]:
    """How many of these times, which are sorted, are in each window that begins with one."""
    return [in_window(times, start, length) for start in times]


def in_window(times: list[float], start: float, length: float) -> int:
    return bisect_left(times, start + length) - bisect_left(times, start)


def spans_of_places(hf: Holdfast, name: str) -> Iterator[float]:
    """For how long each place was taken, in seconds."""
    held: dict[str, datetime] = {}
    for event in queue_events(hf, name):
        if isinstance(event, PlacesChanged):
            for task in (*event.freed, *(place.task for place in event.taken)):
                if task in held:
                    yield (event.at - held.pop(task)).total_seconds()
            held |= {place.task: event.at for place in event.taken}


def queue_events(hf: Holdfast, name: str):
    from holdfast.log.reading import read_events
    from holdfast.log.store_calls import streams_in

    for stream in sorted(streams_in(hf.store, f"queues/{name}/")):
        yield from read_events(hf.store, stream)
