"""Pydantic's own types: validated and dumped by pydantic itself.

A value under a pydantic annotation is validated when it enters, dumped by pydantic, and validated
again when it is read. Dumps hold field names, whatever the aliases are, so that pydantic always
reads back what it wrote; data from outside may use either.

A recorded value is not judged again. A validator may ask the clock or the disk (`FutureDate`,
`FilePath`, "must be after today"), and what it says of a value may change while a task waits. So a
value in the log has to fit its types and constraints, and the validators have no veto.

Nothing here imports pydantic. A value or an annotation can only be of one of its types once
somebody else has imported it.
"""

from __future__ import annotations

import functools
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from holdfast.codec.scalars import Misfit
from holdfast.errors import BadInput

_BY_NAME = {"by_alias": False, "by_name": True}
_EITHER = {"by_alias": True, "by_name": True}


def is_model(cls: Any) -> bool:
    """Whether a class is a pydantic model."""
    return hasattr(cls, "model_dump") and hasattr(cls, "model_validate")


def is_parametrized(cls: Any) -> bool:
    """Whether pydantic made a class for a generic model with its parameters, as for `Box[int]`."""
    return bool(getattr(cls, "__pydantic_generic_metadata__", {}).get("origin"))


def is_leaf(cls: Any) -> bool:
    """Whether a class is one that comes with pydantic, such as `HttpUrl`."""
    # Pydantic makes an iterator of an Iterable, which can be read once.
    return _is_from_pydantic(cls) and not is_model(cls) and cls.__name__ != "ValidatorIterator"


def is_secret(cls: Any) -> bool:
    """Whether a class is one of pydantic's secrets."""
    return hasattr(cls, "get_secret_value") and any(map(_is_from_pydantic, cls.__mro__))


def is_pydantics(part: Any) -> bool:
    """Whether a part of an annotation (a class, or what `Annotated` adds) is for pydantic."""
    cls = part if isinstance(part, type) else type(part)
    if _is_from_pydantic(cls) or is_model(cls) or hasattr(cls, "__pydantic_validator__"):
        return True
    if isinstance(part, type):
        return False
    # Constraints such as Gt are pydantic's by way of PositiveInt; other libraries use them too.
    is_constraint = cls.__module__.partition(".")[0] == "annotated_types"
    return is_constraint and "pydantic" in sys.modules


