"""`Redact`: what is kept out of the log, besides every `Secret`.

Arguments of steps and tools are hidden by the name of their parameter. Texts that are only read
have what matches a pattern, and every secret this process has used, replaced by a mark. Results
and other values are never changed: a replay would see something else than the first run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.codec import Signature
from holdfast.codec.secret import MARK, NAMES, compiled, hidden, without_keys, without_known
from holdfast.core.decoding import decode
from holdfast.core.events import (
    Adopted,
    AnswerRefused,
    AnyEvent,
    CancelRequested,
    Decided,
    Doubted,
    Failure,
    Forgotten,
    Hindered,
    MessageRefused,
    MissionSet,
    Noted,
    Parked,
    PauseRequested,
    Planned,
    PlanProgressed,
    Progressed,
    QuestionAsked,
    Remembered,
    Rewound,
    SessionEnded,
    Settled,
    TaskStopped,
)
from holdfast.errors import BadInput, HoldsSecret

E = TypeVar("E", bound=AnyEvent)

TEXTS: dict[type, tuple[str, ...]] = {
    Adopted: ("why",),
    AnswerRefused: ("why",),
    CancelRequested: ("because",),
    Decided: ("because",),
    Doubted: ("why",),
    Forgotten: ("because",),
    Hindered: ("why",),
    MessageRefused: ("why",),
    MissionSet: ("diff",),
    Noted: ("text",),
    Parked: ("why",),
    PauseRequested: ("because",),
    Planned: ("diff",),
    PlanProgressed: ("because",),
    Progressed: ("text",),
    QuestionAsked: ("question",),
    Remembered: ("text",),
    Rewound: ("because",),
    SessionEnded: ("because",),
    Settled: ("because",),
    TaskStopped: ("because",),
}
"""The fields of events that hold texts of people and programs, for people to read."""

_LONGEST = 16 * 1024
"""How long a text of a failure may be: it has to fit a line of the log."""
_SEARCHED, _EDGE = 128 * 1024, 8 * 1024


class Redact:
    """The values to keep out of the log, besides every `Secret`: by parameter name and by pattern.

    `names` are shell patterns for parameters of steps and tools whose arguments are not to be
    written (`"ssn"`, `"*_pin"`), `patterns` regular expressions for what is to be blotted out of
    errors, tracebacks, notes and other texts; of one with a group named `secret` only that group.
    Both add to the built-in ones (`password`, `*api_key`, …; the shapes of well-known keys), which
    `builtin=False` leaves out. `keep` are names that are not hidden after all. With `refuse=True`
    values that match are refused: a step that returns an API key fails instead of recording it.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def pay(card: str) -> None:
    ...     raise ValueError(f"card {card} was declined, see acme-77")
    >>> @task
    ... def shop(n: int) -> None:
    ...     pay("4111-1111")
    >>> with Holdfast("memory://", redact=Redact(names=["card"], patterns=[r"acme-\\d+"])) as hf:
    ...     try:
    ...         hf.run(shop, 1, id="shop-1")
    ...     except Exception as error:
    ...         print(error.failure.message)
    step 1, pay, failed: ValueError: card ••• was declined, see •••
    """

    def __init__(
        self,
        *,
        names: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
        keep: Iterable[str] = (),
        builtin: bool = True,
        refuse: bool = False,
    ) -> None:
        self._hides = _any_of("names", names, NAMES if builtin else ())
        self._keeps = _any_of("keep", keep, ())
        self._patterns = [compiled(each) for each in _listed("patterns", patterns)]
        self._builtin = builtin
        self.refuses = refuse
        """Whether values with what looks like a secret are refused."""
        self.shows_all: Callable[[Signature, frozenset[str]], bool] = functools.lru_cache(
            maxsize=4096
        )(self._shows_all)
        """Whether none of a function's arguments is hidden: asked for every call."""

    def _shows_all(self, signature: Signature, names: frozenset[str]) -> bool:
        return not names and not signature.entries and not any(map(self.hides, signature.names))

    def hides(self, name: str) -> bool:
        """Whether the arguments of a parameter of that name are hidden."""
        name = name.casefold()
        return bool(self._hides.match(name)) and not self._keeps.match(name)

    def arguments(
        self, signature: Signature, names: frozenset[str], data: bytes
    ) -> tuple[bytes, tuple[str, ...]]:
        """Encoded arguments without those of `names`, and of names to hide; and hidden texts."""
        if self.shows_all(signature, names):
            return data, ()
        return signature.without(data, lambda name: name in names or self.hides(name))

    def must_be_readable(self, task: str, signature: Signature, data: bytes) -> None:
        """Refuse arguments of a task that would have to be hidden: it could not be resumed."""
        shown, _ = self.arguments(signature, frozenset(), data)
        if shown != data and (names := sorted(signature.left_out(shown))):
            raise BadInput(
                f"{task}({names[0]}=…): a task's arguments are written to the log, where a resumed "
                f"task reads them, and this one is a secret by its name. Annotate it "
                f"{names[0]}: Secret and pass Secret.named(…); or, if it is none, rename it or "
                f"open Holdfast(redact=Redact(keep=[{names[0]!r}]))"
            )

    def text(self, text: str, also: Iterable[str] = ()) -> str:
        """A text to be read, with marks for what is secret in it."""
        text = without_known(text, also)
        for pattern in self._patterns:
            text = hidden(pattern, text)
        return without_keys(text) if self._builtin else text

    def data(self, raw: bytes) -> bytes:
        """The same for each text in a piece of JSON."""
        value = decode(raw)
        clean = self._within(value)
        return raw if clean == value else msgspec.json.encode(clean)

    def _within(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._within(item) for item in value]
        if isinstance(value, dict):
            return {
                self.text(key): self._blotted(item) if self.hides(key) else self._within(item)
                for key, item in value.items()
            }
        return value

    def _blotted(self, value: Any) -> Any:
        """A value under a secret name: its texts and numbers are hidden, wherever in it they are;
        yes, no and nothing say little."""
        if isinstance(value, list):
            return [self._blotted(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._blotted(item) for key, item in value.items()}
        return value if value is None or isinstance(value, bool) else MARK

    def event(self, event: E) -> E:
        """An event as it goes into the log: its texts have marks for what is secret in them."""
        fields = TEXTS.get(type(event))
        if fields is None:
            return event
        texts = {name: text for name in fields if (text := getattr(event, name))}
        changed = {
            name: clean for name, text in texts.items() if (clean := self.text(text)) != text
        }
        return replace(event, **changed) if changed else event

    def failure(self, failure: Failure, also: Iterable[str] = ()) -> Failure:
        """A failure as it goes into the log, short enough for a line."""
        also = tuple(also)
        message, trace = (self._short(text, also) for text in (failure.message, failure.traceback))
        return replace(failure, message=message, traceback=trace)

    def _short(self, text: str, also: tuple[str, ...]) -> str:
        # The mistake is mostly at either end. A text of any length is searched there only, and half
        # a secret, which nobody recognises, may be left where it was cut: so that goes.
        half = _LONGEST // 2
        if len(text) <= 2 * _SEARCHED:
            begin = end = self.text(text, also)
            if len(begin) <= _LONGEST:
                return begin
        else:
            begin = self.text(text[:_SEARCHED], also)[:-_EDGE]
            end = self.text(text[-_SEARCHED:], also)[_EDGE:]
        left_out = f"\n… about {len(text) - _LONGEST:,} characters left out …\n"
        return begin[:half] + left_out + end[-half:]

    def must_be_free(self, value: bytes) -> None:
        """Refuse a value that would take a secret into the log, if that is asked for."""
        if self.refuses and self.text(text := value.decode()) != text:
            raise HoldsSecret(
                "it holds what looks like a secret, and Redact(refuse=True) keeps that out of the "
                "log. Pass it as a Secret, or leave it out"
            )


def _listed(option: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes | re.Pattern) or not isinstance(given, Iterable):
        raise BadInput(f"Redact({option}={given!r:.60}) must be a list of them")
    return list(given)


def _any_of(option: str, given: Any, builtin: Iterable[str]) -> re.Pattern[str]:
    names = _listed(option, given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise BadInput(f"Redact({option}=…): {name!r:.60} is no name of a parameter")
    every = [translate(name.casefold()) for name in (*names, *builtin)]
    return re.compile("|".join(every) or r"(?!)")


DEFAULT = Redact()


def checked_redact(given: Redact | None) -> Redact:
    """The settings given, or those that apply without."""
    if given is not None and not isinstance(given, Redact):
        raise BadInput(f"redact={given!r:.60} must be a Redact(…)")
    return given or DEFAULT
