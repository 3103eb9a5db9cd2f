"""What is wrong with a query, in words: SQLite's own, where it is, and what there would be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.errors import BadInput
from holdfast.sql.tables import TABLES

_NEAR = re.compile(r'(?:near|unrecognized token:) "(.*)"(?:: syntax error)?', re.DOTALL)
_UNKNOWN = re.compile(r"(?:no such (\w+)|ambiguous column name): (.*)", re.DOTALL)
COMMENT = r"(?>\s+|--[^\n]*\n?|/\*.*?\*/)*+"
_WRITES = re.compile(
    rf"{COMMENT}(?:explain\s+)?(insert|update|delete|replace|create|drop|alter|attach|detach|pragma|"
    rf"begin|commit|end|rollback|savepoint|release|vacuum|reindex|analyze)\b",
    re.IGNORECASE | re.DOTALL,
)
_SHOWN = 36
_LOOKED_AT = 50

READ_ONLY = (
    "it is read only: a query is one select, and nothing can be written, attached or set by it"
)


def refuse_writes(query: str) -> None:
    """Raise `BadInput` for what plainly does not read. `Guard` knows of the rest."""
    if found := _WRITES.match(query):
        raise BadInput(f"sql: {found[1].lower()} is refused: {READ_ONLY}")


def misfit(query: str, found: Mapping[str, Any], compiled: Callable[[str], str]) -> BadInput:
    """What is wrong with a query. `compiled` says what SQLite thinks of another text."""
    if refused := found.get("refused"):
        return BadInput(f"sql: {refused} is refused: {READ_ONLY}")
    message = found["error"].rstrip(".")
    if message.startswith("cannot modify"):
        return BadInput(f"sql: {message}: {READ_ONLY}")
    if found["kind"] == "warning" or "one statement" in message:
        return BadInput("sql: one query at a time: there is more than one statement in it")
    if found["kind"] == "value":
        return BadInput(f"sql: SQLite can't take it: {message}")
    return BadInput(f"sql: {message}{_where(query, message, compiled)}{_instead(query, message)}")


def _where(query: str, message: str, compiled: Callable[[str], str]) -> str:
    place = None
    if near := _NEAR.search(message):
        word = (
            rf"(?<!\w){re.escape(near[1])}(?!\w)" if near[1].isidentifier() else re.escape(near[1])
        )
        place = _first(query, word, lambda upto: compiled(upto) == message)
    elif unknown := _UNKNOWN.search(message):
        name = unknown[2].split(".")[-1]
        place = _first(query, rf"\b{re.escape(name)}\b", lambda upto: True)
    return "" if place is None else _shown(query, place)


def _first(query: str, token: str, fits: Callable[[str], bool]) -> int | None:
    """Where the token is that SQLite stumbled over: the first with which it does."""
    for number, match in enumerate(re.finditer(token, query, re.IGNORECASE)):
        if number >= _LOOKED_AT:
            break
        if fits(query[: match.end()]):
            return match.start()
    return None


def _shown(query: str, place: int) -> str:
    start = query.rfind("\n", 0, place) + 1
    line = query[start:].split("\n", 1)[0].replace("\t", " ").rstrip()
    column = place - start
    cut = max(0, column - _SHOWN)
    window = line[cut : column + _SHOWN]
    number = query.count("\n", 0, place) + 1
    at = f"line {number}, " if "\n" in query.strip() else ""
    return f" ({at}column {column + 1})\n  {window}\n  {' ' * (column - cut)}^"


def _instead(query: str, message: str) -> str:
    unknown = _UNKNOWN.search(message)
    if unknown is None or unknown[1] not in ("table", "column"):
        return ""
    named = [table for table in TABLES if re.search(rf"\b{table}\b", query, re.IGNORECASE)]
    if unknown[1] == "table":
        known: Iterable[str] = TABLES
    else:
        known = dict.fromkeys(c.name for name in named for c in TABLES[name].columns)
    near = difflib.get_close_matches(unknown[2].split(".")[-1], list(known), n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    where = "" if unknown[1] == "table" else f" in {', '.join(named)}"
    return f"\n{meant}There are{where}: {', '.join(known)}" if known else ""
