"""The streams of a workspace, as its folders and its index tell of them without reading a log.

The folders say which streams there are, the index what is known of each (see `index`). An entry
of the index is believed while the log is as long as it says, or while somebody holds the stream:
whoever does writes a line for every change. Looking at the length is what costs, one `stat` for
each stream. So it is done only where it matters: of facts, all but the status and its times are
those of a stream's beginning, and whether they match can be told from any entry; and what has come
to its end is there to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from holdfast import finding
from holdfast.store import Facts, Page, Query
from holdfast.stores import locks
from holdfast.stores.disk import Disk
from holdfast.stores.index import Entry
from holdfast.stores.locks import LOG


class Catalog:
    """The streams of one kind (`tasks`), as the index knows them."""

    def __init__(
        self,
        disk: Disk,
        root: int,
        kind: str,
        entries: Sequence[Entry],
        safe_name: Callable[[str], str],
        name_in: Callable[[str, str], str | None],
        was_started: Callable[[tuple[str, str]], bool],
    ) -> None:
        self.entries = entries
        """Those of the index, the newest first."""
        self._disk = disk
        self._root = root
        self._kind = kind
        self._safe_name = safe_name
        self._name_in = name_in
        self._was_started = was_started
        ours = (entry for entry in entries if entry.stream.startswith(f"{kind}/"))
        self._by_folder = {self._folder_of(entry.stream): entry for entry in ours}

    def facts(self, folder: int, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        """Each stream that has a folder, with its facts; None where the log has to be read."""
        names = set(self._disk.names(folder))
        for name, entry in self._by_folder.items():
            if name in names and entry.stream.startswith(prefix):
                believed = self._believed(folder, entry)
                if believed is not None or self._is_there(folder, name):
                    yield entry.stream, believed
        yield from ((stream, None) for stream in self._strangers(folder, names, prefix))

    def find(self, folder: int, query: Query) -> Page:
        """A page, with a look at no more logs than are needed for it."""
        names = set(self._disk.names(folder))
        gone = self._by_folder.keys() - names
        unknown = list(self._strangers(folder, names, query.prefix))
        may_match, matches = finding.matcher(_lasting(query)), finding.matcher(query)
        found: list[tuple[str, Facts]] = []
        for entry in self.entries:
            stream, facts = entry.stream, entry.facts
            if facts is None or not may_match(stream, facts):
                continue
            if gone and self._folder_of(stream) in gone:
                continue
            believed = facts if _has_ended(facts) else self._believed(folder, entry)
            if believed is None:
                if self._is_there(folder, self._folder_of(stream)):
                    unknown.append(stream)
            elif matches(stream, believed):
                found.append((stream, believed))
                if len(found) > query.limit:
                    break
        return Page(found[: query.limit], len(found) > query.limit, unknown)

    def _strangers(self, folder: int, names: set[str], prefix: str) -> Iterator[str]:
        """The streams that the index does not know."""
        for name in names - self._by_folder.keys():
            if name.startswith(".") or not self._is_there(folder, name):
                continue
            plain = self._safe_name(name) == name
            found = name if plain else self._name_in(self._kind, name)
            if found is not None and f"{self._kind}/{found}".startswith(prefix):
                yield f"{self._kind}/{found}"

    def _folder_of(self, stream: str) -> str:
        return self._safe_name(stream.split("/", 1)[1])

    def _believed(self, folder: int, entry: Entry) -> Facts | None:
        name = self._folder_of(entry.stream)
        size = self._disk.size_of(f"{name}/{LOG}", folder)
        is_so = size > 0 and (size == entry.size or self._is_held(folder, name))
        return entry.facts if is_so else None

    def _is_there(self, folder: int, name: str) -> bool:
        """Whether there is a stream, and not only somebody who took hold of its name."""
        size = self._disk.size_of(f"{name}/{LOG}", folder)
        return size > 0 or self._was_started((self._kind, name))

    def _is_held(self, folder: int, name: str) -> bool:
        try:
            inner = self._disk.folder(name, folder)
        except OSError:
            return False
        try:
            return locks.at_work(self._disk, self._root, inner) is not None
        except OSError:
            return False
        finally:
            self._disk.close(inner)


def _lasting(query: Query) -> Query:
    return replace(query, status=(), updated_after=None, updated_before=None)


def _has_ended(facts: Facts) -> bool:
    return facts.status in ("completed", "cancelled")
