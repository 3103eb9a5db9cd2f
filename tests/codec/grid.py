"""What the codec writes for every value under every annotation, recorded.

`python -m tests.codec.grid` writes it anew. The bytes are in logs, and their hashes are in keys of
tools, so they must stay what they are: a difference is a break with every log there is. What is
refused is recorded by the kind of the error and the place it names, not by its words.
(Sets, paths and classes with open fields became natural JSON once; `docs/decisions/0051` says how
older logs are matched.)
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, Optional
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from holdfast.codec import Signature, shape_of
from holdfast.codec.secret import Secret
from holdfast.errors import Unserializable
from tests.codec import test_codec as c

RECORDED = Path(__file__).with_suffix(".jsonl")
NOON = datetime.fromisoformat("2024-02-29T12:30:00.000001")
OSLO = ZoneInfo("Europe/Oslo")

ANNOTATIONS: dict[str, Any] = {
    "Any": Any,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "None": None,
    "bytes": bytes,
    "datetime": datetime,
    "time": time,
    "date": date,
    "timedelta": timedelta,
    "UUID": UUID,
    "Decimal": Decimal,
    "Path": Path,
    "list": list,
    "dict": dict,
    "list[Any]": list[Any],
    "list[int]": list[int],
    "list[float]": list[float],
    "list[Room]": list[c.Room],
    "list[Anything]": list[c.Anything],
    "list[Lazy]": list[c.Lazy],
    "dict[str, int]": dict[str, int],
    "dict[int, str]": dict[int, str],
    "dict[str, Any]": dict[str, Any],
    "dict[UUID, int]": dict[UUID, int],
    "dict[float, int]": dict[float, int],
    "tuple[int, str]": tuple[int, str],
    "tuple[int, ...]": tuple[int, ...],
    "set[int]": set[int],
    "frozenset[str]": frozenset[str],
    "int | None": int | None,
    "Optional[str]": Optional[str],  # noqa: UP045 (another class than `str | None`)
    "int | str": int | str,
    "int | float": int | float,
    "Room | int": c.Room | int,
    "Literal": Literal["a", 1],
    "Annotated": Annotated[int, msgspec.Meta(ge=0)],
    "UserId": c.UserId,
    "Color": c.Color,
    "Level": c.Level,
    "Odd": c.Odd,
    "Room": c.Room,
    "Point": c.Point,
    "Hotel": c.Hotel,
    "Computed": c.Computed,
    "Counting": c.Counting,
    "NotYet": c.NotYet,
    "Lazy": c.Lazy,
    "Tree": c.Tree,
    "Link": c.Link,
    "Box[int]": c.Box[int],
    "Anything": c.Anything,
    "Pair": c.Pair,
    "Message": c.Message,
    "Partial": c.Partial,
    "Packed": c.Packed,
    "Frozen": c.Frozen,
    "Sparse": c.Sparse,
    "Maybe": c.Maybe,
    "Cat | Dog": c.Cat | c.Dog,
    "Guest": c.Guest,
    "Secretive": c.Secretive,
    "Hashed": c.Hashed,
    "Secret": Secret,
    "list[Secret]": list[Secret],
    "dict[str, Secret]": dict[str, Secret],
    "Secret | None": Secret | None,
    "tuple[int, Secret]": tuple[int, Secret],
}


def _nested(depth: int, around: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    return value


def _with(value: Any, **attributes: Any) -> Any:
    vars(value).update(attributes)
    return value


def _itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _lazy() -> c.Lazy:
    value = c.Lazy(3)
    assert value.square == 9
    return value


def values() -> dict[str, Any]:
    """The values by their numbers, or by how they are called. Add new ones at the end."""
    plain: list[Any] = [
        *(None, True, False, 0, 1, -1, 3, 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1),
        *(10**4299, -(10**4299), 10**4300, 0.0, -0.0, 1.5, 1e300, 3.0),
        *(float("inf"), float("nan"), "", "a", "$a", "é ✓", "\ud800", b"", b"\xff"),
        *(bytearray(b"x"), [], {}, (), set(), frozenset(), [1], [1, 2], [True, False], [1, True]),
        *([1.0, 2.0], [1, 2.0], ["a", None], ["a", b"b"], [[1], [2]], [[1], ["x"]], [{"a": 1}]),
        *([{"a": 1}, {"a": "b"}], [2**63], [float("nan")], [1, float("inf")], (1, "a"), (1, 2)),
        *((1,), ((1,), (2,)), {1}, {1, 2, 3}, frozenset({"a"}), {"a": 1}, {"a": "b"}, {1: "a"}),
        *({"$a": 1}, {"a": {"$b": 1}}, {"two words": b"x"}, {(1, 2): 3}, {True: 1}, {1.5: 1}),
        *({None: 1}, {"a": [1, {"b": (1, {2})}]}, {"$tagged": 1}, {"a": 1, 2: "b"}),
        *(NOON, NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=OSLO), NOON.replace(fold=1)),
        *(NOON.replace(tzinfo=timezone(timedelta(hours=2))), NOON.date(), NOON.time()),
        *(NOON.replace(tzinfo=timezone(timedelta(seconds=61))), NOON.time().replace(tzinfo=UTC)),
        *(NOON.replace(tzinfo=timezone(timedelta(hours=2), "X")), timedelta(days=-1, seconds=3)),
        *(timedelta(0), UUID(int=7), Decimal("1.50"), Decimal("NaN"), Decimal("sNaN")),
        *(Path("/tmp/a"), PurePosixPath("b"), PureWindowsPath("c"), msgspec.UNSET),
        *(c.Color.RED, c.Level.HIGH, c.Word.YES, c.Odd.PAIR, c.Odd.SET, c.Rights.READ),
        *(c.TextOf("t"), c.NumberOf(2.5), c.Room("a", 2), c.Suite("s"), [c.Room("a"), c.Room("b")]),
        *([c.Suite("a"), c.Room("b")], c.Point(1, 2.0), c.Point(1, 2), c.Hotel([c.Room("a")])),
        *(c.Computed(2), c.Counting(1), c.NotYet("n"), c.Lazy(2), [c.Lazy(1), c.Lazy(2)]),
        *(c.Tree(1, [c.Tree(2), c.Tree(3)]), c.Link(c.Link()), c.Box(1), c.Box("x"), c.Anything(1)),
        *(c.Anything((1, 2)), c.Anything(c.Room("a")), c.Pair(1), c.Loose(1, 2), c.Packed(1, [2])),
        *(c.Frozen(some_x=1), c.Sparse(), c.Sparse(4), c.Hooked(1), c.Maybe(), c.Maybe(1)),
        *(c.Cat(9), c.Dog(1), c.Guest("g"), c.Secretive(1), c.Hashed(1), c.Trouble(1)),
        *({"role": "user", "content": "x"}, {"role": "user", "content": "x", "more": 1}),
        *({"at": NOON}, {UUID(int=1): 2}, OrderedDict(a=1), defaultdict(int, a=1), object),
        *([c.Anything(1), c.Anything("x")], [c.Anything([1]), c.Anything((1,))]),
        *(NOON.replace(tzinfo=timezone(timedelta(minutes=-61))), NOON.time().replace(fold=1)),
        *(NOON.time().replace(tzinfo=OSLO), NOON.replace(tzinfo=OSLO, fold=1)),
        *(NOON.replace(tzinfo=timezone(timedelta(0))), NOON.replace(tzinfo=UTC)),
        *([NOON, NOON.replace(fold=1)], {"at": NOON.replace(tzinfo=OSLO)}),
    ]
    made = {str(number): value for number, value in enumerate(plain)}
    for depth in (98, 99, 100, 101, 400):
        made[f"lists {depth}"] = _nested(depth, lambda value: [value])
        made[f"texts in lists {depth}"] = _nested(depth, lambda value: ["a", value])
        made[f"tuples {depth}"] = _nested(depth, lambda value: (value,))
        made[f"dicts {depth}"] = _nested(depth, lambda value: {"a": value})
        made[f"pairs {depth}"] = _nested(depth, lambda value: {1: value})
        made[f"links {depth}"] = _nested(
            depth, lambda value: c.Link(value if isinstance(value, c.Link) else None)
        )
        made[f"trees {depth}"] = _nested(
            depth, lambda value: c.Tree(1, [value] if isinstance(value, c.Tree) else [])
        )
        made[f"objects {depth}"] = _nested(depth, c.Anything)
    made["itself"] = _itself()
    made["a room with more"] = _with(c.Room("a"), view="sea")
    made["a room with less"] = _less(c.Room("a"))
    made["rooms, one with more"] = [c.Room("a"), _with(c.Room("b"), view="sea")]
    made["a hotel with a room with more"] = c.Hotel([c.Room("x"), _with(c.Room("a"), view="sea")])
    made["lazy, looked at"] = _lazy()
    made["lazies, looked at"] = [c.Lazy(1), _lazy()]
    made["anything with more"] = _with(c.Anything(1), view="sea")
    made["a named secret"] = Secret.named("HOLDFAST_GRID")
    made["named secrets"] = [Secret.named("HOLDFAST_GRID"), 1]
    made["secrets by name"] = {"a": Secret.named("HOLDFAST_GRID")}
    made["a pair with a secret"] = (1, Secret.named("HOLDFAST_GRID"))
    made["a secret of its own"] = Secret("hunter2222")
    return made


def _less(room: c.Room) -> c.Room:
    del room.beds
    return room


def outcome(make: Callable[[], bytes]) -> str:
    """What was written, or how it was refused and where."""
    try:
        text = make().decode()
    except Exception as error:
        return refusal(error)
    return text if len(text) < 150 else f"{text[:40]}… {hashlib.sha256(text.encode()).hexdigest()}"


def refusal(error: Exception) -> str:
    """The kind of an error, and the place in it."""
    place = re.search(r" at ([.\[]\S*)", str(error))
    kind = "-" if type(error) is Unserializable else type(error).__name__
    return f"{kind} {place[1][:60] if place else ''}".strip()


def written(annotation: Any) -> dict[str, str]:
    """What an annotation makes of every value."""
    shape = shape_of(annotation)
    return {called: outcome(partial(shape.dump, value)) for called, value in values().items()}


# Arguments by name, and how they come back.


class Key(str):
    """Injected."""


def _plain(a: int, b: str = "x") -> None: ...
def _by_name(a: int, *, b: str, c: int = 3) -> None: ...
def _positional(a: int, /, b: int) -> None: ...
def _many(a: int, *rest: int, **more: str) -> None: ...
def _rest(*rest: Any) -> None: ...
def _more(**more: Any) -> None: ...
def _injected(a: int, *, key: Key, b: int = 0) -> None: ...
def _injected_first(key: Key, a: int = 1) -> None: ...
def _maybe_injected(a: int, *, key: Key | None = None) -> None: ...
def _nothing() -> None: ...
def _lists(chat: list[str], more: list[int] | None = None) -> None: ...


FUNCTIONS = (
    *(_plain, _by_name, _positional, _many, _rest, _more, _injected, _injected_first),
    *(_maybe_injected, _nothing, _lists),
)
ARGUMENTS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    *(((), {}), ((1,), {}), ((1, "y"), {}), ((1, 2), {}), ((1, 2, 3), {}), (("x",), {})),
    *(((), {"a": 1}), ((), {"b": "x"}), ((1,), {"b": "x"}), ((1,), {"a": 1}), ((1,), {"b": 2})),
    *(((1,), {"b": "x", "c": 4}), ((1,), {"z": "y"}), ((), {"z": (1, 2)}), ((1,), {"key": "k"})),
    *(((1, 2, 3), {"z": "y"}), (([],), {}), ((["a"],), {"more": [1]}), ((), {"more": [1]})),
)
STORED = (
    *(b"{}", b'{"a":1}', b'{"a":1,"b":"x"}', b'{"b":"x"}', b'{"b":2}', b'{"a":"x"}', b"[]"),
    *(b'{"a":1,"rest":[2,3]}', b'{"rest":[2]}', b'{"a":1,"more":{"z":"y"}}', b'{"a":1,"z":2}'),
    *(b'{"b":"x","a":1}', b'{"a":1,"b":"x","c":5}', b"nonsense", b'{"more":{"z":[1]}}'),
)


def called(function: Callable[..., Any]) -> dict[str, str]:
    """What a function makes of arguments, and of what was stored."""
    signature = Signature.of(function, injected=(Key,))
    found = {
        f"{args} {kwargs}": outcome(partial(signature.dump, args, kwargs))
        for args, kwargs in ARGUMENTS
    }
    for data in STORED:
        found[f"load {data.decode()}"] = outcome(partial(_loaded, signature, data))
    return found


def _loaded(signature: Signature, data: bytes) -> bytes:
    return repr(signature.load(data)).encode()


ROWS: dict[str, Callable[[], dict[str, str]]] = {
    **{name: partial(written, annotation) for name, annotation in ANNOTATIONS.items()},
    **{function.__name__: partial(called, function) for function in FUNCTIONS},
}


def record() -> None:
    """Write what the codec does now."""
    with RECORDED.open("wb") as out:
        for name, row in ROWS.items():
            out.write(msgspec.json.encode({"of": name, "makes": row()}) + b"\n")


if __name__ == "__main__":
    record()
