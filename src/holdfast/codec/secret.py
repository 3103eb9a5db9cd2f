"""`Secret`: a text that may be used, and is never shown or written.

A secret is its value, which lives in this process only, or the name of one, which may be recorded
and is looked up when it is revealed. Values that were made or revealed here are known, so that
they can be found in texts about to be written: an error that shows a URL with the key in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from hmac import compare_digest
from typing import Any, NoReturn, final

from holdfast.errors import BadInput

# Texts that look like secrets: the shapes of well-known keys, and what stands after their names.
#
# They are searched for in texts that are only read (messages, tracebacks, notes), so a match too
# many does little harm. Where a pattern has a group named `secret`, only that part is hidden. Each
# takes time in proportion to the text, whatever the text is.


MARK = "•••"
"""The placeholder in a text for a hidden part."""

NAMES = (
    *("*password", "*passwd", "*passphrase", "*secret", "*credentials", "authorization"),
    *("*api_key", "*apikey", "*access_key", "*secret_key", "*private_key", "token"),
    *("*access_token", "*api_token", "*auth_token", "*bearer_token", "*refresh_token"),
)
"""Parameters that mostly hold secrets, as shell patterns."""

_KEYS = (
    ("sk-", r"(?<![\w-])sk-(?=[\w-]{0,200}\d)[\w-]{16,}"),  # OpenAI, Anthropic and others
    ("k_live_ k_test_", r"\b[rs]k_(?:live|test)_\w{10,}"),  # Stripe
    ("akia asia", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # AWS
    ("gh github_pat_", r"\b(?:gh[opsru]_|github_pat_)\w{20,}"),
    ("glpat-", r"\bglpat-[\w-]{16,}"),
    ("xox", r"\bxox[abeoprs]-[\w-]{10,}"),  # Slack
    ("aiza ya29.", r"\b(?:AIza[\w-]{30,}|ya29\.[\w-]{20,})"),  # Google
    ("hf_", r"\bhf_[A-Za-z0-9]{20,}"),  # Hugging Face
    ("eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    (
        "-----begin",
        r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY-----"
        r"(?:(?:(?!-----BEGIN)[\s\S]){0,20000}?-----END[A-Z0-9 ]{0,40}-----|[\w+/=\\\s]*)",
    ),
)
_PLACES = (
    ("bearer", r"(?i:\bbearer\s{1,9})(?P<secret>(?=\S{0,200}\d)[\w+/=.~-]{12,})"),
    (
        "authorization",
        r"(?i:\bauthorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:(?:basic|bearer|token)\s{1,9})?+)"
        r"(?P<secret>[^\s'\",;]{6,})",
    ),
    ("://", r"://[^/\s:@'\"]{0,200}:(?P<secret>[^/\s@'\"]{1,500})@"),
    (
        "key= token= secret= password= signature= sig=",
        r"(?i:[?&](?:[a-z_-]{0,40}(?:key|token|secret|password|signature)|sig)=)"
        r"(?P<secret>[^&\s'\"<>]+)",
    ),
    (
        "passw passphrase api_key apikey secret_key client_secret access_token",
        r"(?i:(?:password|passwd|passphrase|api_?key|secret_key|client_secret|access_token)"
        r"['\"]?\s{0,3}[:=]\s{0,3})"
        r"(?P<secret>'[^'\n]+'|\"[^\"\n]+\"|(?=[^\s'\",;&(){}]{0,200}\d)[^\s'\",;&(){}]{4,})",
    ),
)

_BUILTIN = tuple((hints.split(), pattern) for hints, pattern in (*_KEYS, *_PLACES))
"""Each with what a text must hold, in lower case, for it to match: that is much faster to find."""

_compiled = cache(re.compile)


def without_keys(text: str) -> str:
    """The text, with a mark for each part that looks like a secret.

    >>> without_keys("GET https://ada:hunter2@example.org/?key=77 failed")
    'GET https://ada:•••@example.org/?key=••• failed'
    """
    lowered = text.lower()
    for hints, pattern in _BUILTIN:
        if any(hint in lowered for hint in hints):
            text = hidden(_compiled(pattern), text)
    return text


def compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """A pattern of the user's, or `BadInput` that says what is off."""
    try:
        made = re.compile(pattern)
    except (re.error, TypeError, RecursionError) as error:
        raise BadInput(f"Redact(patterns=…): {pattern!r:.60} is no pattern: {error}") from None
    if not isinstance(made.pattern, str):
        raise BadInput(f"Redact(patterns=…): {pattern!r:.60} is for bytes; give one for text")
    if made.search("") is not None:
        raise BadInput(f"Redact(patterns=…): {pattern!r:.60} matches an empty text, so everywhere")
    return made


