"""The outside world: an HTTP server in its own process, with its own database.

An agent's side effects have to be counted by somebody who does not crash with the agent.
This server is that somebody: it keeps every effect in SQLite, committed with
``synchronous=FULL`` before it replies, so its count is right whoever is killed, itself
included. Its services are as uneven as real ones:

=====================================  =====================================================
``GET /flights?to=``                   read only
``GET /hotels?city=``                  read only
``GET /weather?city=&run=&failures=``  503 for the first ``failures`` calls of each ``run``
``POST /payments``                     honours ``Idempotency-Key``
``POST /bookings``                     honours ``Idempotency-Key``
``DELETE /bookings/{id}``              cancels; again gives the first answer and does nothing
``POST /invites``                      ignores keys: every POST is another invite
``POST /mails``                        ignores keys: every POST is another mail
``POST /effects/{kind}``               any other kind; honours keys if ``honour_key`` is true
``GET /{kind}?reference=``             look up payments, bookings, cancellations, invites, mails
``GET /effects/{kind}?reference=``     look up any kind
``GET /count``                         how often each kind really happened, and the rows
``POST /reset``                        forget everything
=====================================  =====================================================

A new effect answers 201. A key seen before answers 200 with the first answer if the body is
the same, and 422 if it is not.

    python -m examples.trip.world DB_PATH [--port PORT]
"""

import argparse
import json
import os
import socketserver
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
Answer = tuple[int, Json]  # status and reply

HONOURS_KEY = {"payments": True, "bookings": True, "invites": False, "mails": False}
REQUIRED = {
    "payments": ["amount"],
    "bookings": ["hotel"],
    "invites": ["title", "reference"],
    "mails": ["to", "reference"],
}
LOOKUPS = {*HONOURS_KEY, "cancellations"}

SCHEMA = """
create table if not exists effects (
    id        integer primary key,
    kind      text not null,
    reference text,
    key       text,           -- only where the service honours keys
    body      text not null,  -- as asked for, in canonical JSON
    at        text not null
);
create unique index if not exists effects_by_key on effects (kind, key) where key is not null;
create index if not exists effects_by_reference on effects (kind, reference);
create table if not exists weather_calls (run text primary key, calls integer not null);
"""


class Refused(Exception):
    """A request the world won't carry out; becomes the reply."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Ledger:
    """Every effect that really happened.

    One connection under one lock: a commit costs one sync of the disk whoever makes it, and
    SQLite has one writer anyway.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(SCHEMA)

    def add(self, kind: str, body: Json, key: str | None) -> Answer:
        """Do one effect, unless its key says that it is done already."""
        text = json.dumps(body, sort_keys=True)
        with self._transaction() as db:
            if key is not None:
                query = "select * from effects where kind = ? and key = ?"
                seen = db.execute(query, (kind, key)).fetchone()
                if seen is not None:
                    return 200, _same_or_refused(seen, text)
            reference = None if body.get("reference") is None else str(body["reference"])
            row = db.execute(
                "insert into effects (kind, reference, key, body, at)"
                " values (?, ?, ?, ?, ?) returning *",
                (kind, reference, key, text, datetime.now(UTC).isoformat()),
            ).fetchone()
            return 201, _record(row)

    def cancel(self, booking_id: str) -> Answer:
        rows = self._read("select * from effects where kind = 'bookings' and id = ?", booking_id)
        if not rows:
            raise Refused(404, f"there is no booking {booking_id}")
        body = {"booking": rows[0]["id"], "reference": rows[0]["reference"]}
        _, answer = self.add("cancellations", body, key=booking_id)
        return 200, answer

    def lookup(self, kind: str, reference: str) -> list[Json]:
        query = "select * from effects where kind = ? and reference = ? order by id"
        return [_record(row) for row in self._read(query, kind, reference)]

    def count(self) -> Json:
        rows = [_record(row) for row in self._read("select * from effects order by id")]
        counts = dict.fromkeys(sorted(LOOKUPS), 0)
        for row in rows:
            counts[row["kind"]] = counts.get(row["kind"], 0) + 1
        weather = self._read("select run, calls from weather_calls order by run")
        return {
            "counts": counts,
            "rows": rows,
            "weather_calls": {row["run"]: row["calls"] for row in weather},
        }

    def weather_call(self, run: str) -> int:
        with self._transaction() as db:
            row = db.execute(
                "insert into weather_calls values (?, 1)"
                " on conflict (run) do update set calls = calls + 1 returning calls",
                (run,),
            ).fetchone()
            return int(row["calls"])

    def reset(self) -> None:
        with self._transaction() as db:
            db.execute("delete from effects")
            db.execute("delete from weather_calls")

    def _read(self, query: str, *values: str) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("begin immediate")
            try:
                yield self._db
                self._db.commit()
            except BaseException:
                self._db.rollback()
                raise


