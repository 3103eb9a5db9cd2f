"""Phases: what an agent may do next, declared once.

An agent is a state machine, whether somebody wrote it down or not. `Phases` is where it is written
down: the phases, and which may follow which. It is checked as it is declared, so a typo shows when
the module is imported and not in the one run that takes that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.errors import BadInput, IllegalTransition


class Phases:
    """The phases of an agent, and the moves that are allowed between them.

    `moves` says where each phase may lead, `final` which phases end it, and `from_any` which can be
    moved to from every phase that is not final: an error can happen anywhere.

    >>> desk = Phases(
    ...     start="new",
    ...     moves={"new": ["open"], "open": ["answered", "escalated"], "escalated": ["answered"]},
    ...     final=["answered", "dropped"],
    ...     from_any=["dropped"],
    ... )
    >>> desk.move("open", "escalated"), desk.allowed("escalated")
    ('escalated', ('answered', 'dropped'))
    >>> desk.move("answered", "open")
    Traceback (most recent call last):
    holdfast.errors.IllegalTransition: from 'answered' to 'open': 'answered' is final
    """

    def __init__(
        self,
        *,
        start: str,
        moves: Mapping[str, Iterable[str]],
        final: Iterable[str] = (),
        from_any: Iterable[str] = (),
    ) -> None:
        self.start = _names("start", (start,))[0]
        self.final = _names("final", final)
        always = _names("from_any", from_any)
        _names("moves", moves)
        told = {phase: _names(f"moves[{phase!r:.60}]", to) for phase, to in moves.items()}
        self.names = tuple(dict.fromkeys((start, *told, *self.final)))
        """Every phase, the first one first."""
        self._must_be_known(told, always)
        ways = {}
        for phase in self.names:
            to = told.get(phase, ())
            ways[phase] = to if phase in self.final else tuple(dict.fromkeys((*to, *always)))
        self.moves: Mapping[str, tuple[str, ...]] = MappingProxyType(ways)
        """Where each phase may lead."""
        self._must_lead_somewhere(always)

    def move(self, now: str, to: str) -> str:
        """The phase `to`, if it may follow `now`; else `IllegalTransition`.

        >>> AGENT.move("reflecting", "planning")
        'planning'
        """
        if to not in self.allowed(now):
            raise IllegalTransition(now, to, self.moves[now])
        return to

    def allowed(self, now: str) -> tuple[str, ...]:
        """The phases that may follow this one; none if it is final.

        >>> AGENT.allowed("idle")
        ('planning', 'error')
        """
        try:
            return self.moves[now]
        except (KeyError, TypeError):
            raise BadInput(
                f"{now!r:.60} is no phase: it is one of {', '.join(self.names)}"
            ) from None

    def _must_be_known(self, told: Mapping[str, tuple[str, ...]], always: tuple[str, ...]) -> None:
        for phase, to in {**told, "from_any": always}.items():
            if unknown := [name for name in to if name not in self.names]:
                raise BadInput(
                    f"{phase!r} leads to {unknown[0]!r}, which is no phase: give it moves of its "
                    f"own, or name it in final. The phases are {', '.join(self.names)}"
                )
        if ended := [phase for phase in self.final if told.get(phase)]:
            raise BadInput(f"{ended[0]!r} is final and leads to {', '.join(told[ended[0]])}")

    def _must_lead_somewhere(self, always: tuple[str, ...]) -> None:
        for phase, to in self.moves.items():
            if phase not in self.final and not set(to) - {*always, phase}:
                raise BadInput(
                    f"{phase!r} leads nowhere and is not final: give it moves, or name it in final"
                )
        reached, todo = {self.start}, [self.start]
        while todo:
            new = set(self.moves[todo.pop()]) - reached
            reached |= new
            todo += new
        if lost := [phase for phase in self.names if phase not in reached]:
            raise BadInput(f"no move leads to {lost[0]!r} from {self.start!r}, where it starts")


def _names(what: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadInput(f"{what}={names!r:.60} must be a list of phases")
    found = tuple(names)
    if wrong := [name for name in found if not isinstance(name, str) or not name]:
        raise BadInput(f"{what}: a phase has a name, which {wrong[0]!r:.60} is not")
    return found


AGENT = Phases(
    start="idle",
    moves={
        "idle": ["planning"],
        "planning": ["executing"],
        "executing": ["reflecting"],
        "reflecting": ["planning", "executing", "done"],
    },
    final=["done", "error"],
    from_any=["error"],
)
"""The phases of `AgentState`. An agent is done only after it has looked at what it did; from there
it may also plan anew, or go on with its plan. It ends done or in an error, and another request is
another state."""
