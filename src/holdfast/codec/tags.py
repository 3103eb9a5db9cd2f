"""Values that say themselves what they are: tagged JSON, and the classes it may name.

This is the open way of the codec, for annotations that leave something open, and for none. JSON
types are written as themselves and the rest is tagged, `{"$tuple": [1, 2]}`. A user's dict with a
key in `$` is written as a list of pairs, so that nothing in the data can pass for a tag.

An object is written only if the annotation *declares* its class: names it, directly or in the
fields of another class. A name in the data is looked up among the declared classes, so data can't
reach anything else. Objects are rebuilt field by field without their constructor, so that what it
computes or checks can't change what was stored. (A list held in two places comes back as two.)
"""

from __future__ import annotations

import functools
import inspect
import math
import typing
from collections.abc import Callable, Iterable
from itertools import chain
from operator import methodcaller
from typing import Any

import msgspec

from holdfast.codec.classes import Record, names_for, record_of
from holdfast.codec.pydantic_types import is_secret
from holdfast.codec.scalars import (
    BARE,
    INT64,
    MAX_DEPTH,
    READERS,
    SCALARS,
    TOO_DEEP,
    Misfit,
    Writer,
    decode,
    encode,
    is_ip,
    label,
    write_ip,
)
from holdfast.codec.secret import Secret
from holdfast.codec.secrets import kept, read_secret, write_secret
from holdfast.core.decoding import NONSENSE, Illegible
from holdfast.core.decoding import decode as parse_json

_JSON = BARE | {int, float, list, dict}
_TEXT = frozenset({str})
_is_tag = methodcaller("startswith", "$")

_HELD: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*READERS, "$type"), (str,)),
    **dict.fromkeys(("$tuple", "$set", "$frozenset", "$dict", "$timedelta"), (list,)),
    **dict.fromkeys(("$unset", "$redacted"), (bool,)),
    "$secret": (str, int),
    "$tagged": (object,),
}
"""The content of each tag. A user's dict may have such a key too, with something else in it."""