def _is_from_pydantic(cls: Any) -> bool:
    module = getattr(cls, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in ("pydantic", "pydantic_core")


class PydanticAdapter:
    """Pydantic's `TypeAdapter` for one annotation: validates, dumps and reads its values."""

    def __init__(self, annotation: Any, *, hides: bool = False) -> None:
        pydantic: Any = sys.modules["pydantic"]  # loaded, or there would be no such annotation
        if tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 11):
            raise BadInput(f"pydantic {pydantic.VERSION} is too old: holdfast needs 2.11 or newer")
        self._annotation = annotation
        self._adapter = pydantic.TypeAdapter(annotation)
        self._refused = pydantic.ValidationError
        self._hides = hides

    @classmethod
    def of(cls, annotation: Any, *, hides: bool) -> PydanticAdapter | None:
        """The adapter; None if a class in the annotation is not one that pydantic knows."""
        pydantic: Any = sys.modules["pydantic"]
        try:
            return cls(annotation, hides=hides)
        except pydantic.errors.PydanticUserError:
            return None

    def enter(self, value: Any) -> Any:
        """A value as pydantic lets it in, or `Misfit` with pydantic's message."""
        try:
            return self._adapter.validate_python(value, **_EITHER)
        except self._refused as error:
            if _has_no_veto.get() or _is_of_instances(error):
                with suppress(Exception):
                    return self._forgiving.validate_python(value, **_EITHER)
            raise Misfit(self.message(error)) from None

    def write(self, value: Any) -> bytes:
        """The value as JSON, with the names of its fields."""
        data: bytes = self._adapter.dump_json(
            value, by_alias=False, round_trip=True, warnings=False
        )
        return data

    def read(self, data: bytes) -> Any:
        """The value of some JSON that was written here."""
        try:
            return self._adapter.validate_json(data, **_BY_NAME)
        except self._refused as error:
            with suppress(Exception):
                return self._forgiving.validate_json(data, **_BY_NAME)
            raise Misfit(self.message(error)) from None

    @functools.cached_property
    def _forgiving(self) -> Any:
        schema = self._adapter.core_schema
        vetoing = [*_vetoing_in(self._annotation), *_vetoing_of(schema)]
        made = sys.modules["pydantic_core"].SchemaValidator
        # Pydantic would take the validators that the classes of fields have already.
        return made(_forgiving_schema(schema, vetoing), _use_prebuilt=False)

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside, or `Misfit` with pydantic's message."""
        try:
            return self._adapter.validate_json(data, **_EITHER)
        except self._refused as error:
            if _has_no_veto.get():
                with suppress(Exception):
                    return self._forgiving.validate_json(data, **_EITHER)
            raise Misfit(self.message(error)) from None

    def schema(self) -> dict[str, Any]:
        """The JSON schema of what it accepts."""
        schema: dict[str, Any] = self._adapter.json_schema()
        return schema

    def must_be_valid(self, value: Any) -> None:
        """Raise `Misfit` for models that their own validators refuse: made, or changed, around
        them."""
        todo, seen = [value], set()
        while todo:
            this = todo.pop()
            if id(this) in seen:
                continue
            seen.add(id(this))
            if isinstance(this, dict):
                todo.extend(this.values())
            elif isinstance(this, list | tuple | set | frozenset):
                todo.extend(this)
            elif hasattr(this, "__dict__") and not isinstance(this, type):
                todo.extend(vars(this).values())
            if is_model(type(this)):
                self._must_be_valid_model(this)

    def _must_be_valid_model(self, model: Any) -> None:
        fields = type(model).model_fields
        held = {name: value for name, value in vars(model).items() if name in fields}
        is_root = issubclass(type(model), sys.modules["pydantic"].RootModel)
        given = held.get("root") if is_root else {**held, **(model.__pydantic_extra__ or {})}
        try:
            type(model).__pydantic_validator__.validate_python(given, **_BY_NAME)
        except self._refused as error:
            raise Misfit(self.message(error)) from None
        except Exception:  # of a validator that is only for what comes from outside
            return

    def must_fit(self, value: Any) -> None:
        """`enter` has seen to it."""

    def message(self, error: Any) -> str:
        """The words of pydantic, without the links; and without the input, if that may be
        secret."""
        if self._hides:
            found = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()]
            errors = "error" if len(found) == 1 else "errors"
            return f"{len(found)} validation {errors} for {error.title}: " + "; ".join(found)
        lines = str(error).splitlines()
        return "\n".join(line for line in lines if not line.startswith("    For further"))


def _is_of_instances(error: Any) -> bool:
    """Whether models themselves are refused, which were valid when they were made. Pydantic asks
    the validators of a whole model again, and those of its fields not."""
    return all(is_model(type(each["input"])) for each in error.errors())


def _place(loc: Iterable[Any]) -> str:
    return ".".join(map(str, loc)) or "value"


@functools.lru_cache(maxsize=4096)
def adapter_of(cls: Any) -> PydanticAdapter:
    """The adapter of a class of pydantic's, or of a model."""
    return PydanticAdapter(cls)


# Validators without a veto: pydantic's schema of an annotation is rewritten.

_has_no_veto: ContextVar[bool] = ContextVar("_has_no_veto", default=False)


@contextmanager
def without_veto() -> Iterator[None]:
    """Let in, meanwhile, what validators refuse now and let in once: it is recorded."""
    before = _has_no_veto.set(True)
    try:
        yield
    finally:
        _has_no_veto.reset(before)


_PLAIN_DATA = frozenset(
    {
        "metadata",
        "serialization",
        "default",
        "expected",
        "members",
        "config",
        "custom_error_context",
    }
)
_BY_CLOCK = frozenset({"now_op", "now_utc_offset"})
_NAMED_SCHEMAS = ("fields", "choices")


def _forgiving_schema(schema: Any, vetoing: list[Any]) -> Any:
    """A part of a schema whose validators still convert, and refuse nothing."""
    if isinstance(schema, list | tuple):
        return type(schema)(_forgiving_schema(each, vetoing) for each in schema)
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(part, dict):
            made[key] = {name: _forgiving_schema(each, vetoing) for name, each in part.items()}
        elif key in _PLAIN_DATA:
            made[key] = part
        elif key not in _BY_CLOCK:
            made[key] = _forgiving_schema(part, vetoing)
    function = schema.get("function")
    if isinstance(function, dict) and function.get("function") in vetoing:
        forgiving = _forgiving(function["function"], is_wrap=schema["type"] == "function-wrap")
        made["function"] = {**function, "function": forgiving}
    return made


