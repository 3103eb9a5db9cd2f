"""Asking the process that runs a query (`holdfast.sql.apart`), and ending it in time."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import IO, Any, Self

from holdfast.errors import BadInput
from holdfast.sql import apart
from holdfast.sql.apart import LENGTH_BYTES, packed, unpacked
from holdfast.sql.tables import TABLES

MEMORY_BYTES = 1024 * 1024 * 1024
"""How much a query may take, besides the tables."""
LONGEST_TEXT_BYTES = 128 * 1024 * 1024
"""Of what a query makes or gives out."""

_AT_ONCE = 1 << 20


class Process:
    """The process of one query. What its reader does between two rows takes none of its time."""

    def __init__(
        self, declared: Sequence[str], timeout_s: float, value: Callable[[object], str | None]
    ) -> None:
        self._timeout_s = self._left_s = timeout_s
        self._value = value
        self._read = bytearray()
        # In a group of its own it hears no Ctrl-C; whoever does ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", apart.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
        try:
            self.tell(
                {
                    "declared": list(declared),
                    "tables": list(TABLES),
                    "timeout_s": min(timeout_s, 1e9),
                    "memory_bytes": MEMORY_BYTES,
                    "longest_bytes": LONGEST_TEXT_BYTES,
                }
            )
            self._receive(float("inf"))  # it takes a moment to begin, which is not the query's
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                _there(pipe).close()

    def tell(self, order: Any, data: bytes | None = None) -> None:
        """Tell it something, and hand it some bytes."""
        pipe = _there(self._process.stdin)
        try:
            for part in (packed(order), *(() if data is None else (data,))):
                pipe.write(len(part).to_bytes(LENGTH_BYTES))
                pipe.write(part)
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def heard(self, expected: Collection[str] = ()) -> dict[str, Any]:
        """What it says next; an error that is not `expected` is raised. It may ask for values."""
        while True:
            began = time.monotonic()
            try:
                said: dict[str, Any] = unpacked(self._receive(began + self._left_s))
            finally:
                self._left_s -= time.monotonic() - began
            if "value" in said:
                self.tell(self._value(said["value"]))
            elif "memory" in said:
                raise _too_much()
            elif "error" in said and "error" not in expected:
                raise BadInput(f"sql: {said['error']}")
            else:
                return said

    def _receive(self, ends: float) -> bytes:
        length = int.from_bytes(self._part(LENGTH_BYTES, ends))
        return self._part(length, ends)

    def _part(self, size: int, ends: float) -> bytes:
        pipe = _there(self._process.stdout).fileno()
        waiting = select.poll()  # not `select`, which knows no more than 1,024 files
        waiting.register(pipe, select.POLLIN)
        while len(self._read) < size:
            left_s = ends - time.monotonic()
            if left_s <= 0:
                raise self._too_long()
            if waiting.poll(1000 * min(left_s, 3600)):
                data = os.read(pipe, _AT_ONCE)
                if not data:
                    raise self._ended()
                self._read += data
        found = bytes(self._read[:size])
        del self._read[:size]
        return found

    def _too_long(self) -> BadInput:
        return BadInput(
            f"sql: the query took longer than {self._timeout_s:g} s, and was stopped. Narrow "
            f"it down, or give it more time with timeout_s=… (--timeout)"
        )

    def _ended(self) -> BadInput:
        code = self._process.wait()
        if code < 0:  # by the system, for what it took
            return _too_much()
        return BadInput(
            f"sql: a query runs in a process of its own, and {sys.executable} ended with {code}"
        )


def _too_much() -> BadInput:
    return BadInput(
        f"sql: the query took more than {MEMORY_BYTES >> 20} MiB of memory, and was stopped. "
        f"Narrow it down, or sort and join less"
    )


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 (it was asked for)
    return pipe
