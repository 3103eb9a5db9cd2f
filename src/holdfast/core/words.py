"""Words that users give: checked before anything is made of them, and escaped when shown.

`views/words` is another thing: it says events in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import BadId, BadInput

LONGEST_ID = 255
_MOST_SHOWN = 200
_MOST_OF_BEGINNING = 1000


def checked_id(id: Any) -> str:
    """The id, if it can name a task."""
    if not isinstance(id, str):
        raise BadId(f"an id is text, not {type(id).__name__}: {id!r:.60}")
    if not id:
        raise BadId("an id can't be empty: give 1 to 255 characters, or leave it out")
    if len(id) > LONGEST_ID:
        raise BadId(f"an id of {len(id):,} characters is too long: give at most {LONGEST_ID}")
    if not id.isprintable() or not is_utf8(id):
        raise BadId(f"an id can't hold control or unpaired surrogate characters: {id!a:.60}")
    return id


def must_be_texts(what: str, **texts: Any) -> None:
    """Refuse what is no text, or can't be written as UTF-8."""
    for name, text in texts.items():
        if not isinstance(text, str) or not is_utf8(text):
            raise BadInput(f"{what}: {name}={text!a:.60} must be a text")


def is_utf8(text: str) -> bool:
    """Whether a text can be written: an unpaired surrogate can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Text of others, made fit to be looked at.
#
# A log holds whatever a model, a tool or a stranger wrote. Everything that a terminal or a reader
# might act on (escape sequences, carriage returns, marks that reverse the direction of writing) is
# written out as `\x1b`, so that what is seen is what is there.


_JOINERS = "\u200c\u200d"  # they shape Persian, Hindi and emoji, and do no harm


def plain(text: str) -> str:
    r"""One line that a terminal only shows.

    >>> print(plain("red \x1b[31m and\nnext"))
    red \x1b[31m and\nnext
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS else _escaped(c) for c in text)


def cut(text: str, most: int) -> str:
    """The beginning of a text.

    >>> cut("book the room", 8)
    'book th…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def without_password(url: str) -> str:
    """The address of a store as it can be shown.

    >>> without_password("postgresql://ada:secret@db/trips?password=secret&sslmode=require")
    'postgresql://ada@db/trips?sslmode=require'
    >>> without_password("sqlite:////var/trips.db")
    'sqlite:////var/trips.db'
    """
    parts = urlsplit(url)
    if not parts.password and "password" not in parts.query.lower():
        return url
    user, at, host = parts.netloc.rpartition("@")
    place = f"{user.partition(':')[0]}{at}{host}"
    given = [(k, v) for k, v in parse_qsl(parts.query, True) if "password" not in k.lower()]
    return urlunsplit(parts._replace(netloc=place, query=urlencode(given, safe="/")))


def beginning(text: str, most_lines: int) -> str:
    """The first lines of a text; all of it where only a little would be left out."""
    if len(text) <= 1.2 * _MOST_OF_BEGINNING and text.count("\n") <= 1.2 * most_lines:
        return text
    return "\n".join(text[:_MOST_OF_BEGINNING].split("\n")[:most_lines])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def html_table(rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """A table for a notebook. Every cell is escaped, and cut if it is long.

    >>> html_table([["id", "<b>"]])
    '<table><tr><td>id</td><td>&lt;b&gt;</td></tr></table>'
    """
    lines = [_line("th", head)] if head else []
    return f"<table>{''.join([*lines, *(_line('td', row) for row in rows)])}</table>"


def _line(tag: str, cells: Iterable[Any]) -> str:
    from html import escape  # slow to import, and for notebooks only

    return f"<tr>{''.join(f'<{tag}>{escape(_shown(cell))}</{tag}>' for cell in cells)}</tr>"


def _shown(cell: Any) -> str:
    text = str(cell)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
