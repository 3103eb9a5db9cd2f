"""Damage at random to what a store reads: see `fuzz`. Lines get right sums, blobs right names, and
waypoints right seals, so that it is not by those that the damage is found."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from copy import deepcopy
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.decoding import Illegible, decoder
from holdfast.log import chain
from holdfast.log.waypoints import (
    decode_head,
    decode_record,
    sealed,
    split_records,
    unsealed,
)
from holdfast.stores.files.catalog import IndexEntry
from holdfast.stores.files.folder import safe_name

DEEP = 20_000
_BLOB = re.compile(rb'\{"\$blob":"([0-9a-f]{64})","size_bytes":\d+\}')
_MARK = "\0here\0"
_MARKED = json.dumps(_MARK).encode()

_ODD: list[Any] = [
    {}, [], None, "", 0, -1, 1, True, 1e308, -0.5, 2**31, 2**53 + 1, 2**64, 2**70, "x" * 5000,
    "a\0b", "é" * 300, "../../etc", "tasks/long", "1", "1.1.1", "@1.2", "~", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "2026-01-01T00:00:00", "1e999", [[]], [None], [1, "a", {}], {"a": None},
    {"": ""}, {"type": {}}, {"$blob": 1}, {"$blob": "zz", "size_bytes": 1},
    {"$blob": "0" * 64, "size_bytes": 1}, {"$blob": "0" * 64, "size_bytes": -1},
    {"$blob": "0" * 64}, {"$lists": []}, {"$lists": 1, "value": 1},
    {"$lists": [[["a"], 3, "9f"]], "value": None}, {"$lists": [[[], 3, "9f"]], "value": {}},
    {"$lists": [[["a", 1], -3, "9f"]], "value": {"a": [1]}}, {"$parts": 1, "size_bytes": 2},
    {"$parts": "0" * 64, "size_bytes": 2, "name": "n"}, {"$at": [3, "args"]}, {"$at": 1},
    {"$type": "Artifact", "of": {}}, {"$type": "x", "of": 1}, {"$tuple": 1}, {"$dict": [[1]]},
    {"$datetime": "x"}, {"$decimal": "x"}, {"$bytes": "%"}, {"$set": [[]]},
]  # fmt: skip
"""What a field is replaced by."""

_RAW = [
    b"[" * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b'"\xff\xfe"',
    b'"\\ud800"', b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"", b"{", b"nul", b'"',
]  # fmt: skip
"""The same, that no encoder would write."""


class Done(Struct):
    """What was damaged."""

    what: str
    victims: frozenset[str] = frozenset()
    """The streams that may be damaged now. Everything else is as it was."""
    names: frozenset[str] = frozenset()
    """By which it may be told instead: a blob."""
    believed: bool = False
    """Whether it makes sense, so that whoever reads it can't know better: a lie in the index."""

    def said_as(self) -> set[str]:
        """What whoever names the culprit names."""
        ids = {stream.partition("/")[2] for stream in self.victims}
        return ids | set(map(safe_name, ids)) | self.names


class Holder(Protocol):
    """A store that is damaged, by whatever it is made of."""

    def streams(self) -> list[str]: ...
    def lines(self, stream: str) -> list[bytes]: ...
    def set_lines(self, stream: str, lines: list[bytes]) -> None: ...
    def blob(self, digest: str) -> bytes: ...
    def set_blob(self, digest: str, data: bytes) -> None: ...


Damaging = Callable[[Any, Random], Done]


# JSON