def _forgiving(validate: Callable[..., Any], *, is_wrap: bool) -> Callable[..., Any]:
    def forgiving(value: Any, *more: Any) -> Any:
        try:
            return validate(value, *more)
        except Exception:  # whatever it may raise, it is no reason to lose what is recorded
            return more[0](value) if is_wrap else value

    return forgiving


def _vetoing_of(schema: Any) -> Iterator[Any]:
    """The validators that the classes of a schema declare, for themselves and for their fields.

    The function by which a type is made of JSON (of an `ObjectId`, say) looks the same in a schema.
    It is not among them: without it, the value would be of another type.
    """
    path_type = sys.modules["pydantic.types"].PathType
    yield from (item for name in vars(path_type) if callable(item := getattr(path_type, name)))
    todo = [schema]
    while todo:
        this = todo.pop()
        if isinstance(this, list | tuple):
            todo.extend(this)
        if not isinstance(this, dict):
            continue
        todo.extend(part for key, part in this.items() if key not in _PLAIN_DATA)
        cls = this.get("cls")
        if this.get("type") in ("model", "dataclass", "typed-dict") and isinstance(cls, type):
            declared = getattr(cls, "__pydantic_decorators__", None)
            for kind in ("validators", "field_validators", "root_validators", "model_validators"):
                yield from (each.func for each in getattr(declared, kind, {}).values())
            for field in getattr(cls, "__pydantic_fields__", {}).values():
                yield from _vetoing_in(field.rebuild_annotation())
            with suppress(Exception):  # a name that only a type checker knows
                for hint in typing.get_type_hints(cls, include_extras=True).values():
                    yield from _vetoing_in(hint)


def _vetoing_in(annotation: Any) -> Iterator[Any]:
    """The validators that an annotation adds: `Annotated[date, AfterValidator(is_open)]`."""
    for mark in getattr(annotation, "__metadata__", ()):
        if _is_from_pydantic(type(mark)) and hasattr(mark, "func"):
            yield mark.func
    alias = getattr(annotation, "__value__", None)
    inner = getattr(annotation, "__origin__", None)
    for part in (alias, inner, *typing.get_args(annotation)):
        if part is not None and part is not annotation and not isinstance(part, type):
            yield from _vetoing_in(part)


# Models taken apart into their fields: the way of tags, for what a dump does not bring back.

Parts = dict[str, Any]


def model_record(cls: Any) -> tuple[Callable[[Any], Parts], Callable[[Parts], Any]]:
    """How models of a class are taken apart, and put together again without their validators."""
    fields = cls.model_fields

    def apart(value: Any) -> Parts:
        held = vars(value)
        if lost := [name for name in lost_from_model(value) if name not in fields]:
            raise Misfit(
                f"the {cls.__name__}{{at}} has an attribute {lost[0]!r} that is not one of its "
                f"fields and would be lost; make it a field, or leave it out"
            )
        parts: Parts = {"of": {name: held[name] for name in fields if name in held}}
        state = value.__getstate__()
        if state["__pydantic_fields_set__"] != fields.keys():
            parts["set"] = sorted(state["__pydantic_fields_set__"])
        for part in ("extra", "private"):
            if state.get(f"__pydantic_{part}__") is not None:
                parts[part] = state[f"__pydantic_{part}__"]
        return parts

    def build(parts: Parts) -> Any:
        stored = parts["of"]
        for name in fields.keys() - stored.keys():
            if fields[name].is_required():
                raise Misfit(f"{cls.__name__} has a field {name!r}, and the data has not")
        made = cls.__new__(cls)
        made.__setstate__(
            {
                "__dict__": {
                    name: stored[name]
                    if name in stored
                    else field.get_default(call_default_factory=True)
                    for name, field in fields.items()
                },
                "__pydantic_fields_set__": set(parts.get("set", fields)),
                "__pydantic_extra__": parts.get("extra"),
                "__pydantic_private__": parts.get("private"),
            }
        )
        return made

    return apart, build


def lost_from_model(value: Any) -> list[str]:
    """The attributes of a model that are no fields, and would not come back."""
    cls = type(value)
    return [
        name
        for name in vars(value).keys() - cls.model_fields.keys() - {"__pydantic_extra__"}
        if not isinstance(getattr(cls, name, None), functools.cached_property)
    ]


def state_of(value: Any) -> tuple[Any, ...]:
    """The values that a model holds besides its fields."""
    return value.__pydantic_extra__, value.__pydantic_private__
