"""What two logs of the same task differ in, besides who drove it, and when.

Calls of a body come one after the other, and so do the events of each call. Those of branches, and
of other tasks, may come in any order: they are compared by their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.events import AnyEvent, ChildEnded, Claimed, Moved, Parked, Progressed

_WHO_DROVE_IT = (Claimed, Parked, Moved)
_AS_IT_CAME = {
    *("seq", "at", "until", "retry_at", "as_of", "base_seq"),  # when
    *("owner", "engine", "epoch", "driver", "driven_since", "taken_at"),  # who
    *("post", "posts"),  # by which way
    "traceback",  # through which code
}
_TIMES = ("now",)


def differences(one: Iterable[AnyEvent], other: Iterable[AnyEvent]) -> list[str]:
    """What one log says and the other does not, in words; nothing if they say the same.

    >>> from holdfast import Holdfast, note, task
    >>> @task
    ... def compared(text: str) -> None:
    ...     note(text)
    >>> with Holdfast("memory://") as hf, Holdfast("memory://") as other:
    ...     _ = hf.run(compared, "one", id="c-1"), other.run(compared, "one", id="c-1")
    ...     _ = hf.run(compared, "two", id="c-2")
    ...     same = differences(hf.task("c-1").events(), other.task("c-1").events())
    ...     not_same = differences(hf.task("c-1").events(), hf.task("c-2").events())
    >>> same, bool(not_same)
    ([], True)
    """
    return list(_differences(_by_place(one), _by_place(other)))


def _differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> Iterator[str]:
    for place in sorted(one.keys() | other.keys()):
        first, second = one.get(place, []), other.get(place, [])
        for n in range(max(len(first), len(second))):
            pair = [forms[n] if n < len(forms) else "nothing" for forms in (first, second)]
            if pair[0] != pair[1]:
                yield f"{place}, event {n + 1}:\n  {pair[0]}\n  {pair[1]}"
                break


def _by_place(events: Iterable[AnyEvent]) -> dict[str, list[str]]:
    """What is said at each place of a task, in order."""
    said: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, _WHO_DROVE_IT) or _is_progress_of_each(event):
            continue
        place = _place(event)
        said[f"at {place or 'the body'}"].append(_form(event))
        if "." not in place and not isinstance(event, ChildEnded):
            said["in the body, in order"].append(f"{type(event).__name__} {place}")
    return said


def _is_progress_of_each(event: AnyEvent) -> bool:
    """Whether `each` said how far it is: it does so now and then."""
    return isinstance(event, Progressed) and event.text.startswith("each(")


def _place(event: AnyEvent) -> str:
    for name in ("path", "scope", "mark"):
        place = getattr(event, name, "")
        if place:
            return str(place)
    return ""


def _form(event: AnyEvent) -> str:
    """All that an event says, but for when, by whom and by which way."""
    plain = msgspec.json.decode(msgspec.json.encode(event))
    if plain.get("name") in _TIMES:
        plain.pop("value", None)
    said = {key: _without(value) for key, value in plain.items() if key not in _AS_IT_CAME}
    return msgspec.json.encode(said, order="sorted").decode()


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = {*_AS_IT_CAME, "version"}  # of a file: the event that wrote it
        return {key: _without(each) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        return [_without(each) for each in value]
    return value
