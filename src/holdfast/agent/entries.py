"""Entries of a memory as users give them: what may be one, and which ones are meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import BadInput
from holdfast.events import Remembered
from holdfast.store import MOST_LABELS
from holdfast.words import must_be_texts

LONGEST_BYTES = 16 * 1024


def must_be_short(text: Any) -> None:
    """Refuse what is no text, or says nothing, or is too long for an entry."""
    must_be_texts("remember()", text=text)
    if not text.strip():
        raise BadInput("remember(): there is nothing to remember: the text is empty")
    size = len(text.encode())
    if size > LONGEST_BYTES:
        raise BadInput(
            f"remember(): a text of {size:,} bytes is too long, at most {LONGEST_BYTES:,} are "
            f"kept: keep the whole as an artifact (keep), and remember a summary of it"
        )


def checked_labels(what: str, labels: Any) -> dict[str, str]:
    """Labels, if they are texts, and not too many."""
    given = {} if labels is None else labels
    if not isinstance(given, Mapping) or len(given) > MOST_LABELS:
        raise BadInput(
            f"{what}: labels={labels!a:.60} must be a dict of at most {MOST_LABELS} texts"
        )
    for name, value in given.items():
        must_be_texts(what, **{"the name of a label": name, "a label": value})
    return dict(given)


def filter_of(
    what: str, user: str | None, session: str | None, labels: Mapping[str, str] | None
) -> Callable[[Remembered], bool]:
    """Whether an entry is of a user and a session, where they are given, and has all labels."""
    wanted = given_texts(what, user=user, session=session)
    with_labels = checked_labels(what, labels).items()

    def fits(event: Remembered) -> bool:
        return all(getattr(event, name) == value for name, value in wanted.items()) and all(
            event.labels.get(name) == value for name, value in with_labels
        )

    return fits


def given_texts(what: str, **texts: str | None) -> dict[str, str]:
    """Those that are given, if they are texts."""
    given = {name: text for name, text in texts.items() if text is not None}
    must_be_texts(what, **given)
    return given
