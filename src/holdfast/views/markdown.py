"""Texts of others inside Markdown of ours.

A log holds whatever a model, a tool or a stranger wrote, and a page about it must not be forged by
that: nobody's text begins a line of ours, opens a heading, a link or a comment, or hides what
follows it.
"""

from __future__ import annotations

import re

from holdfast.core.words import cut, plain

_MARKS = re.compile(r"([\\`*\[\]<>])")
_TICKS = re.compile(r"`+")


def one_line(text: str, most: int = 300) -> str:
    r"""A text on one line, with everything written out that could act on who reads it.

    >>> print(one_line("done\n# Status: failed"))
    done\n# Status: failed
    """
    return plain(cut(text, most))


def prose(text: str, most: int = 300) -> str:
    r"""The same inside a sentence.

    >>> print(prose("<!-- see [here](http://example.com)"))
    \<!-- see \[here\](http://example.com)
    """
    return one_line(_MARKS.sub(r"\\\1", text[:most]), 2 * most) + ("…" if len(text) > most else "")


def code(text: str, most: int = 200) -> str:
    """A name or a value, as code on one line.

    >>> code("book"), code("a `tick`")
    ('`book`', '`` a `tick` ``')
    """
    text = one_line(text, most)
    if not text.strip():
        return "` `"
    longest = max(map(len, _TICKS.findall(text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def block(text: str, kind: str = "", most: int = 4000) -> str:
    """A text of several lines, as a block of code.

    >>> print(block("one\\ntwo"))
    ```
    one
    two
    ```
    """
    if len(text) > most:
        text = f"{text[:most]}…"
    lines = (one_line(line.removesuffix("\r").expandtabs(4), most) for line in text.split("\n"))
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{kind}", *lines, fence))