def hidden(pattern: re.Pattern[str], text: str) -> str:
    """The text, with a mark for each match.

    >>> hidden(re.compile("key=(?P<secret>[a-z]+)"), "try ?key=abc")
    'try ?key=•••'
    """
    if "secret" in pattern.groupindex:
        return pattern.sub(_without_group, text)
    return pattern.sub(MARK, text)


def _without_group(match: re.Match[str]) -> str:
    start, end = match.span("secret")
    if start < 0:  # the group had no part in it
        return MARK
    whole, begin = match.group(), match.start()
    return whole[: start - begin] + MARK + whole[end - begin :]


Secrets = Mapping[str, str] | Callable[[str], str | None]
"""Where named secrets come from: their values by name, or a function of the name."""

provider: ContextVar[Secrets | None] = ContextVar("holdfast_secrets", default=None)
"""What the `Holdfast` that drives the running code was given."""

SHORTEST = 6
_SHORTEST_LINE = 8
"""A shorter value is not searched for: it would stand in texts by chance."""

_MOST_KNOWN = 1024


@final
class Secret:
    """A text that is never shown: an API key, a password. `reveal()` gives it out.

    A value is handed to steps and tools, and the log has a mark in its place. It can't be a
    result, a task's argument or part of a checkpoint: a replay could not read it back. A *named*
    secret can be all that: only its name is recorded, and its value is looked up when it is
    revealed, by `Holdfast(secrets=…)` or, without that, in the environment.

    >>> key = Secret("sk-live-abc")
    >>> key, f"{key}", key.reveal()
    (Secret(•••), 'Secret(•••)', 'sk-live-abc')
    >>> Secret.named("OPENAI_API_KEY")
    Secret.named('OPENAI_API_KEY')
    """

    __slots__ = ("_name", "_value")
    _name: str
    _value: str

    def __init__(self, value: str) -> None:
        if type(value) is not str:
            raise BadInput(f"a Secret holds a text, not {type(value).__name__}")
        object.__setattr__(self, "_name", "")
        object.__setattr__(self, "_value", value)
        know(value)

    @classmethod
    def named(cls, name: str) -> Secret:
        """The secret of that name, which is looked up each time it is revealed.

        >>> os.environ["STRIPE_KEY"] = "rk-abc"
        >>> Secret.named("STRIPE_KEY").reveal()
        'rk-abc'
        """
        if type(name) is not str or not name or len(name) > 255 or not name.isprintable():
            raise BadInput("Secret.named(…): a name is a text of 1 to 255 printable characters")
        if without_keys(name) != name:
            raise BadInput(
                "Secret.named(…): that looks like a secret itself. Give its name, as in "
                "Secret.named('OPENAI_API_KEY'): names are written to the log"
            )
        return by_name(name)

    @property
    def name(self) -> str:
        """The name of a named secret; '' for one that is its value."""
        return self._name

    def reveal(self) -> str:
        """The text itself. Don't print it, and don't return it from a step."""
        value = _looked_up(self._name) if self._name else self._value
        know(value)
        return value

    def __repr__(self) -> str:
        return f"Secret.named({self._name!r})" if self._name else f"Secret({MARK})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Secret:
            return NotImplemented
        if self._name or other._name:
            return self._name == other._name
        mine, theirs = (s._value.encode("utf-8", "surrogatepass") for s in (self, other))
        return compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash((Secret, self._name, self._value))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a Secret can't be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret can't be changed")

    def __init_subclass__(cls) -> None:
        raise TypeError("Secret can't be subclassed: what it hides must stay hidden")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce__(self) -> Any:
        if self._name:
            return Secret.named, (self._name,)
        raise TypeError("a Secret can't be pickled: refer to it by name, Secret.named(…)")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        shown = core_schema.plain_serializer_function_ser_schema(repr)
        return core_schema.no_info_plain_validator_function(_validated, serialization=shown)


