"""The request, and how it is answered: the few words that all handlers share.

A handler is a plain function of a `Site` and a `PageRequest`. It runs in a thread, off the event
loop, because stores are synchronous; it returns plain data, or one of the responses below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.core.decoding import Illegible, decode
from holdfast.core.state import State
from holdfast.core.words import checked_id
from holdfast.errors import BadInput

T = TypeVar("T")


class Hints(Protocol):
    """The words of the command line, which starts the server: commands to copy, and errors."""

    def command(
        self, command: str, *words: str, options: Sequence[str] = (), code: bool = False
    ) -> str:
        """A command of ours to copy into a shell. `code` if it needs that of the task."""

    def go_on(self, state: State, command: str = "resume") -> str:
        """The command by which a task goes on, or is tried again."""

    def told(self, error: Exception) -> str:
        """An error in words."""


class Site(Struct, frozen=True, kw_only=True):
    """The objects that the server serves."""

    hf: Holdfast
    hints: Hints
    app: tuple[str, ...] = ()
    """The modules with the code of tasks that were imported."""
    read_only: bool = False
    user: str = ""


class Failing(Exception):
    """A request that can't be fulfilled, and why."""

    def __init__(
        self, status: int, code: str, message: str, command: str | None = None, **data: Any
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.code: str = code
        self.command: str | None = command
        self.data: dict[str, Any] = data


class Download(Struct, frozen=True):
    """Bytes to be saved as a file, a piece at a time. Never shown by the browser itself, unless
    they are an image of a kind that can do nothing."""

    pieces: Iterator[bytes]
    name: str
    media_type: str = "application/octet-stream"
    inline: bool = False


Handler = Callable[[Site, "PageRequest"], Any]


class PageRequest:
    """One request: its place, its query, its body and who asks."""

    def __init__(
        self, place: dict[str, str], query: Sequence[tuple[str, str]], body: bytes, user: str
    ) -> None:
        self._place, self._query, self._body = place, query, body
        self.user = user

    def part(self, name: str) -> str:
        """A part of the address."""
        return self._place[name]

    @property
    def id(self) -> str:
        """The id in the address; `BadId` if it can't be one."""
        return checked_id(self._place["id"])

    def texts(self, name: str) -> list[str]:
        """Every value of that name in the query that is not empty."""
        return [value for key, value in self._query if key == name and value]

    def text(self, name: str, default: str = "") -> str:
        """The value of that name in the query."""
        return next(iter(self.texts(name)), default)

    def flag(self, name: str) -> bool:
        """Whether the query says so."""
        return self.text(name) in ("1", "true", "yes")

    def number(self, name: str, default: T, *, least: int = 0, most: int = 2**53) -> int | T:
        """A number in the query, held within its limits."""
        given = self.text(name)
        if not given:
            return default
        try:
            return max(least, min(int(given), most)) if len(given) < 20 else most
        except ValueError:
            raise BadInput(f"{name}={given!a:.40} is no number") from None

    def time(self, name: str, now: datetime | None = None) -> datetime | None:
        """A time in the query: ISO 8601, or how long ago (7d, 2h, 30m)."""
        given = self.text(name)
        if not given:
            return None
        unit = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}.get(given[-1])
        try:
            if unit and given[:-1].isdigit() and len(given) < 8:
                return (now or datetime.now(UTC)) - timedelta(**{unit: int(given[:-1])})
            found = datetime.fromisoformat(given)
        except (ValueError, OverflowError):
            raise BadInput(f"{name}={given!a:.40} is no time: give 7d, 2h or a date") from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def body(self, kind: type[T]) -> T:
        """The body, which must be of that kind."""
        try:
            return decode(self._body or b"{}", kind)
        except Illegible as error:
            raise BadInput(f"the request does not fit: {error}") from None


def encoded(value: Any) -> bytes:
    """An answer as JSON. Unpaired surrogates are replaced: UTF-8 has no way to write them."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(msgspec.to_builtins(value)))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value