class Open:
    """Writes and reads tagged JSON, with the objects of the declared classes."""

    bare: frozenset[type] = BARE | {int}

    def __init__(self, classes: Iterable[type]) -> None:
        names = names_for(list(classes))
        self._writers = _Writers(SCALARS)
        self._writers |= {
            list: self._list,
            tuple: self._tuple,
            dict: self._dict,
            Secret: write_secret,
            set: functools.partial(self._set, "$set"),
            frozenset: functools.partial(self._set, "$frozenset"),
        }
        self._records: dict[str, Record] = {}
        for name, cls in names.items():
            record = self._records[name] = typing.cast(Record, record_of(cls))
            if cls not in self._writers:
                self._writers[cls] = functools.partial(self._object, name, record)
        self._readers: dict[str, Callable[[dict[str, Any]], Any]] = {
            **READERS,
            "$tuple": lambda tag: tuple(self._read(tag["$tuple"])),
            "$set": lambda tag: set(self._read(tag["$set"])),
            "$frozenset": lambda tag: frozenset(self._read(tag["$frozenset"])),
            "$dict": lambda tag: {self._read(k): self._read(v) for k, v in tag["$dict"]},
            "$secret": read_secret,
            "$type": self._read_object,
        }

    def dump(self, value: Any) -> bytes:
        """The value as JSON, or `Misfit`."""
        return plain_json(value) or encode(self._writers[type(value)](value, 1))

    def load(self, data: bytes) -> Any:
        """The value as it was."""
        value = decode(data)
        # The first look is much faster, and all it takes for most.
        return self._read(value) if b"$" in data and b'"$' in data else value

    accept = load

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back; or `Misfit`."""
        if data := plain_json(value):
            return data, decode(data)
        data = encode(self._writers[type(value)](value, 1))
        return data, self.load(data)

    def _list(self, items: list[Any], depth: int) -> list[Any]:
        if depth <= MAX_DEPTH and set(map(type, items)) <= BARE:
            return items
        return self._items(items, depth)

    def _tuple(self, items: tuple[Any, ...], depth: int) -> Any:
        return {"$tuple": self._items(items, depth)}

    def _items(self, items: Iterable[Any], depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        writers = self._writers
        written: list[Any] = []
        try:
            for item in items:
                written.append(writers[type(item)](item, depth + 1))
        except Misfit as misfit:
            raise misfit.under(f"[{len(written)}]") from None
        return written

    def _set(self, tag: str, items: Iterable[Any], depth: int) -> Any:
        # Sorted, because the order of a set is another in every process.
        before = kept()
        written = sorted(self._items(items, depth), key=encode)
        if kept() > before:  # and so would be the numbers of the secrets in it
            raise Misfit("a Secret in a set{at} can't be told from the others: use a list")
        return {tag: written}

    def _dict(self, items: dict[Any, Any], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        if not set(map(type, items)) <= _TEXT or any(map(_is_tag, items)):
            return {"$dict": self._pairs(items, depth)}
        return self._fields(items, depth)

    def _fields(self, items: dict[str, Any], depth: int) -> dict[str, Any]:
        if set(map(type, items.values())) <= BARE:
            return items
        writers = self._writers
        written: dict[str, Any] = {}
        key = ""
        try:
            for key, item in items.items():
                written[key] = writers[type(item)](item, depth + 1)
        except Misfit as misfit:
            raise misfit.under(label(key)) from None
        return written

    def _pairs(self, items: dict[Any, Any], depth: int) -> list[list[Any]]:
        pairs = []
        for key, item in items.items():
            where = ".keys()"
            try:
                written = self._writers[type(key)](key, depth + 1)
                where = label(key)
                pairs.append([written, self._writers[type(item)](item, depth + 1)])
            except Misfit as misfit:
                raise misfit.under(where) from None
        return pairs

    def _object(self, name: str, record: Record, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        parts = record.apart(value)
        of = parts.pop("of")
        written = {"$type": name, "of": self._fields(of, depth) if type(of) is dict else of}
        for part, content in parts.items():
            written[part] = self._writers[type(content)](content, depth)
        return written

    def _read(self, value: Any) -> Any:
        # A decoded value is ours alone, so it is changed in place.
        if type(value) is list:
            for index, item in enumerate(value):
                if type(item) is dict or type(item) is list:
                    value[index] = self._read(item)
        elif type(value) is dict:
            tag = next(iter(value), "")
            if _is_tag(tag):
                return self._read_tag(tag, value)
            for key, item in value.items():
                if type(item) is dict or type(item) is list:
                    value[key] = self._read(item)
        return value

    def _read_tag(self, tag: str, value: dict[str, Any]) -> Any:
        reader = self._readers.get(tag)
        if reader is None:
            raise Misfit(f"it holds a tag {tag!r}, which only a newer version can have written")
        return reader(value)

    def _read_object(self, tag: dict[str, Any]) -> Any:
        name = tag.pop("$type")
        record = self._records.get(name)
        if record is None:
            raise Misfit(f"it holds a {name}, which the annotation does not declare")
        return record.build({part: self._read(content) for part, content in tag.items()})


def plain_json(value: Any) -> bytes:
    """A list or dict as JSON, if it is nothing but JSON types that come back as they are; else
    nothing. By column, in C.

    >>> plain_json([1, {"a": None}]), plain_json([(1, 2)]), plain_json({"$a": 1})
    (b'[1,{"a":null}]', b'', b'')
    """
    if type(value) is not dict and type(value) is not list:
        return b""
    # Encoding first costs little and is sure to end: what contains itself fails here, and does
    # not get to double on every level below.
    try:
        data = encode(value)
    except (TypeError, ValueError, RecursionError):
        return b""
    column: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, column))
        if kinds <= BARE:
            return data
        if not kinds <= _JSON:
            return b""
        is_mixed = len(kinds) > 1
        if int in kinds:
            ints = [i for i in column if type(i) is int] if is_mixed else column
            if min(ints) not in INT64 or max(ints) not in INT64:
                return b""
        if float in kinds:
            floats = [f for f in column if type(f) is float] if is_mixed else column
            if not all(map(math.isfinite, floats)):
                return b""
        inner: list[Any] = []
        if list in kinds:
            lists = [each for each in column if type(each) is list] if is_mixed else column
            inner.extend(chain.from_iterable(lists))
        if dict in kinds:
            dicts = [each for each in column if type(each) is dict] if is_mixed else column
            if not set(map(type, chain.from_iterable(dicts))) <= _TEXT:
                return b""
            if any(map(_is_tag, set(chain.from_iterable(dicts)))):
                return b""
            inner.extend(chain.from_iterable(map(dict.values, dicts)))
        column = inner
    return b""


def has_tags(value: Any) -> bool:
    """Whether some decoded JSON was copied from a log, where tags say what is what.

    >>> has_tags([{"$date": "2026-11-18"}]), has_tags({"$ref": "#"}), has_tags({"$set": {"a": 1}})
    (True, False, False)
    """
    todo = [value]
    while todo:
        this = todo.pop()
        if type(this) is dict:
            tag = next(iter(this), "")
            is_held = tag in _HELD and isinstance(this[tag], _HELD[tag])
            if is_held and this.keys() - {tag} <= BESIDE:
                return True
            todo.extend(this.values())
        elif type(this) is list:
            todo.extend(this)
    return False


class _Writers(dict[type, Writer]):
    """Finds the writer for a type; for a type that has none, one that says why."""

    def __missing__(self, kind: type) -> Writer:
        if is_ip(kind):
            return write_ip
        if is_secret(kind):
            return write_secret
        plain: Any = getattr(kind, "holdfast_plain", None)
        if plain in self:  # it says itself that it is as good as that
            return lambda value, depth: self[plain](plain(value), depth)

        def refuse(value: Any, depth: int) -> Any:
            if inspect.iscoroutine(value):
                value.close()
                raise Misfit(
                    f"a coroutine{{at}} can't be stored: an `await` is missing for "
                    f"{value.__qualname__}, or a decorator hides that the function is async"
                )
            if hasattr(kind, "__next__"):
                raise Misfit(
                    f"a value of type {kind.__name__}{{at}} can't be stored: it can be read only "
                    f"once; make a list of it, and annotate it so"
                )
            base = next((base.__name__ for base in kind.__mro__ if base in self), None)
            if record_of(kind) is not None:
                todo = f"annotate the step with {kind.__name__}, or use plain data"
            elif base is not None:
                todo = f"turn it into a plain {base}"
            else:
                todo = "annotate the step with a dataclass that holds it, or use plain data"
            raise Misfit(f"a value of type {kind.__name__}{{at}} can't be stored; {todo}")

        return refuse


# Stored values as people read them: plain JSON, without the tags that say what a value is.
#
# The log keeps the tags where an annotation leaves a type open, and in old logs also where it named
# the class: `{"$type": "Room", "of": {"name": "attic"}}`. Views show the room. Nobody reads a value
# back from here: code that needs its type decodes the stored bytes.

_MARK = b'"$'
BESIDE = {"of", "set", "extra", "private", "class", "flags", "zone", "offset", "fold"}
"""Names that may stand in a tag beside its own. A user's dict with other keys is no tag."""