def by_name(name: str) -> Secret:
    """The secret of a name that was accepted before, as it stands in the log."""
    made = object.__new__(Secret)
    object.__setattr__(made, "_name", name)
    object.__setattr__(made, "_value", "")
    return made


def _validated(value: Any) -> Secret:
    if isinstance(value, Secret):
        return value
    if isinstance(value, str):
        return Secret(value)
    if isinstance(value, dict) and value.keys() == {"$secret"} and type(value["$secret"]) is str:
        return Secret.named(value["$secret"])
    raise ValueError("a Secret, or the text of one, is expected")


def _looked_up(name: str) -> str:
    source: Any = provider.get()
    value: Any
    if source is None:
        value, where = os.environ.get(name), f"set {name} in the environment of this process"
    else:
        value = source.get(name) if isinstance(source, Mapping) else source(name)
        where = "Holdfast(secrets=…) gave none"
    if value is None:
        raise BadInput(f"there is no secret {name!r} here: {where}")
    if not isinstance(value, str):
        kind = type(value).__name__
        raise BadInput(f"the secret {name!r} must be a text, and Holdfast(secrets=…) gave a {kind}")
    return value


def checked_secrets(given: Any) -> Secrets | None:
    """Where named secrets are to come from, or `BadInput`."""
    if not (given is None or isinstance(given, Mapping) or callable(given)):
        kind = type(given).__name__  # and not its content, which may be the secret
        raise BadInput(f"secrets=… must be a dict of texts or a function of the name, not a {kind}")
    source: Secrets | None = given
    return source


# The values that this process has used, the latest last, each with the ways it may be spelt.
_known: dict[str, tuple[str, ...]] = {}


def know(value: str) -> None:
    """Remember a value, to find it in texts. Only so many, the latest used."""
    if len(value) >= SHORTEST:
        _known[value] = _known.pop(value, ())
        if len(_known) > _MOST_KNOWN:
            _known.pop(next(iter(_known)), None)


def without_known(text: str, also: Iterable[str] = ()) -> str:
    """The text, with a mark for each secret that this process has used.

    >>> _ = Secret("hunter/22")
    >>> without_known("GET /?pass=hunter%2F22 failed: 'hunter/22'")
    "GET /?pass=••• failed: '•••'"
    """
    values = {*_known, *(value for value in also if len(value) >= SHORTEST)}
    for value in sorted(values, key=len, reverse=True):  # one may begin with another
        forms = _known.get(value) or _spellings(value)
        if value in _known:
            _known[value] = forms
        for form in forms:
            if form in text:
                text = text.replace(form, MARK)
    return text


def _spellings(value: str) -> tuple[str, ...]:
    """How a value may stand in a message: as it is, quoted, in a URL, in base64; or line by line,
    as the traceback of a group of exceptions has it."""
    import json
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "replace")
    spelt = [
        *(value, value.strip(), repr(value)[1:-1]),
        *(json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]),
        *(quote(data), quote(data, safe=""), quote_plus(data)),
        *_in_base64(data),
    ]
    long = {each for each in spelt if len(each) >= SHORTEST}
    lines = (line.strip() for line in value.splitlines())
    long |= {line for line in lines if len(line) >= _SHORTEST_LINE}
    return tuple(sorted(long, key=len, reverse=True))


def _in_base64(data: bytes) -> Iterator[str]:
    """What base64 makes of some bytes, whatever stands before and after them in what is encoded."""
    import base64

    for before in range(3):
        padded = bytes(before) + data
        start, end = -(-before * 8 // 6), len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded).decode()[start:end]
