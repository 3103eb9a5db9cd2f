"""What a growing conversation costs: `python -m bench.conversation TURNS URL` has one.

On every turn a message of 1 KB is added and the whole conversation is handed to a step, which
returns the next one. Printed are the seconds of the first and of the second half of the turns, and
the bytes on disk beside those of the messages.
"""

import json
import sys
import time
from pathlib import Path

from holdfast import Holdfast, step, task

TEXT = "blah " * 200
halves: list[float] = []


@step
def reply(messages: list[dict[str, str]]) -> str:
    return f"{len(messages)} {TEXT}"


@task
def conversation(turns: int) -> int:
    messages: list[dict[str, str]] = []
    start = time.perf_counter()
    for turn in range(turns):
        messages.append({"role": "assistant", "content": reply(messages)})
        if turn + 1 in (turns // 2, turns):
            halves.append(time.perf_counter() - start)
            start = time.perf_counter()
    return len(json.dumps(messages))


def bytes_of(url: str) -> int | None:
    """What a store takes on disk; None for a server's, which is asked itself."""
    if url.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select sum(pg_total_relation_size(c.oid)) from pg_class c"
                " where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r'"
            ).fetchone()
            return int(row[0]) if row else None
    path = Path(url.removeprefix("sqlite:///"))
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


def main() -> None:
    turns, url = int(sys.argv[1]), sys.argv[2]
    with Holdfast(url) as hf:
        messages = hf.run(conversation, turns, id="conversation")
    first, second = halves
    report = {
        "turns": turns,
        "first_half_s": first,
        "second_half_s": second,
        "messages_bytes": messages,
        "disk_bytes": bytes_of(url),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
