"""A store that reads through to another one and keeps every write to itself, in memory.

So a task can be driven over what a store holds, and nothing of it gets there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease, Store


class Aside(MemoryStore):
    """A store beside another one, which it never writes to.

    The holder of a stream gets a copy of it. `take` gives it other lines than it has there.
    What is found and listed is what was taken; leases and inboxes are its own.

    >>> from holdfast.stores.memory import MemoryStore
    >>> below = MemoryStore()
    >>> aside = Aside(below)
    >>> [lease] = aside.acquire(["tasks/trip-42"], "ada", 10)
    >>> aside.append(lease, 0, [b"a line"])
    >>> list(aside.read("tasks/trip-42")), list(below.read("tasks/trip-42"))
    ([b'a line'], [])
    """

    def __init__(self, below: Store) -> None:
        super().__init__()
        self._below = below
        self.url = below.url

    def take(self, stream: str, lines: Sequence[bytes]) -> None:
        """Let a stream have these lines, whatever it has below."""
        with self._lock:
            self._streams[stream] = list(lines)

    def _take(self, stream: str, owner: str, lease_s: float) -> Lease:
        if stream not in self._streams:
            self.take(stream, list(self._below.read(stream)))
        return super()._take(stream, owner, lease_s)

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        if stream in self._streams:
            return super().read(stream, after_seq, backwards=backwards)
        return self._below.read(stream, after_seq, backwards=backwards)

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        if name not in self._blobs:
            return self._below.get_blob(name, checked=checked)
        return super().get_blob(name, checked=checked)
