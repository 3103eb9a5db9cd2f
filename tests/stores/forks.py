"""A task with a conversation, files and long values, its forks, and one that was rewound."""

from __future__ import annotations

from holdfast import Holdfast, current, step, task, tool
from holdfast.agent import assistant, session
from holdfast.log.store_calls import streams_in
from holdfast.workspace import files

LONG = 3_000


@step
def branch_look(n: int) -> str:
    return f"seen {n} " * LONG


@tool
def branch_send(n: int) -> str:
    return f"sent {n}"


@task
def branching_trip(city: str) -> str:
    """Steps 1 to 4: looks and sends, twice; with something said, planned and written between."""
    chat = session()
    current().plan(["look", "send"])
    for n in (1, 2):
        branch_look(n)
        chat.say(assistant(f"I saw {n} in {city}"))
        branch_send(n)
        files.write("notes.md", f"after {n} in {city}")
    return f"{city} done"


def family(hf: Holdfast) -> None:
    """A task, a fork of it, a fork of the fork, each of which ended; and their sessions."""
    chat = hf.session("talk", user="ada")
    chat.say("Where to?")
    chat.run(branching_trip, "Oslo", id="first")
    hf.fork("first", at=3, effects="live", new_id="fork")
    hf.resume("fork")
    hf.fork("fork", at=4, when="after", effects="live", new_id="fork-of-fork")
    hf.resume("fork-of-fork")


def all_of(hf: Holdfast) -> dict[str, list[tuple[int, str]]]:
    """The events of every log, as whoever reads them sees them."""
    from holdfast.core.kinds import KINDS
    from holdfast.log.reading import read_sums

    streams = sorted(stream for kind in KINDS for stream in streams_in(hf.store, kind.prefix))
    return {
        stream: [(event.seq, total.decode()) for event, total in read_sums(hf.store, stream)]
        for stream in streams
    }
