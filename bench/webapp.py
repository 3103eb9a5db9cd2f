"""Many readers of one web app: 200 of them follow 50 orders by SSE, and the server is killed once.

    python -m bench.webapp [--readers 200] [--orders 50] [--url sqlite:///…]

Each reader comes back with the id of the last event it saw, as a browser does. At the end every
reader must have seen each event of its order once, in order. From its first answer on, the server
measures how long one callback held its event loop at most: by the clock, which other processes on
the machine prolong too, and by the processor time of its thread, which they don't.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 300.0
LONGEST_MS = 50.0
"""How long one callback may hold the server's loop. By the clock it also waits for its turn on a
busy machine, so the bench fails on the processor time of the loop's thread."""


def serve(url: str, port: int, report: Path) -> None:
    """Serve the example, and write down how long its loop was held at most."""
    from examples.webapp.__main__ import serve as serve_app

    longest = [0.0, 0.0]
    run: Any = asyncio.events.Handle._run

    def measured(handle: Any) -> Any:
        began, worked = time.perf_counter(), time.thread_time()
        try:
            return run(handle)
        finally:
            held = time.perf_counter() - began, time.thread_time() - worked
            if held[0] > longest[0] or held[1] > longest[1]:
                longest[:] = [max(old, new) for old, new in zip(longest, held, strict=True)]
                report.write_text(json.dumps(longest))

    def begin(*_: Any) -> None:
        longest[:] = [0.0, 0.0]

    signal.signal(signal.SIGUSR1, begin)
    setattr(asyncio.events.Handle, "_run", measured)
    serve_app(url, port)


class Bench:
    """The server, a worker, and what the readers saw."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.place = place
        self.servers = 0
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]

    def process(self, *words: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "WEBAPP_LEDGER": str(self.place / "ledger"), "WEBAPP_WORK_S": "0.05"}
        command = [sys.executable, "-m", *words]
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)

    def start_server(self) -> subprocess.Popen[bytes]:
        self.servers += 1
        report = str(self.place / f"held-{self.servers}.json")
        words = ("--url", self.url, "--serve", str(self.port), "--report", report)
        process = self.process("bench.webapp", *words)
        while True:
            try:
                self.post("/orders", None, method="GET")
                process.send_signal(signal.SIGUSR1)
                return process
            except OSError:
                time.sleep(0.05)

    def post(self, path: str, body: Any, key: str = "", method: str = "POST") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body), {"Idempotency-Key": key})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    async def read(self, id: str) -> list[int]:
        """The numbers of the events that a reader sees, over as many connections as it takes."""
        seen: list[int] = []
        while True:
            try:
                if await self._stream(id, seen):
                    return seen
            except OSError:
                pass
            await asyncio.sleep(0.1)

    async def _stream(self, id: str, seen: list[int]) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            last = f"Last-Event-ID: {seen[-1]}\r\n" if seen else ""
            words = f"GET /orders/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{last}\r\n"
            writer.write(words.encode())
            number = 0
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"event: end"):
                    return True
                elif line.startswith(b"data: "):
                    seen.append(number)
            return False
        finally:
            writer.close()


async def measure(bench: Bench, readers: int, orders: int) -> dict[str, Any]:
    server, worker = (
        bench.start_server(),
        bench.process("examples.webapp", "worker", "--url", bench.url),
    )
    try:
        ids = [f"order-{number}" for number in range(orders)]
        began = time.perf_counter()
        for id in ids:
            await asyncio.to_thread(bench.post, "/orders", {"item": "tea", "count": 3}, id)
        reading = [asyncio.create_task(bench.read(ids[n % orders])) for n in range(readers)]
        await asyncio.sleep(2)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.wait)
        server = await asyncio.to_thread(bench.start_server)
        for id in ids:
            await asyncio.to_thread(bench.post, f"/orders/{id}/messages/address", "Pier 4")
        async with asyncio.timeout(PATIENCE_S):
            seen = await asyncio.gather(*reading)
        took_s = time.perf_counter() - began
    finally:
        for process in (server, worker):
            process.kill()
            process.wait()
    held = [json.loads(file.read_text()) for file in sorted(bench.place.glob("held-*.json"))]
    return {
        "readers": readers,
        "orders": orders,
        "events_read": sum(map(len, seen)),
        "readers_with_a_gap_or_a_repeat": _wrong(bench.url, ids, seen),
        "seconds": round(took_s, 1),
        "loop_held_ms": {
            how: round(1000 * max(each), 1)
            for how, each in zip(
                ("by the clock", "by its own work"), zip(*held, strict=True), strict=True
            )
        },
    }


def _wrong(url: str, ids: list[str], seen: list[list[int]]) -> int:
    from holdfast import Holdfast

    with Holdfast(url) as hf:
        events = {id: [event.seq for event in hf.task(id).events()] for id in ids}
    return sum(numbers != events[ids[n % len(ids)]] for n, numbers in enumerate(seen))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.webapp")
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--orders", type=int, default=50)
    parser.add_argument("--url", default="")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.url, given.serve, given.report)
        return
    with tempfile.TemporaryDirectory(prefix="bench-webapp-") as folder:
        url = given.url or f"sqlite:///{folder}/orders.db"
        found = asyncio.run(measure(Bench(url, Path(folder)), given.readers, given.orders))
    print(json.dumps(found, indent=1))
    too_long = found["loop_held_ms"]["by its own work"] > LONGEST_MS
    sys.exit(1 if found["readers_with_a_gap_or_a_repeat"] or too_long else 0)


if __name__ == "__main__":
    main()
