"""How a process shows that it is alive, and hears of news: one connection that it keeps open.

The connection holds an advisory lock on a number that is the process's own. The server frees it
the moment the process dies, so its tasks can be taken over at once. The same connection listens
for notifications. When it is lost while the process lives, it is made anew, under a new number,
and the leases are moved to that number.
"""

from __future__ import annotations

import math
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_PAUSE_S = 0.5
"""Between tries to make a lost connection anew."""

_LINES = "lines"
_TOLD_S, _ASK_AGAIN_S = 60.0, 20.0
"""How long every append is told of after somebody asked for that, and when they ask again."""


class Presence:
    """One process, as the database sees it."""

    def __init__(self, connect: Callable[[], Connection], sql: dict[str, str]) -> None:
        self._connect = connect
        self._sql = sql
        self._conn: Connection | None = None
        self._number = 0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._wires: tuple[socket.socket, ...] = ()
        self._news = threading.Condition()
        self._heard = 0
        self._seen = threading.local()
        self._asked_at = self._heard_asking_at = -math.inf

    @property
    def number(self) -> int:
        """The name of the process."""
        if not self._number:
            self._start()
        return self._number

    def wait_for_news(self, timeout_s: float) -> bool:
        """Wait until there is news that the calling thread has not been told of; False if none."""
        if not self._number:
            self._start()
        with self._news:
            seen = getattr(self._seen, "heard", 0)
            told = self._news.wait_for(lambda: self._heard != seen, timeout_s)
            self._seen.heard = self._heard
            return told

    def must_ask(self) -> bool:
        """Whether it is time that this process asks to be told of every append. Once."""
        now = time.monotonic()
        if now - self._asked_at < _ASK_AGAIN_S:
            return False
        self._asked_at = now
        return True

    def is_asked(self) -> bool:
        """Whether somebody wants to be told of every append."""
        return time.monotonic() - self._heard_asking_at < _TOLD_S

    def close(self) -> None:
        """Be gone."""
        with self._starting:
            self._closing.set()
        if self._thread is not None:
            self._wires[0].send(b"x")
            self._thread.join()
        if self._conn is not None:
            self._conn.close()
        for wire in self._wires:
            wire.close()

    def _start(self) -> None:
        with self._starting:
            if not self._number and not self._closing.is_set():
                self._appear()
                self._wires = socket.socketpair()
                name = "holdfast presence"
                self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
                self._thread.start()

    def _appear(self) -> None:
        conn = self._connect()
        try:
            row = conn.execute(self._sql["appear"]).fetchone()
            number = int(row[0]) if row else 0
            if self._number:
                conn.execute(self._sql["move_leases"], {"old": self._number, "new": number})
            conn.execute("listen holdfast")
        except BaseException:
            conn.close()
            raise
        self._conn, self._number = conn, number
        self._tell()  # of what may have been missed before

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                if self._conn is None:
                    self._appear()
                elif self._hear(self._conn):
                    self._tell()
            except (psycopg.Error, OSError):
                was_there = self._conn is not None
                self._lose()
                if not was_there:  # one that was cut off is made anew at once
                    self._closing.wait(_PAUSE_S)

    def _hear(self, conn: Connection) -> bool:
        ready = select.poll()  # not `select`, which knows no file above number 1,023
        ready.register(conn.fileno(), select.POLLIN)
        ready.register(self._wires[1], select.POLLIN)
        ready.poll()
        if self._closing.is_set():
            return False
        words = {notice.payload for notice in conn.notifies(timeout=0)}
        if _LINES in words:
            self._heard_asking_at = time.monotonic()
        return bool(words - {_LINES})

    def _lose(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _tell(self) -> None:
        with self._news:
            self._heard += 1
            self._news.notify_all()
