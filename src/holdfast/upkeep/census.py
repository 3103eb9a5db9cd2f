"""What is in a store, and who names what: how large each log is, and which blobs hang on it.

Blobs are listed before any log is read. So a blob that is among them, is old, and is named by no
log that was read, is needed by nobody: whoever is about to name it has put it again meanwhile, and
made it young.

A log is checked as it is read: one that is damaged may have named any blob.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from msgspec import Struct

from holdfast.core.kinds import final_name, id_of, kind_of, prefixes
from holdfast.errors import StoreError
from holdfast.log.reading import must_have_its_past, own_events
from holdfast.log.values import Naming, may_name
from holdfast.stores.port import Blob, Store
from holdfast.upkeep.copied import CopyProgress, Tell


class _Lines(Struct):
    """A log that is being read, whatever its name."""

    lines: Iterator[bytes]

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        return self.lines


class Census:
    """A store, counted, and what is left of it when some of its streams are gone."""

    def __init__(self, store: Store, grace_s: float, tell: Tell) -> None:
        self._blobs = {blob.digest: blob for blob in store.blobs()}
        self._grace_s = grace_s
        self.sizes: Counter[str] = Counter()
        self.unreadable: dict[str, str] = {}
        """The streams that could not be read: while there are any, no blob is spare."""
        self._names: dict[str, set[str]] = {}
        self._naming = Naming(store.get_blob)
        self._named: Counter[str] = Counter()
        streams = [stream for prefix in prefixes() for stream in store.streams(prefix)]
        for number, stream in enumerate(streams):
            try:
                self._read(store, stream)
            except StoreError as error:
                self.unreadable[stream] = str(error)
            shown = kind_of(stream).shown(id_of(stream))
            tell(CopyProgress("reading", shown, number + 1, len(streams)))
        self._named.update(digest for names in self._names.values() for digest in names)
        self._log_bytes = self.sizes.total()
        self.needed_bytes = self._log_bytes + sum(
            blob.size_bytes for digest, blob in self._blobs.items() if self._named[digest]
        )
        """How large the logs that are left are, with the blobs that they name."""

    @property
    def left_bytes(self) -> int:
        """How large logs and blobs are together, without what is gone and what is spare."""
        blobs = sum(blob.size_bytes for blob in self._blobs.values())
        return self._log_bytes + blobs - sum(blob.size_bytes for blob in self.spare())

    def _read(self, store: Store, stream: str) -> None:
        naming = [post.data for post in store.inbox([stream])]

        def lines() -> Iterator[bytes]:
            for line in store.read(stream):
                self.sizes[stream] += len(line) + 1
                if may_name(line):
                    naming.append(line)
                yield line

        # A draft has the lines of the log that it will be.
        deque(own_events(_Lines(lines()), final_name(stream)), maxlen=0)
        if stream == final_name(stream):
            # Whoever brings back what it shares with another needs the blobs of that, too.
            must_have_its_past(store, stream)
        if names := self._naming.named_by(naming):
            self._names[stream] = names

    def spare(self) -> list[Blob]:
        """The blobs that nobody names, and that are old enough to go."""
        if self.unreadable:
            return []
        return [
            blob
            for digest, blob in self._blobs.items()
            if blob.age_s >= self._grace_s and not self._named[digest]
        ]

    def remove(self, stream: str) -> None:
        """Count as if a stream were gone."""
        self._count(stream, -1)

    def put_back(self, stream: str) -> None:
        """Count a stream again."""
        self._count(stream, 1)

    def _count(self, stream: str, by: int) -> None:
        self._log_bytes += by * self.sizes[stream]
        self.needed_bytes += by * self.sizes[stream]
        for digest in self._names.get(stream, ()):
            before, self._named[digest] = self._named[digest], self._named[digest] + by
            if digest in self._blobs and 0 in (before, before + by):
                self.needed_bytes += by * self._blobs[digest].size_bytes
