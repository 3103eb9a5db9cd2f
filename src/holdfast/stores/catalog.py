"""The streams of a workspace, as its folders and its index tell of them without reading a log.

The folders say which streams there are, the index what is known of each (see `index`). An entry
of the index is believed while the log is the one that it speaks of, or while somebody holds the
stream: whoever does writes a line for every change. Looking at the log is what costs, one `stat`
for each stream. So a page without a filter looks at no more of them than it shows. One with a
filter looks at all: an entry that does not match may be out of date. Only of the facts that last
(all but the status and its times) an entry need not be asked again, once it was right: a stream
that is begun anew has a new one.
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
        once_right: dict[str, Entry],
    ) -> None:
        self.entries = entries
        """Those of the index, the newest first."""
        self._disk = disk
        self._root = root
        self._kind = kind
        self._safe_name = safe_name
        self._name_in = name_in
        self._was_started = was_started
        self._once_right = once_right
        """The entries that were seen to be right, for this and for later catalogs."""
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
            if facts is None or not stream.startswith(query.prefix):
                continue
            if self._once_right.get(stream) is entry and not may_match(stream, facts):
                continue
            if gone and self._folder_of(stream) in gone:
                continue
            believed = self._believed(folder, entry)
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
        size, written_ns = self._disk.mark_of(f"{name}/{LOG}", folder)
        is_same = size == entry.size and written_ns == entry.written_ns and not entry.early
        if size <= 0 or not (is_same or self._is_of_its_holder(folder, name, entry)):
            return None
        self._once_right[entry.stream] = entry
        return entry.facts

    def _is_there(self, folder: int, name: str) -> bool:
        """Whether there is a stream, and not only somebody who took hold of its name."""
        size = self._disk.size_of(f"{name}/{LOG}", folder)
        return size > 0 or self._was_started((self._kind, name))

    def _is_of_its_holder(self, folder: int, name: str, entry: Entry) -> bool:
        """Whether somebody holds a stream, and nothing can have changed since the entry that they
        would not have written down."""
        try:
            inner = self._disk.folder(name, folder)
        except OSError:
            return False
        try:
            lock = locks.at_work(self._disk, self._root, inner)
        except OSError:
            return False
        finally:
            self._disk.close(inner)
        if lock is None or lock.size is None:
            return False
        return entry.size > lock.size or (entry.size == lock.size and not entry.early)


def _lasting(query: Query) -> Query:
    return replace(query, status=(), updated_after=None, updated_before=None)
