"""Texts that look like secrets: the shapes of well-known keys, and what stands after their names.

They are searched for in texts that are only read (messages, tracebacks, notes), so a match too
many does little harm. Where a pattern has a group named `secret`, only that part is hidden. Each
takes time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import re

from holdfast.errors import BadInput

MARK = "•••"
"""What stands in a text for what was hidden."""

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

BUILTIN = tuple((hints.split(), re.compile(pattern)) for hints, pattern in (*_KEYS, *_PLACES))
"""Each with what a text must hold, in lower case, for it to match: that is much faster to find."""


def without_keys(text: str) -> str:
    """The text, with a mark for each part that looks like a secret.

    >>> without_keys("GET https://ada:hunter2@example.org/?key=77 failed")
    'GET https://ada:•••@example.org/?key=••• failed'
    """
    lowered = text.lower()
    for hints, pattern in BUILTIN:
        if any(hint in lowered for hint in hints):
            text = hidden(pattern, text)
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