def mutated(data: bytes, chance: Random) -> bytes:
    """Some bytes of JSON, with something else in one place or a few."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return broken(data, chance)
    if chance.random() < 0.1:
        return broken(data, chance)
    for _ in range(chance.choice((1, 1, 1, 2))):
        value = _changed(value, chance)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass").replace(_MARKED, chance.choice(_RAW), 1)


def broken(data: bytes, chance: Random) -> bytes:
    """Some bytes with a few others among them, or cut short. Never a newline more or less."""
    if not data:
        return bytes(chance.choices(range(32, 256), k=5))
    place, other = chance.randrange(len(data)), bytes(chance.choices(range(32, 256), k=3))
    longer = chance.choice((b"", other, chance.choice(_RAW)))
    return data[:place] + longer + chance.choice((data[place:], data[place + 3 :], b""))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield from _places(inner, (*path, key))


def _changed(value: Any, chance: Random) -> Any:
    places = list(_places(value))
    if isinstance(value, dict) and "type" in value:
        places += [("type",)] * (len(places) // 8 + 1)
    *inside, key = (None, *chance.choice(places))
    if key is None:
        return chance.choice([_MARK, *(_odd(chance) for _ in range(3))])
    holder = value
    for each in inside[1:]:
        holder = holder[each]
    how = chance.random()
    if how < 0.08 and isinstance(holder, dict):  # which nobody looks for, and a decoder skips
        holder["more"] = _MARK
    elif how < 0.15:
        del holder[key]
    elif how < 0.3:
        holder[key] = _MARK
    elif how < 0.4 and isinstance(holder, dict):
        holder[chance.choice(("x", "type", "seq", "path", ""))] = holder.pop(key)
    elif how < 0.5 and isinstance(holder[key], int):
        holder[key] += chance.choice((-1, 1, 1000, -1000, 2**40))
    elif how < 0.6 and isinstance(holder[key], str):
        holder[key] += chance.choice(("x", ".1", "\ud800", "\n", "~2", "\0"))
    else:
        holder[key] = _odd(chance)
    return value


def _odd(chance: Random) -> Any:
    return deepcopy(chance.choice(_ODD))  # for it may be changed in turn


# Logs


def bodies(store: Holder, stream: str) -> list[bytes]:
    """The lines of a log without their sums."""
    return [line.rpartition(b',"sum":"')[0] + b"}" for line in store.lines(stream)]


def seal(store: Holder, stream: str, bodies: list[bytes]) -> None:
    """Make lines a log again, with the sums that fit them."""
    total, lines = chain.ROOT, []
    for body in bodies:
        line, total = chain.seal(total, body if body.endswith(b"}") else body + b"}")
        lines.append(line)
    store.set_lines(stream, lines)


def change_a_line(store: Holder, chance: Random) -> Done:
    """Something else in a line of a log."""
    stream = chance.choice(store.streams())
    victims, lines = with_forks(store, stream), bodies(store, stream)
    place = _near_an_end(len(lines), chance)
    lines[place] = mutated(lines[place], chance)
    seal(store, stream, lines)
    return Done(f"line {place + 1} of {stream}: {lines[place][:200]!r}", victims)


def move_lines(store: Holder, chance: Random) -> Done:
    """A line of a log is gone, is there twice, is another's, or stands elsewhere."""
    stream = chance.choice(store.streams())
    victims, lines = with_forks(store, stream), bodies(store, stream)
    place, how = _near_an_end(len(lines), chance), chance.randrange(4)
    if how == 0 and len(lines) > 1:
        del lines[place]
    elif how == 1:
        lines.insert(place, lines[place])
    elif how == 2:
        other = bodies(store, chance.choice(store.streams()))
        lines.insert(place, chance.choice(other))
    else:
        lines.append(lines.pop(place))
    numbered = [_numbered(line, seq) for seq, line in enumerate(lines, 1)]
    seal(store, stream, numbered)
    return Done(f"lines of {stream}, from {place + 1} on ({how})", victims)


def _numbered(line: bytes, seq: int) -> bytes:
    return re.sub(rb'"seq":\d+', b'"seq":%d' % seq, line, count=1)


def _near_an_end(length: int, chance: Random) -> int:
    few = min(length, 60)
    return chance.choice((chance.randrange(few), length - 1 - chance.randrange(few)))


def with_forks(store: Holder, stream: str) -> frozenset[str]:
    """A log, and those that share its past."""
    kind = stream.partition("/")[0]
    found, grown = {stream}, True
    firsts = {each: store.lines(each)[0] for each in store.streams() if each.startswith(kind)}
    while grown:
        ids = [json.dumps(name.partition("/")[2], ensure_ascii=False).encode() for name in found]
        more = {
            each
            for each, first in firsts.items()
            if any(b'"fork":{"of":' + id in first for id in ids)
        }
        grown = not more <= found
        found |= more
    return frozenset(found)


# Blobs