def readable(value: Any) -> Any:
    """Plain data without tags. A value without any is returned as it is, so values may share parts.

    >>> readable({"$type": "Room", "of": {"name": "attic", "beds": {"$tuple": [1, 2]}}})
    {'name': 'attic', 'beds': [1, 2]}
    >>> readable({"at": {"$datetime": "2026-01-01T09:00:00", "zone": "Europe/Oslo"}})
    {'at': '2026-01-01T09:00:00 Europe/Oslo'}
    >>> readable({"$ref": "#/$defs/Room"})
    {'$ref': '#/$defs/Room'}
    """
    if isinstance(value, list):
        items = [readable(each) for each in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    reader = _READERS.get(tag) if tag[:1] == "$" else None
    if reader is not None and value.keys() - {tag} <= BESIDE:
        try:
            return reader(value)
        except NONSENSE:  # it only looks like a tag: a person may read it as it is
            return value
    fields = {name: readable(each) for name, each in value.items()}
    return fields if any(fields[name] is not value[name] for name in value) else value


def readable_json(data: bytes) -> bytes:
    """The same for a value as JSON. A value that can't be read stays as it is.

    >>> readable_json(b'{"$type":"Room","of":{"name":"attic"}}')
    b'{"name":"attic"}'
    """
    if _MARK not in data:
        return data
    try:
        value = parse_json(data)
        shown = readable(value)
    except (*NONSENSE, Illegible):
        return data
    return data if shown is value else msgspec.json.encode(shown)


def _object(tag: dict[str, Any]) -> Any:
    of = readable(tag["of"])
    more = tag.get("extra")
    return {**of, **readable(more)} if isinstance(of, dict) and isinstance(more, dict) else of


def _pairs(tag: dict[str, Any]) -> Any:
    pairs = [(readable(key), readable(each)) for key, each in tag["$dict"]]
    if all(isinstance(key, str) for key, _ in pairs):
        return dict(pairs)
    return [list(pair) for pair in pairs]


def _moment(name: str) -> Callable[[dict[str, Any]], str]:
    def shown(tag: dict[str, Any]) -> str:
        zone = tag.get("zone")
        return f"{tag[name]} {zone}" if zone else str(tag[name])

    return shown


def _only(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda tag: readable(tag[name])


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$type": _object,
    "$dict": _pairs,
    "$datetime": _moment("$datetime"),
    "$time": _moment("$time"),
    "$timedelta": lambda tag: _duration(*tag["$timedelta"]),
    **{
        name: _only(name)
        for name in (
            "$tagged", "$tuple", "$set", "$frozenset", "$int", "$float", "$bytes", "$bytearray",
            "$date", "$uuid", "$decimal", "$path", "$ip", "$pattern",
        )
    },
}  # fmt: skip


def _duration(days: int, seconds: int, microseconds: int) -> str:
    from datetime import timedelta

    return str(timedelta(days, seconds, microseconds))