def _same_or_refused(seen: sqlite3.Row, text: str) -> Json:
    if seen["body"] != text:
        raise Refused(
            422,
            f"{seen['kind']}: Idempotency-Key {seen['key']!r} was used with another body: "
            f"first {seen['body']}, now {text}",
        )
    return _record(seen)


def _record(row: sqlite3.Row) -> Json:
    fields = {name: row[name] for name in ("id", "kind", "reference", "key", "at")}
    return {**json.loads(row["body"]), **fields}


def flights(to: str) -> list[Json]:
    return [
        {"flight": "HF 101", "to": to, "departs": "07:10", "price": 189},
        {"flight": "HF 305", "to": to, "departs": "11:45", "price": 142},
        {"flight": "HF 777", "to": to, "departs": "18:20", "price": 176},
    ]


def hotels(city: str) -> list[Json]:
    return [
        {"hotel": "Harbour Inn", "city": city, "desk": True, "price": 120},
        {"hotel": "Station Rooms", "city": city, "desk": False, "price": 84},
        {"hotel": "Grand", "city": city, "desk": True, "price": 240},
    ]


def answer(
    ledger: Ledger,
    method: str,
    parts: list[str],
    query: dict[str, str],
    body: Json,
    key: str | None,
) -> Answer:
    """Carry out one request: what it asks for in, status and reply out."""
    match method, parts:
        case "GET", ["flights"]:
            return 200, {"flights": flights(_needed(query, "to"))}
        case "GET", ["hotels"]:
            return 200, {"hotels": hotels(_needed(query, "city"))}
        case "GET", ["weather"]:
            return _weather(ledger, query)
        case "GET", ["count"]:
            return 200, ledger.count()
        case "POST", ["reset"]:
            ledger.reset()
            return 200, {}
        case "POST", [kind] if kind in HONOURS_KEY:
            for name in REQUIRED[kind]:
                _needed(body, name)
            return ledger.add(kind, body, key if HONOURS_KEY[kind] else None)
        case "POST", ["effects", kind]:
            _needed(body, "reference")
            return ledger.add(kind, body, key if body.get("honour_key") else None)
        case "GET", ["effects", kind]:
            return 200, {"found": ledger.lookup(kind, _needed(query, "reference"))}
        case "GET", [kind] if kind in LOOKUPS:
            return 200, {"found": ledger.lookup(kind, _needed(query, "reference"))}
        case "DELETE", ["bookings", booking_id]:
            return ledger.cancel(booking_id)
    raise Refused(404, f"no such endpoint: {method} /{'/'.join(parts)}")


def _weather(ledger: Ledger, query: dict[str, str]) -> Answer:
    city, run = _needed(query, "city"), query.get("run", "")
    failures = query.get("failures", "0")
    if not failures.isdecimal():
        raise Refused(400, f"failures must be a whole number, not {failures!r}")
    calls = ledger.weather_call(run)
    if calls <= int(failures):
        raise Refused(503, f"the weather service is down (call {calls} of run {run!r})")
    return 200, {"city": city, "weather": "light rain", "celsius": 11}


def _needed(given: dict[str, Any], name: str) -> Any:
    if given.get(name) in (None, ""):
        raise Refused(400, f"{name!r} is missing")
    return given[name]


class Handler(BaseHTTPRequestHandler):
    server: "Server"  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1  # head and body leave in one packet: two would meet Nagle and a delayed ack

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            body, key = self._body(), self.headers["Idempotency-Key"]
            status, reply = answer(self.server.ledger, self.command, parts, query, body, key)
        except Refused as refused:
            status, reply = refused.status, {"error": str(refused)}
        except sqlite3.Error as error:
            status, reply = 500, {"error": f"the ledger failed, nothing was done: {error}"}
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = handle_request

    def _body(self) -> Json:
        text = self.rfile.read(int(self.headers["Content-Length"] or 0))
        try:
            body = json.loads(text or b"{}")
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refused(400, f"the body must be a JSON object, not {text[:80]!r}")
        return body

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the ledger is the log."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # the default of 5 drops connections when many agents start at once

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.ledger = ledger
        super().__init__(("127.0.0.1", port), Handler)

    def server_bind(self) -> None:
        # HTTPServer asks the resolver for our name here, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that was killed halfway is what this server is for.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _exit_when_stdin_closes() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="world", description="The outside world, over HTTP.")
    parser.add_argument("db_path", type=Path)
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="end with the process that holds our stdin, however that one ends",
    )
    options = parser.parse_args()
    server = Server(Ledger(options.db_path), options.port)
    if options.until_stdin_closes:
        threading.Thread(target=_exit_when_stdin_closes, daemon=True).start()
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
