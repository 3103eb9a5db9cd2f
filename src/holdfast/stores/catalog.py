"""The streams of a workspace, as its folders and its index tell of them without reading a log.

The folders say which streams there are, the index what is known of each (see `index`). An entry
of the index is believed while the log is as long as it says, or while somebody holds the stream:
whoever does writes a line for every change. Looking at the length is what costs, one `stat` for
each stream. So it is done only where it matters: of facts, all but the status and its times are
those of a stream's beginning, and whether they match can be told from any entry; and what has come
to its end is there to stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from holdfast import finding
from holdfast.store import Facts, Page, Query
from holdfast.stores import locks
from holdfast.stores.disk import Disk
from holdfast.stores.index import Entry
from holdfast.stores.locks import LOCK, LOG


class Catalog:
    """The streams of one kind, for one look at them."""

    def __init__(
        self,
        disk: Disk,
        kind: str,
        folder: int,
        known: Mapping[str, Entry],
        safe_name: Callable[[str], str],
        name_in: Callable[[str, str], str | None],
    ) -> None:
        self._disk = disk
        self._kind = kind
        self._folder = folder
        """The one that holds their folders; -1 if there is none."""
        self._known = known
        self._safe_name = safe_name
        self._name_in = name_in

    def streams(self, prefix: str) -> Iterator[tuple[str, Entry | None]]:
        """Each stream that has a folder, with the last that was heard of it."""
        names = set(self._disk.names(self._folder)) if self._folder >= 0 else set()
        ours = f"{self._kind}/"
        for stream, entry in self._known.items():
            if stream.startswith(prefix) and stream.startswith(ours):
                name = self._folder_of(stream)
                if name in names:
                    names.remove(name)
                    yield stream, entry if entry.facts is not None else None
        for folder in names:
            plain = self._safe_name(folder) == folder
            found = folder if plain else self._name_in(self._kind, folder)
            if found is not None and f"{ours}{found}".startswith(prefix):
                yield f"{ours}{found}", None

    def _folder_of(self, stream: str) -> str:
        return self._safe_name(stream.split("/", 1)[1])

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        """Each stream with its facts; None where the log has to be read."""
        for stream, entry in self.streams(prefix):
            yield stream, self._believed(stream, entry)

    def find(self, query: Query) -> Page:
        """A page, with a look at no more logs than are needed for it."""
        if not (query.status or query.updated_after or query.updated_before):
            entries = dict(self.streams(query.prefix))
            told = ((stream, entry.facts if entry else None) for stream, entry in entries.items())
            page = finding.find(query, told)
            stale = [s for s, _ in page.found if self._believed(s, entries[s]) is None]
            found = [each for each in page.found if each[0] not in stale]
            return Page(found, page.more, [*page.unknown, *stale])
        lasting = replace(query, status=(), updated_after=None, updated_before=None)
        return finding.find(query, self._looked_at(query.prefix, finding.matcher(lasting)))

    def _looked_at(
        self, prefix: str, may_match: Callable[[str, Facts], bool]
    ) -> Iterator[tuple[str, Facts | None]]:
        for stream, entry in self.streams(prefix):
            facts = entry.facts if entry is not None else None
            if facts is None or may_match(stream, facts):
                yield stream, facts if _has_ended(facts) else self._believed(stream, entry)

    def _believed(self, stream: str, entry: Entry | None) -> Facts | None:
        if entry is None:
            return None
        name = self._folder_of(stream)
        size = self._disk.size_of(f"{name}/{LOG}", self._folder)
        return entry.facts if size > 0 and (size == entry.size or self._is_held(name)) else None

    def _is_held(self, name: str) -> bool:
        try:
            lock = self._disk.open(f"{name}/{LOCK}", self._folder, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return locks.at_work(self._disk, lock) is not None
        finally:
            self._disk.close(lock)


def _has_ended(facts: Facts | None) -> bool:
    return facts is not None and facts.status in ("completed", "cancelled")