def change_a_blob(store: Holder, chance: Random) -> Done:
    """Something else in a blob, under the name that fits it, where a log names it."""
    naming = [
        (stream, place, digest.decode())
        for stream in store.streams()
        for place, line in enumerate(store.lines(stream))
        for digest in _BLOB.findall(line)
    ]
    stream, place, digest = chance.choice(naming)
    data = mutated(store.blob(digest), chance)
    new = sha256(data).hexdigest()
    store.set_blob(new, data)
    victims, lines = with_forks(store, stream), bodies(store, stream)
    lines[place] = lines[place].replace(digest.encode(), new.encode())
    seal(store, stream, lines)
    what = f"the blob of line {place + 1} of {stream}: {data[:100]!r}"
    return Done(what, victims, frozenset({new}))


def spoil_a_blob(store: Holder, chance: Random) -> Done:
    """Other bytes in a blob than its name says."""
    naming = {
        digest.decode()
        for stream in store.streams()
        for line in store.lines(stream)
        for digest in re.findall(rb'"(?:\$blob|\$parts|\$part|digest)":"([0-9a-f]{64})"', line)
    }
    for digest in chance.sample(sorted(naming), len(naming)):
        with suppress(FileNotFoundError, TypeError):
            store.set_blob(digest, broken(store.blob(digest), chance))
            naming_it = {
                stream
                for stream in store.streams()
                if any(digest.encode() in line for line in store.lines(stream))
            }
            victims = frozenset().union(*(with_forks(store, each) for each in naming_it))
            return Done(f"blob {digest}", victims, frozenset({digest}))
    raise AssertionError("there is no blob")


# A folder


