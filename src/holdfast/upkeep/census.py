"""What is in a store, and who names what: how large each log is, and which blobs hang on it.

Blobs are listed before any log is read. So a blob that is among them, is old, and is named by no
log that was read, is needed by nobody: whoever is about to name it has put it again meanwhile, and
made it young.
"""

from __future__ import annotations

from collections import Counter

from holdfast.errors import StoreError
from holdfast.store import Blob, Store
from holdfast.upkeep.copied import Progress, Tell
from holdfast.upkeep.families import KINDS
from holdfast.upkeep.naming import Naming, may_name


class Census:
    """A store, counted, and what is left of it when some of its streams are gone."""

    def __init__(self, store: Store, grace_s: float, tell: Tell) -> None:
        blobs = {blob.digest: blob for blob in store.blobs()}
        self._old = {digest: blob for digest, blob in blobs.items() if blob.age_s >= grace_s}
        self.sizes: dict[str, int] = {}
        self.unreadable: dict[str, str] = {}
        """The streams that could not be read: while there are any, no blob is spare."""
        self._names: dict[str, set[str]] = {}
        self._naming = Naming(store.get_blob)
        self._named: Counter[str] = Counter()
        streams = [stream for kind in KINDS for stream in store.streams(kind)]
        for number, stream in enumerate(streams):
            try:
                self._read(store, stream)
            except StoreError as error:
                self.unreadable[stream] = str(error)
            tell(Progress("reading", stream.partition("/")[2], number + 1, len(streams)))
        self._named.update(digest for names in self._names.values() for digest in names)
        self.left_bytes = sum(self.sizes.values()) + sum(b.size_bytes for b in blobs.values())
        """How large logs and blobs are together, without what is gone and what is spare."""
        self.left_bytes -= sum(blob.size_bytes for blob in self.spare())

    def _read(self, store: Store, stream: str) -> None:
        size, naming = 0, [post.data for post in store.inbox([stream])]
        for line in store.read(stream):
            size += len(line) + 1
            if may_name(line):
                naming.append(line)
        self.sizes[stream] = size
        if names := self._naming.named_by(naming):
            self._names[stream] = names

    def spare(self) -> list[Blob]:
        """The blobs that nobody names, and that are old enough to go."""
        if self.unreadable:
            return []
        return [blob for digest, blob in self._old.items() if not self._named[digest]]

    def remove(self, stream: str) -> None:
        """Count as if a stream were gone."""
        self._count(stream, -1)

    def put_back(self, stream: str) -> None:
        """Count a stream again."""
        self._count(stream, 1)

    def _count(self, stream: str, by: int) -> None:
        self.left_bytes += by * self.sizes[stream]
        for digest in self._names.get(stream, ()):
            before, self._named[digest] = self._named[digest], self._named[digest] + by
            if digest in self._old and not self.unreadable and 0 in (before, before + by):
                self.left_bytes += by * self._old[digest].size_bytes
