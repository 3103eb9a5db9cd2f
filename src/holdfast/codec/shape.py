"""How the values of one annotation become bytes, and come back."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.codec.classes import Declared, made_once, reach
from holdfast.codec.closed import Closed, NaturalWay, closed_way
from holdfast.codec.outside import Outside
from holdfast.codec.pydantic_types import PydanticAdapter
from holdfast.codec.scalars import TOO_DEEP, Misfit, decode, encode, name_of
from holdfast.codec.secrets import Unkept, must_be_secret
from holdfast.codec.tags import Open, has_tags
from holdfast.core.decoding import is_too_deep
from holdfast.core.lists import FEWEST_BYTES, LISTED, REFERENCES, for_hashing
from holdfast.errors import HoldsSecret, Undecodable, Unserializable


class Shape:
    """How the values of one annotation become bytes, and come back.

    >>> shape = shape_of(list[int])
    >>> shape.dump([1, 2])
    b'[1,2]'
    >>> shape.load(b"[1,2]")
    [1, 2]
    """

    __slots__ = ("_way", "annotation")

    def __init__(self, annotation: Any, way: Outside | Closed | NaturalWay | _Strict) -> None:
        self.annotation: Any = annotation
        self._way = way

    @property
    def bare(self) -> frozenset[type]:
        """The types whose values come back as they are; an int, if it has no more than 64 bits."""
        bare: frozenset[type] = self._way.bare
        return bare

    @property
    def is_open(self) -> bool:
        """Whether what it writes has tags, so that nothing else looks like one."""
        return not isinstance(self._way, Closed | NaturalWay)

    def dump(self, value: Any) -> bytes:
        """The value as compact JSON, or `Unserializable` that says where and why not.

        >>> shape_of(Any).dump({"a": (1, 2)})
        b'{"a":{"$tuple":[1,2]}}'
        >>> shape_of(list[str]).dump(["a", b"b"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        holdfast.errors.Unserializable: ... list[str]: expected str at [1], found bytes
        """
        try:
            return self._way.dump(value)
        except Exception as error:
            raise _refusal(value, error) from error.__cause__

    def load(self, data: bytes) -> Any:
        """The value that `dump` was given, or `Undecodable`.

        >>> shape_of(int).load(b'"x"')
        Traceback (most recent call last):
        holdfast.errors.Undecodable: stored data does not fit int: Expected `int`, got `str`
        """
        try:
            return self._way.load(data)
        # Each fault of the data shows in a way of its own, and all mean the same.
        except Exception as error:
            what = f"stored data does not fit {name_of(self.annotation)}"
            raise Undecodable(f"{what}: {_said(error)}") from error

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside: of a model, a person, a command line.

        >>> shape_of(list[int]).accept(b'["x"]')
        Traceback (most recent call last):
        holdfast.errors.Undecodable: Expected `int`, got `str` - at `$[0]`
        """
        try:
            return self._way.accept(data)
        except Exception as error:
            raise Undecodable(_said(error)) from error

    def given(self, value: Any) -> bytes:
        """A value from outside as it goes into the log: an object, or plain data of one.

        >>> shape_of(tuple[int, ...]).given([1, 2])
        b'[1,2]'
        """
        if type(value) is Raw:  # see `from_outside`
            return self._accepted(bytes(value))
        is_plain = type(value) in (dict, list, str)
        if is_plain and isinstance(self._way, Outside):
            try:
                data = shape_of(Any).dump(value)
            except Unserializable:  # there are objects in it
                return self.settle(value)[0]
            return self._accepted(data)
        try:
            return self.settle(value)[0]
        except HoldsSecret:
            raise
        except Unserializable:
            if not is_plain:
                raise
            return self._accepted(shape_of(Any).dump(value))

    def _accepted(self, data: bytes) -> bytes:
        try:
            return self.settle(self.accept(data))[0]
        except Undecodable as error:
            raise Unserializable(str(error)) from None

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The bytes, and the value as a replay will see it; that one is to be used from here on.

        >>> shape_of(tuple[int, ...]).settle((1, 2))
        (b'[1,2]', (1, 2))
        """
        try:
            return self._way.settle(value)
        except Exception as error:
            raise _refusal(value, error) from error.__cause__


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.DecodeError | Misfit) else repr(error)


def _refusal(value: Any, error: Exception) -> Unserializable:
    match error:
        case Unkept():
            return HoldsSecret(str(error))
        case Misfit():
            return Unserializable(str(error))
        case UnicodeEncodeError():
            text = error.object[max(error.start - 10, 0) : error.end + 10]
            return Unserializable(
                f"the text {text!a} holds half of a surrogate pair, which UTF-8 can't store"
            )
        case RecursionError():
            return Unserializable(TOO_DEEP.replace("{at}", ""))
    return Unserializable(f"a value of type {type(value).__name__} can't be stored: {error!r}")


def shape_of(annotation: Any) -> Shape:
    """The shape of an annotation. None at all (`inspect.Parameter.empty`) counts as `Any`.

    >>> shape_of(Any).settle({1, 2})
    (b'{"$set":[1,2]}', {1, 2})
    """
    return _known_shape(annotation)


def _make_shape(annotation: Any) -> Shape:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    declared = reach(annotation)
    tagged = Open(declared.classes)
    if declared.secret:
        return Shape(annotation, _Strict(annotation, tagged, declared))
    return Shape(
        annotation, closed_way(annotation, tagged, declared) or Outside(annotation, tagged)
    )


def from_outside(value: Any) -> Any:
    """Decoded JSON of a person, for `Shape.given`. A value copied from a log has tags, and only an
    annotation can read those, so it stays JSON.

    >>> shape_of(Any).given(from_outside({"$tuple": [1, 2]}))
    b'{"$tuple":[1,2]}'
    >>> shape_of(Any).given({"$tuple": [1, 2]})
    b'{"$dict":[["$tuple",[1,2]]]}'
    """
    return Raw(encode(value)) if has_tags(value) else value


def unchecked(value: Any) -> bytes:
    """A value from outside as it goes into the log, where the code that knows its type is not at
    hand. JSON with tags goes in as it is: the process that has the code reads it, and checks it.

    >>> unchecked(from_outside({"$type": "Room", "of": {"beds": 2}}))
    b'{"$type":"Room","of":{"beds":2}}'
    """
    if type(value) is not Raw:
        return shape_of(Any).dump(value)
    data = bytes(value)
    if is_too_deep(data):
        raise Unserializable(TOO_DEEP.replace("{at}", ""))
    if data.startswith(REFERENCES):
        raise Unserializable("it begins like a reference, and only the log itself may hold one")
    return data


class _Strict:
    """The open way for an annotation with `Secret` in it, where nothing else will do."""

    bare: frozenset[type] = frozenset()

    def __init__(self, annotation: Any, tagged: Open, declared: Declared) -> None:
        self._annotation = annotation
        self._tagged = tagged
        self._adapter = None
        if declared.pydantic and not declared.loose:
            self._adapter = PydanticAdapter.of(annotation, hides=True)

    def load(self, data: bytes) -> Any:
        value = self._tagged.load(data)
        must_be_secret(self._annotation, value)
        return value

    def accept(self, data: bytes) -> Any:
        return self.load(data) if self._adapter is None else self._adapter.accept(data)

    def dump(self, value: Any) -> bytes:
        return self.settle(value)[0]

    def settle(self, value: Any) -> tuple[bytes, Any]:
        given = value if self._adapter is None else self._adapter.enter(value)
        must_be_secret(self._annotation, given)
        return self._tagged.settle(given)


_known_shape = made_once(_make_shape)


_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def canonical(data: bytes) -> bytes:
    """The same JSON with the keys of its objects sorted, for hashing.

    >>> canonical(b'{"b":1,"a":2}')
    b'{"a":2,"b":1}'
    """
    if b"{" not in data:
        return data
    try:
        return _encode_sorted(decode(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}") from error


def args_hash(data: bytes) -> str:
    """A short name for the content of some JSON: 16 hex digits.

    >>> args_hash(b'{"city":"Oslo","n":2}') == args_hash(b'{"n":2,"city":"Oslo"}')
    True
    """
    if len(data) >= FEWEST_BYTES or data.startswith(LISTED):
        data = for_hashing(data)
    # Where there is no comma no object has a second key, and there is nothing to sort.
    return hashlib.sha256(canonical(data) if b"," in data else data).hexdigest()[:16]


def shape_of_value(value: Any) -> Shape:
    """The shape of a value that has no annotation: its own type says as much, and so do the items
    of a list.

    >>> shape_of_value([1, 2]).annotation
    list[int]
    """
    kind = getattr(type(value), "holdfast_plain", type(value))
    if kind in (list, set, frozenset) and len({type(item) for item in value}) == 1:
        return shape_of(kind[type(next(iter(value)))])
    return shape_of(kind)