class Folder:
    """A store in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.touched: set[Path] = set()
        """The files that were damaged, or made."""

    def write(self, path: Path, data: bytes) -> None:
        """Put other bytes into a file."""
        self.touched.add(path)
        path.write_bytes(data)

    def streams(self) -> list[str]:
        return sorted(
            f"{log.parent.parent.name}/{json.loads(_first_line(log))['id']}"
            for log in self.root.glob("*/*/events.jsonl")
        )

    def place(self, stream: str) -> Path:
        kind, _, id = stream.partition("/")
        return self.root / kind / safe_name(id)

    def lines(self, stream: str) -> list[bytes]:
        return (self.place(stream) / "events.jsonl").read_bytes().split(b"\n")[:-1]

    def set_lines(self, stream: str, lines: list[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        self.write(self.place(stream) / "events.jsonl", data)

    def _blob_at(self, digest: str) -> Path:
        return self.root / "blobs" / digest[:2] / digest

    def blob(self, digest: str) -> bytes:
        return self._blob_at(digest).read_bytes()

    def set_blob(self, digest: str, data: bytes) -> None:
        self._blob_at(digest).parent.mkdir(exist_ok=True)
        self.write(self._blob_at(digest), data)


def _first_line(log: Path) -> bytes:
    with log.open("rb") as file:
        return file.readline()


def change_the_index(store: Folder, chance: Random) -> Done:
    """Something else in a line of the index, or another line."""
    index = store.root / "index.jsonl"
    lines = [line for line in index.read_bytes().split(b"\n") if line]
    place = chance.randrange(len(lines))
    new = mutated(lines[place], chance)
    if chance.random() < 0.5:
        lines[place] = new
    else:
        lines.append(new)
    store.write(index, b"".join(b"\n" + line + b"\n" for line in lines))
    return Done(f"the index: {new[:200]!r}", believed=_is_legible(decoder(IndexEntry), new))


def _is_legible(decode: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        decode(data)
    except (Illegible, TypeError, ValueError, RecursionError):
        return False  # a build that is broken on purpose raises what its decoder raises
    return True


def change_a_lock(store: Folder, chance: Random) -> Done:
    """Something else in the lock file of a log."""
    lock = chance.choice(sorted(store.root.glob("*/*/lock")))
    store.write(lock, mutated(lock.read_bytes(), chance))
    return Done(f"{lock.relative_to(store.root)}: {lock.read_bytes()[:200]!r}")


def change_a_message(store: Folder, chance: Random) -> Done:
    """Something else in a message, or in the line before it; under a name of its own or not."""
    file = chance.choice(sorted(store.root.glob("*/*/inbox/*")))
    victim = f"tasks/{file.parents[1].name}"
    head, _, data = file.read_bytes().partition(b"\n")
    if chance.random() < 0.5:
        head = mutated(head, chance)
    else:
        data = mutated(data, chance)
    if chance.random() < 0.5:
        file = file.with_name(chance.choice(("x", "f" * 32, ".draft")))
    store.write(file, head + b"\n" + data)
    return Done(f"a message: {head[:100]!r} {data[:200]!r}", frozenset({victim}))


def change_a_waypoint(store: Folder, chance: Random) -> Done:
    """Something else in a part of a waypoint, sealed as it should be or not."""
    path = chance.choice(sorted(store.root.glob("*/*/waypoints/*")))
    seq, _, part = path.name.partition(".")
    total = path.with_suffix(".head").read_bytes()[:16]
    new = _changed_waypoint(path.read_bytes(), part, total, chance)
    store.write(path, new)
    return Done(f"the waypoint {path.name}", believed=_is_used(new, int(seq), part, total))


def _is_used(data: bytes, seq: int, part: str, total: bytes) -> bool:
    if part == "head":
        return decode_head(data, seq) is not None
    records = unsealed(total, part, data)
    with suppress(Illegible, zlib.error):
        for each in split_records(records or b""):
            decode_record(part, each)
        return True
    return False


def _changed_waypoint(data: bytes, part: str, total: bytes, chance: Random) -> bytes:
    if chance.random() < 0.1:
        return broken(data, chance)
    if part == "head":
        return total + sealed(total, part, mutated(data[32:], chance))
    records = mutated(zlib.decompress(data[16:]), chance)
    return sealed(total, part, zlib.compress(records) if chance.random() < 0.9 else records)


def lose_a_log(store: Folder, chance: Random) -> Done:
    """No log, or an empty one, where the lock file says that there was one."""
    held = [each for each in store.streams() if (store.place(each) / "lock").exists()]
    stream = chance.choice(held)
    victims, log = with_forks(store, stream), store.place(stream) / "events.jsonl"
    store.write(log, b"")
    if chance.random() < 0.5:
        log.unlink()
    return Done(f"{stream} is {'empty' if log.exists() else 'gone'}", victims)


IN_A_FOLDER: dict[str, Damaging] = {
    "line": change_a_line,
    "lines": move_lines,
    "log": lose_a_log,
    "blob": change_a_blob,
    "spoilt blob": spoil_a_blob,
    "index": change_the_index,
    "lock": change_a_lock,
    "message": change_a_message,
}
WAYPOINTS: dict[str, Damaging] = {"waypoint": change_a_waypoint, "line": change_a_line}


# A database


class Database:
    """A store in SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(query, values).fetchall()

    def streams(self) -> list[str]:
        return [name for (name,) in self.ask("select name from streams where head > 0 order by 1")]

    def _id(self, stream: str) -> int:
        return int(self.ask("select id from streams where name = ?", stream)[0][0])

    def lines(self, stream: str) -> list[bytes]:
        first = self._id(stream) << 32
        query = "select line from lines where id between ? and ? order by id"
        return [line for (line,) in self.ask(query, first, first + 2**32 - 1)]

    def set_lines(self, stream: str, lines: list[bytes]) -> None:
        first = self._id(stream) << 32
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("delete from lines where id between ? and ?", (first, first + 2**32 - 1))
            numbered = [(first + seq, line) for seq, line in enumerate(lines, 1)]
            db.executemany("insert into lines (id, line) values (?, ?)", numbered)
            db.execute("update streams set head = ? where name = ?", (len(lines), stream))

    def blob(self, digest: str) -> bytes:
        return bytes(self.ask("select data from blobs where digest = ?", digest)[0][0])

    def set_blob(self, digest: str, data: bytes) -> None:
        self.ask("insert or replace into blobs (digest, data) values (?, ?)", digest, data)


_COLUMNS = [
    *("owner", "process", "lease_s", "expires_at", "status", "task", "user", "session"),
    *("labels", "parent", "created_at", "updated_at", "wake_at", "origin"),
]


