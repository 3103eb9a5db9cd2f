"""Everything known of a decorated function: its name, signature and promises to the world.

A `Spec` is data about a function, the same in every process that imports the code; the log names
a function by `Spec.name` only, and a `Registry` finds it again. Nothing is ever imported or called
because data said so: a name that no decorator registered is an error.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import BadInput, CodeMissing, NotATask

if TYPE_CHECKING:
    from holdfast.codec import Signature
    from holdfast.core.limits import Limited

T = TypeVar("T")

Doubt = Literal["retry", "check", "ask"]
FunctionKind = Literal["task", "step", "tool", "external"]


class IdempotencyKey(str):
    """The key of a tool call, for the receiver to recognise a repeated one by.

    Annotate a parameter of a tool with it, and Holdfast fills it in; the caller leaves it out.

    >>> from holdfast import Holdfast, task, tool
    >>> @tool
    ... def send(to: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    ...     return key
    >>> @task
    ... def greet() -> str:
    ...     return send("ada@example.org")
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(greet, id="greet-1").rpartition(":")[0]
    'greet-1:1:send'
    """

    __slots__ = ()


class Happened(Struct, Generic[T], frozen=True):
    """The answer of a `check` that found that the call did happen, with its result.

    >>> Happened({"id": 7}).result
    {'id': 7}
    """

    result: T


class Retry(Struct, frozen=True, kw_only=True):
    """How often, and how far apart, a failing step is tried again.

    The n-th failure is followed by a wait of `delay_s * backoff**(n-1)`, at most `max_delay_s`,
    spread by up to `jitter` of itself. The spread is derived from the call, not drawn, so that a
    replay sees the same. An error of a type in `unless` is final at once.

    >>> Retry(attempts=4, delay_s=1, jitter=0).wait_s(3, "any call")
    4.0
    """

    attempts: int = 3
    delay_s: float = 1.0
    backoff: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.1
    unless: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if type(self.attempts) is not int:
            raise BadInput(f"Retry(attempts={self.attempts!r:.60}): must be a whole number")
        if self.attempts < 1:
            raise BadInput(f"Retry(attempts={self.attempts}): there is always a first attempt")
        for name in ("delay_s", "backoff", "max_delay_s", "jitter"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < float("inf"):
                raise BadInput(f"Retry({name}={value!r:.60}): must be a number, 0 or more")
        errors: object = self.unless
        if not isinstance(errors, tuple) or not all(isinstance(each, type) for each in errors):
            raise BadInput(f"Retry(unless={errors!r:.60}): must be a tuple of types of errors")

    def wait_s(self, failures: int, call: str) -> float:
        """Seconds to wait after that many failures of the call so named."""
        # The exponent is bounded because 2.0**1024 overflows a float.
        plain = min(self.delay_s * self.backoff ** min(failures - 1, 64), self.max_delay_s)
        draw = hashlib.sha256(f"{call}#{failures}".encode()).digest()
        return plain * (1 + self.jitter * int.from_bytes(draw[:4]) / 2**32)

    def wait(self, failures: int, call: str) -> timedelta:
        """The same, to add to a time."""
        return timedelta(seconds=self.wait_s(failures, call))


ONCE = Retry(attempts=1)

SCRIPT, SCRIPT_STEP = "script", "once"
"""The types of the two tasks of `holdfast once`, which run no function."""


class Spec(Struct, frozen=True, kw_only=True):
    """Everything Holdfast knows of one decorated function."""

    name: str
    kind: FunctionKind
    fn: Callable[..., Any]
    signature: Signature
    is_async: bool
    retry: Retry = ONCE
    timeout_s: float | None = None
    in_doubt: Doubt = "ask"
    check: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    key_ttl_s: float | None = None
    approve: bool = False
    streams: bool = False
    version: int = 0
    upcast: Callable[..., Any] | None = None
    undo_when: frozenset[str] = frozenset()
    redact: frozenset[str] = frozenset()
    ttl_s: float = 0
    """For a read of the outside world: how long what it saw may be used for."""
    invalidates: tuple[str, ...] = ()
    is_method: bool = False
    """Whether its first parameter is the object, or the class, that it is called on. That is not
    recorded: the task brings it along on every run."""
    answer: Callable[..., Any] | None = None
    """A function of the record and the result; the caller gets its value instead of the result."""
    parallel: bool = True
    """Whether an agent may call it beside the other calls of a turn."""
    limit: Limited | None = None
    """The limit that its calls share with those of others: how many, how often."""
    lacks: Callable[[Mapping[str, str]], str] | None = None
    """The thing that this process lacks to run a task with such labels; '' if there is none."""
    is_tool: bool = False
    """Whether it touches the outside world: what its kind says."""

    def __post_init__(self) -> None:
        force_setattr(self, "is_tool", self.kind == "tool")

    @property
    def where(self) -> str:
        """Where the function stands in the code."""
        named = getattr(self.fn, "func", self.fn)  # of a functools.partial
        if not (hasattr(named, "__qualname__") and hasattr(named, "__module__")):
            named = type(named)
        return f"{named.__module__}.{named.__qualname__}"


def is_async(fn: Any) -> bool:
    """Whether calling a function gives a coroutine; also of one that we decorated."""
    spec = getattr(fn, "holdfast_spec", None)
    if isinstance(spec, Spec):
        return spec.is_async
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(_call_of(fn))


def _call_of(fn: Any) -> Any:
    """The function behind a callable object."""
    return fn if inspect.isroutine(fn) else getattr(fn, "func", type(fn).__call__)


def is_streaming(fn: Any) -> bool:
    """Whether calling a function gives a generator, sync or async."""
    called = _call_of(fn)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def is_method(fn: Any) -> bool:
    """Whether a function stands in a class, and is called on an object of it, or on the class."""
    within = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if not within or within.endswith("<locals>") or not inspect.isfunction(fn):
        return False
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    return first is not None and first.name in ("self", "cls") and first.annotation is first.empty


def task_spec(fn: Any) -> Spec:
    """The spec of a decorated task, or `NotATask`."""
    spec = getattr(fn, "holdfast_spec", None)
    if not isinstance(spec, Spec) or spec.kind != "task":
        name = getattr(fn, "__name__", None) or repr(fn)
        kind = f"a {spec.kind}, not a task" if isinstance(spec, Spec) else "not a task"
        raise NotATask(f"{name} is {kind}: decorate it with @task")
    return spec


class Registry:
    """The decorated functions of this process, by kind and name."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, Spec]] = {}
        self._foreign: set[str] = set()
        self.prefers: str | None = None
        """A module whose functions go before others of the same name: that of the test at work."""

    def add(self, spec: Spec) -> None:
        """Remember a function. The same function defined again (a reload) takes its place."""
        group = "task" if spec.kind == "task" else "call"
        self._found.setdefault((group, spec.name), {})[spec.where] = spec

    def add_foreign(self, name: str) -> None:
        """Remember that calls of this name are made by a framework, of a function that has no
        decorator. A decorated function may happen to have the same name."""
        self._foreign.add(name)

    def is_foreign(self, name: str) -> bool:
        """Whether a framework has made calls of this name here."""
        return name in self._foreign

    def places(self) -> set[str]:
        """Where the functions stand that are known now."""
        return {place for found in self._found.values() for place in found}

    def forget(self, within: str, but: Container[str] = ()) -> None:
        """Forget the functions that a test defined, which stand within it."""
        self._foreign.clear()
        for key, found in list(self._found.items()):
            kept = {
                place: spec
                for place, spec in found.items()
                if place in but or not place.startswith(within)
            }
            if not kept:
                del self._found[key]
            elif len(kept) < len(found):
                self._found[key] = kept

    def task(self, name: str) -> Spec:
        """The task of that name, or `CodeMissing`."""
        return self._one("task", name)

    def tasks(self) -> list[str]:
        """The names of all tasks."""
        return sorted(name for group, name in self._found if group == "task")

    def call(self, name: str) -> Spec:
        """The step or tool of that name, or `CodeMissing`."""
        return self._one("call", name)

    def surely(self, name: str) -> Spec | None:
        """The step or tool of that name; None if calls of it may be another function's."""
        try:
            return None if self.is_foreign(name) else self.call(name)
        except CodeMissing:
            return None

    def _one(self, group: str, name: str) -> Spec:
        found = self._found.get((group, name), {})
        what = "task" if group == "task" else "step or tool"
        if not found:
            yours = sorted(
                name for (g, name), at in self._found.items() if g == group and _theirs(at)
            )
            known = ", ".join(yours[:10]) or "none of yours"
            raise CodeMissing(
                f"the log names a {what} {name!r}, but no code loaded here defines it (loaded: "
                f"{known}). Import its module first (on the command line: --app MODULE); if it was "
                f"renamed, keep its old name in the log: @{_decorator(group)}(name={name!r})"
            )
        own = [spec for place, spec in found.items() if place.startswith(f"{self.prefers}.")]
        if len(found) > 1 and len(own) == 1:
            return own[0]
        if len(found) > 1:
            places = " and ".join(sorted(found))
            raise CodeMissing(
                f"{name!r} names more than one {what}: {places}. "
                f"Tell them apart with @{_decorator(group)}(name=…)"
            )
        return next(iter(found.values()))


def _theirs(places: Iterable[str]) -> bool:
    """Whether user code defines it. Holdfast's own tasks would only confuse a list of theirs."""
    return not all(place.startswith("holdfast.") for place in places)


def _decorator(group: str) -> str:
    return "task" if group == "task" else "step"


registry: Final = Registry()
