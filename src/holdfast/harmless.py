"""Text of others, made fit to be looked at.

A log holds whatever a model, a tool or a stranger wrote. Everything that a terminal or a reader
might act on (escape sequences, carriage returns, marks that reverse the direction of writing) is
written out as `\\x1b`, so that what is seen is what is there.
"""

from __future__ import annotations

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


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