def change_a_row(store: Database, chance: Random) -> Done:
    """Something else in what the database knows of a stream."""
    stream, column = chance.choice(store.streams()), chance.choice(_COLUMNS)
    odd = chance.choice([*_ODD, *_RAW])
    value = odd if isinstance(odd, int | float | str | bytes) else json.dumps(odd)
    if column == "labels" and chance.random() < 0.7:
        value = mutated(b'{"team":"x"}', chance).decode(errors="replace")
    with suppress(sqlite3.Error, OverflowError):
        store.ask(f"update streams set {column} = ? where name = ?", value, stream)
    return Done(f"{column} of {stream}: {value!r:.100}", believed=True)


def change_a_posted_row(store: Database, chance: Random) -> Done:
    """Something else in a message."""
    id, stream, data = chance.choice(store.ask("select id, stream, data from inbox"))
    new = mutated(bytes(data), chance)
    store.ask("update inbox set data = ? where id = ?", new, id)
    return Done(f"a message: {new[:200]!r}", frozenset({stream}))


def lose_lines(store: Database, chance: Random) -> Done:
    """No lines of a log, or fewer than the database says."""
    stream = chance.choice(store.streams())
    victims, lines = with_forks(store, stream), store.lines(stream)
    store.set_lines(stream, lines[: chance.choice((0, chance.randrange(len(lines))))])
    store.ask("update streams set head = ? where name = ?", len(lines), stream)
    return Done(f"lines of {stream} are gone", victims)


IN_A_DATABASE: dict[str, Damaging] = {
    "line": change_a_line,
    "lines": move_lines,
    "log": lose_lines,
    "blob": change_a_blob,
    "spoilt blob": spoil_a_blob,
    "row": change_a_row,
    "message": change_a_posted_row,
}


# An archive


class Packed:
    """An archive, unpacked: so it can be damaged like a store, and packed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as packed:
            self.entries = {name: packed.read(name) for name in packed.namelist()}
        self.manifest = json.loads(self.entries["manifest.json"])

    def _entry(self, stream: str) -> Any:
        return next(each for each in self.manifest["streams"] if each["stream"] == stream)

    def streams(self) -> list[str]:
        return [each["stream"] for each in self.manifest["streams"]]

    def lines(self, stream: str) -> list[bytes]:
        return self.entries[self._entry(stream)["entry"]].split(b"\n")[:-1]

    def set_lines(self, stream: str, lines: list[bytes]) -> None:
        data, said = b"".join(line + b"\n" for line in lines), self._entry(stream)
        self.entries[said["entry"]] = data
        said |= {
            "events": len(lines),
            "size_bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }

    def blob(self, digest: str) -> bytes:
        return self.entries[f"blobs/{digest}"]

    def set_blob(self, digest: str, data: bytes) -> None:
        self.entries[f"blobs/{digest}"] = data
        self.manifest["blobs"][digest] = len(data)

    def pack(self, manifest: bytes = b"") -> None:
        self.entries["manifest.json"] = manifest or json.dumps(self.manifest).encode()
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in self.entries.items():
                packed.writestr(name, data)


def _packed(damage: Damaging, archive: Packed, chance: Random) -> Done:
    done = damage(archive, chance)
    archive.pack()
    return done


def change_a_manifest(archive: Packed, chance: Random) -> Done:
    """Something else in what an archive says of itself. It may be refused as a whole."""
    new = mutated(json.dumps(archive.manifest).encode(), chance)
    archive.pack(new)
    return Done("the manifest", frozenset(archive.streams()), frozenset({archive.path.name}))


def spoil_an_archive(archive: Packed, chance: Random) -> Done:
    """Other bytes in the file."""
    archive.path.write_bytes(broken(archive.path.read_bytes(), chance))
    return Done("its bytes", frozenset(archive.streams()), frozenset({archive.path.name}))


IN_AN_ARCHIVE: dict[str, Damaging] = {
    "line": partial(_packed, change_a_line),
    "lines": partial(_packed, move_lines),
    "blob": partial(_packed, change_a_blob),
    "spoilt blob": partial(_packed, spoil_a_blob),
    "manifest": change_a_manifest,
    "bytes": spoil_an_archive,
}
