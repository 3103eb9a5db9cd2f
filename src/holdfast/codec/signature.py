"""A function's arguments as bytes: by name, only what was passed."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from holdfast.codec.growing import Growing, KnownList, Listing, naming
from holdfast.codec.scalars import INT64, encode
from holdfast.codec.secret import Secret
from holdfast.codec.secrets import hidden_in, keeping, with_hidden, with_secrets, without
from holdfast.codec.shape import Shape, args_hash, shape_of
from holdfast.core.lists import value_of
from holdfast.errors import BadInput, HoldfastError, HoldsSecret, Undecodable, Unserializable

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments by position, and those by name."""

_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Signature:
    """A function's parameters and result, compiled once.

    `names` are the parameters that are stored. `injected` are those that are not: the caller
    leaves them out, and the caller fills them in by name.

    >>> def find_rooms(city: str, *, beds: int = 1) -> list[str]: ...
    >>> signature = Signature.of(find_rooms)
    >>> signature.dump(("Oslo",), {"beds": 2})
    b'{"city":"Oslo","beds":2}'
    >>> signature.returns.dump(["attic"])
    b'["attic"]'
    """

    def __init__(
        self, fn: Callable[..., Any], slots: list[_Slot], injected: list[str], returns: Shape
    ) -> None:
        self.name: str = _name_of(fn)
        self.names: tuple[str, ...] = tuple(slot.name for slot in slots)
        self.injected: tuple[str, ...] = tuple(injected)
        self.returns = returns
        self._fn = fn
        self._slots = slots
        self._open = {slot.name for slot in slots if slot.is_open}
        self.entries: str = next((slot.name for slot in slots if slot.how == "entries"), "")
        """The parameter that takes what no other does, as `**options`."""
        stored = [slot.parameter for slot in slots]
        self._signature = inspect.Signature(stored)
        self._is_simple = not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in stored)
        self._positional = tuple(p.name for p in stored if p.kind < p.VAR_POSITIONAL)
        self._keywords = {p.name for p in stored if p.kind is not p.POSITIONAL_ONLY}
        by_position = len(self._positional) == len(stored)
        self._all_by_position = len(stored) if by_position else -1
        """How many arguments there are if all are given by position; -1 if they can't be."""
        self._plain_by_position = -1 if injected else self._all_by_position
        self._bare = [slot.shape.bare if slot.shape else frozenset[type]() for slot in slots]
        self._required = {p.name for p in stored if p.default is p.empty}
        has_defaults = len(self._required) < len(stored)
        self.digest: Callable[[bytes], str] = self._digest_of_essence if has_defaults else args_hash
        """Makes a short name for the content of arguments, by which a call is known."""

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        *,
        injected: tuple[type, ...] = (),
        streams: bool = False,
        is_method: bool = False,
    ) -> Signature:
        """Compile a function's signature. Parameters annotated with `injected` are not stored, nor
        is the first one of a method.

        A generator (`streams`) returns the list of its yields.

        >>> class Key(str): ...
        >>> def book(room: str, *, key: Key) -> None: ...
        >>> signature = Signature.of(book, injected=(Key,))
        >>> signature.dump(("attic",), {}), signature.injected
        (b'{"room":"attic"}', ('key',))
        """
        name, hints = _name_of(fn), hints_of(fn)
        slots: list[_Slot] = []
        filled: list[str] = []
        for parameter in list(_parameters(fn))[is_method:]:
            hint = hints.get(parameter.name, Any)
            if _is_injected(hint, injected):
                filled.append(parameter.name)
            else:
                shape = _shape_for(hint, f"{name}({parameter.name}=…)")
                slots.append(_Slot.of(parameter, shape, by_name=bool(filled)))
            if filled and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise BadInput(f"{name}({filled[0]}=…): it is given by name, so put it after a `*`")
        result = hints.get("return", Any)
        if streams:
            parts = typing.get_args(result)
            result = list[parts[0]] if parts else list[Any]  # type: ignore[valid-type]
        returns = _shape_for(result, f"the result of {name}")
        return cls(fn, slots, filled, returns)

    def dump(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], growing: Growing | None = None
    ) -> bytes:
        """The arguments of a call as a JSON object by parameter name; only what was given.

        With `growing`, long lists are taken out of it and named. Arguments that the function does
        not take raise the `TypeError` that calling it would.

        >>> def add(x: int, y: int = 0) -> int: ...
        >>> Signature.of(add).dump((1,), {})
        b'{"x":1}'
        >>> Signature.of(add).dump((), {"y": 1})
        Traceback (most recent call last):
        TypeError: add() missing 1 required positional argument: 'x'
        """
        return self._dumped(self._bind(args, kwargs), growing, None)

    def dump_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], growing: Growing | None = None
    ) -> bytes:
        """The same for a call that is made from here: it may be given secrets by their value.

        >>> from holdfast.codec.secret import Secret
        >>> def login(user: str, key: Secret) -> None: ...
        >>> data = Signature.of(login).dump_call(("ada", Secret("hunter22")), {})
        >>> data, Signature.of(login).load(data)
        (b'{"user":"ada","key":{"$secret":0}}', (('ada', Secret(•••)), {}))
        """
        secrets: list[Secret] = []
        if len(args) == self._all_by_position and not kwargs:
            given = dict(zip(self.names, args, strict=True))
        else:
            given = self._bind(args, kwargs)
        data = self._dumped(given, growing, secrets)
        return with_secrets(data, secrets) if secrets else data

    def take(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], growing: Growing | None = None
    ) -> tuple[bytes, Given | None]:
        """The arguments of a call that is made from here, as JSON and as `load` would give them.

        Those that `load` would give are there only where they are the very same: plain values
        that nobody can change. Others have to be loaded.

        >>> def add(x: int, y: float = 0) -> int: ...
        >>> Signature.of(add).take((1, 2), {})
        (b'{"x":1,"y":2}', None)
        >>> def greet(name: str, times: int) -> str: ...
        >>> Signature.of(greet).take(("Ada", 2), {})
        (b'{"name":"Ada","times":2}', (('Ada', 2), {}))
        """
        if len(args) == self._plain_by_position and not kwargs:
            for value, bare in zip(args, self._bare, strict=True):
                if type(value) not in bare or (type(value) is int and value not in INT64):
                    break
            else:
                try:
                    return encode(dict(zip(self.names, args, strict=True))), (args, kwargs)
                except UnicodeEncodeError:
                    pass  # which is told below, with its place
        return self.dump_call(args, kwargs, growing), None

    def _dumped(
        self, given: dict[str, Any], growing: Growing | None, secrets: list[Secret] | None
    ) -> bytes:
        written = []
        named: dict[tuple[str, ...], KnownList] = {}
        name = ""
        try:
            for name, start, dump, _, _, shape, _, _, _ in self._slots:
                if name not in given:
                    continue
                value = given[name]
                try:
                    known = None
                    if type(value) is list and growing is not None and shape is not None:
                        known = growing.find(value, shape)
                    if known is not None:
                        named[name,] = known
                    written.append(start + (dump(value) if known is None else b"null"))
                except HoldsSecret:
                    if secrets is None:
                        raise
                    with keeping(secrets):
                        written.append(start + dump(value))
        except Unserializable as error:
            raise type(error)(f"{self.name}({name}=…): {error}") from error.__cause__
        data = b"{%b}" % b",".join(written)
        return naming(data, named) if named else data

    def shape(self, name: str) -> Shape | None:
        """The shape of a parameter; None for one that takes any number of values.

        >>> def add(x: int, *more: int) -> int: ...
        >>> Signature.of(add).shape("x").dump(3), Signature.of(add).shape("more")
        (b'3', None)
        """
        return next(slot.shape for slot in self._slots if slot.name == name)

    def load(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with, as `dump` was given them.

        >>> def add(x: int, y: int = 0) -> int: ...
        >>> Signature.of(add).load(b'{"x":1,"y":2}')
        ((1, 2), {})
        """
        secrets = None if type(data) is bytes else getattr(data, "secrets", None)
        if secrets is None:
            return self._loaded(data)
        with keeping(secrets):
            return self._loaded(data)

    def accept(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same for arguments from outside, such as those that a model wrote."""
        return self._loaded(data, accept=True)

    def essence(self, data: bytes) -> bytes:
        """Arguments without those that are their defaults: `f(a)` and `f(a, 2)` are the same call
        where 2 is the default. Calls are matched by this; what is written has all that was given.

        >>> def add(x: int, y: int = 0) -> int: ...
        >>> Signature.of(add).essence(b'{"x":1,"y":0}')
        b'{"x":1}'
        """
        named = data.known if isinstance(data, Listing) else {}
        given = _split_object(value_of(data) if named else data)
        left = {
            name: raw
            for name, raw in given.items()
            if (name,) in named or bytes(raw) != self._defaults.get(name)
        }
        if len(left) == len(given):
            return data
        rest = msgspec.json.encode(left)
        return naming(rest, named) if named else rest

    def _digest_of_essence(self, data: bytes) -> str:
        return args_hash(self.essence(data))

    def is_same(self, recorded: bytes, digest: str) -> bool:
        """Whether arguments from a log are those of a digest, if in other words: an older version
        counted defaults that were given, and wrote some classes with tags."""
        return self.digest(self.restated(recorded)) == digest

    @functools.cached_property
    def _defaults(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for slot in self._slots:
            default = slot.parameter.default
            if slot.shape is not None and default is not slot.parameter.empty:
                with suppress(HoldfastError):  # what can't be stored is never given either
                    found[slot.name] = slot.dump(default)
        return found

    def restated(self, data: bytes) -> bytes:
        """Arguments from a log as they are written today, where an older version, or the class
        of that day, wrote them otherwise; as they are, where they can't be read.

        >>> def add(x: int, y: int = 0) -> int: ...
        >>> Signature.of(add).restated(b'{"x": 1}')
        b'{"x":1}'
        """
        slots = {slot.name: slot for slot in self._slots}
        written = []
        for name, raw in _split_object(data).items():
            again = bytes(raw)
            if name in slots:
                with suppress(HoldfastError):
                    again = slots[name].dump(slots[name].load(again))
            written.append(b"%b:%b" % (encode(name), again))
        return b"{%b}" % b",".join(written)

    def without(self, data: bytes, hides: Callable[[str], bool]) -> tuple[bytes, tuple[str, ...]]:
        """Arguments with those left out that are to be hidden by name; and those that are texts.

        >>> def login(user: str, password: str) -> None: ...
        >>> data = b'{"user":"ada","password":"hunter22"}'
        >>> Signature.of(login).without(data, {"password"}.__contains__)
        (b'{"user":"ada","password":{"$redacted":true}}', ('hunter22',))
        """
        if not isinstance(data, Listing):
            return without(data, hides, self.entries, self._open.__contains__)
        # Long lists stand beside the rest, which has a null for each.
        left = {path: known for path, known in data.known.items() if not hides(path[0])}
        gone = [path[0] for path in data.known if path not in left]
        rest = with_hidden(value_of(data), gone)
        shown, texts = without(rest, hides, self.entries, self._open.__contains__)
        return naming(shown, left) if left else shown, texts

    def left_out(self, data: bytes) -> frozenset[str]:
        """Which arguments were left out of what a log holds."""
        return hidden_in(data, self.entries)

    def _loaded(
        self, data: bytes, *, accept: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        in_order = True
        name = ""
        named = data.known if isinstance(data, Listing) else {}
        try:
            stored = _split_object(value_of(data) if named else data)
            for name, _, _, load, take, _, how, _, _ in self._slots:
                if name not in stored:
                    in_order = in_order and how != "position"
                    continue
                raw = stored.pop(name)
                known = named.get((name,))
                if accept:
                    load = take
                value = load(bytes(raw)) if known is None else known.copies()
                if how == "position" and in_order:
                    args.append(value)
                elif how == "items" and in_order:
                    args.extend(value)
                elif how == "items":
                    raise Undecodable("there is no value for a parameter before it")
                elif how == "entries":
                    kwargs.update(value)
                else:
                    kwargs[name] = value
        except (Undecodable, msgspec.DecodeError) as error:
            where = f"{self.name}({name}=…)" if name else self.name
            raise Undecodable(f"{where}: {error}") from error.__cause__
        if stored:
            raise Undecodable(f"{self.name}({next(iter(stored))}=…): it has no such parameter")
        return tuple(args), kwargs

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name. The plain case is by hand: `inspect` takes 5 µs for it."""
        for name in self.injected:
            if name in kwargs:
                raise TypeError(f"{self.name}() gets {name!r} inside a task; leave it out")
        if self._is_simple and len(args) <= len(self._positional):
            given = dict(zip(self._positional, args, strict=False))
            is_clear = not kwargs or (
                kwargs.keys() <= self._keywords and kwargs.keys().isdisjoint(given)
            )
            given.update(kwargs)
            if is_clear and given.keys() >= self._required:
                return given
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            self._refuse(args, kwargs, error)

    def _refuse(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError) -> NoReturn:
        fn = self._fn
        # The arguments don't fit, so calling a plain function can't reach its body: Python refuses
        # them, in the words that everyone knows.
        if (
            type(fn) is types.FunctionType
            and not {"__wrapped__", "__signature__"} & vars(fn).keys()
        ):
            fn(*args, **dict.fromkeys(self.injected), **kwargs)
        raise TypeError(f"{self.name}() {error}")


class _Slot(NamedTuple):
    """One parameter, ready for use."""

    name: str
    start: bytes
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    accept: Callable[[bytes], Any]
    shape: Shape | None
    how: Literal["position", "name", "items", "entries"]
    parameter: inspect.Parameter
    is_open: bool

    @classmethod
    def of(cls, parameter: inspect.Parameter, shape: Shape, *, by_name: bool) -> _Slot:
        """Compile a parameter; `by_name` if it can't be given by position."""
        name, start = parameter.name, b"%b:" % encode(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            ways = _items(shape)
            return cls(name, start, *ways, None, "items", parameter, shape.is_open)
        if parameter.kind is parameter.VAR_KEYWORD:
            ways = _entries(shape)
            return cls(name, start, *ways, None, "entries", parameter, shape.is_open)
        by_name = by_name or parameter.kind is parameter.KEYWORD_ONLY
        how: Any = "name" if by_name else "position"
        ways = shape.dump, shape.load, shape.accept
        return cls(name, start, *ways, shape, how, parameter, shape.is_open)


_Ways = tuple[Callable[[Any], bytes], Callable[[bytes], Any], Callable[[bytes], Any]]


def _items(shape: Shape) -> _Ways:
    """For `*args`: each is of the shape."""

    def dump(values: tuple[Any, ...]) -> bytes:
        return b"[%b]" % b",".join(map(shape.dump, values))

    def each(read: Callable[[bytes], Any], data: bytes) -> list[Any]:
        return [read(bytes(raw)) for raw in _split_array(data)]

    return dump, functools.partial(each, shape.load), functools.partial(each, shape.accept)


def _entries(shape: Shape) -> _Ways:
    """For `**kwargs`: each is of the shape."""
    text = shape_of(str)

    def dump(values: dict[str, Any]) -> bytes:
        pairs = (b"%b:%b" % (text.dump(key), shape.dump(item)) for key, item in values.items())
        return b"{%b}" % b",".join(pairs)

    def each(read: Callable[[bytes], Any], data: bytes) -> dict[str, Any]:
        return {key: read(bytes(raw)) for key, raw in _split_object(data).items()}

    return dump, functools.partial(each, shape.load), functools.partial(each, shape.accept)


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


def _parameters(fn: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadInput(f"{_name_of(fn)}: its parameters can't be read ({error})") from error


def _is_injected(hint: Any, injected: tuple[type, ...]) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated):
        return any(part in injected for part in typing.get_args(hint))
    return hint in injected


def _shape_for(hint: Any, whose: str) -> Shape:
    try:
        return shape_of(hint)
    except BadInput as error:
        raise BadInput(f"{whose}: {error}") from None


def hints_of(fn: Any) -> dict[str, Any]:
    """The annotations of a function, with those that are text turned into types."""
    target = fn if inspect.isroutine(fn) else getattr(fn, "func", type(fn).__call__)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception as error:  # whatever the text of an annotation may raise
        raise _unresolved(fn, target, error) from error


def _unresolved(fn: Any, target: Any, error: Exception) -> BadInput:
    """An error that names the annotation which could not be resolved."""
    where = _name_of(fn)
    for name, annotation in getattr(target, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            typing.get_type_hints(alone, globalns=getattr(target, "__globals__", {}))
        except Exception:
            what = "the result of {}" if name == "return" else "{}({}=…)"
            where = f"{what.format(where, name)}: the annotation {annotation!r}"
            break
    return BadInput(
        f"{where} can't be resolved: {error}. Import or define the name at the top of the module, "
        f"where it exists when the program runs (not under `if TYPE_CHECKING`)"
    )
