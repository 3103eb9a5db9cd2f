"""What a long conversation costs an agent: `python -m bench.agent TURNS URL` has one.

One task, one session. On every turn the user says 1 KB, what is older is summarized if it has
become too much, a context is built within its budget, and a step that takes it says 1 KB. Printed
are the milliseconds that a context and a whole turn took, in each quarter of the turns, and the
bytes on disk beside those of the messages.
"""

import json
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.conversation import bytes_of
from holdfast import Holdfast, step, task
from holdfast.agent import Context, Message, assistant, compact, context, session

TEXT = "a few words " * 85
BUDGET = 16_000
contexts: list[float] = []
whole: list[float] = []


@step
def reply(seen: Context) -> str:
    return f"{len(seen.messages)} {TEXT}"


def in_short(messages: Sequence[Message]) -> str:
    return "What was said before, in short. " * 30


@task
def talk(turns: int, compacted: bool) -> int:
    chat, size = session(), 0
    for turn in range(turns):
        began = time.perf_counter()
        chat.say(f"{turn} {TEXT}")
        if compacted:
            compact(chat, in_short, over_tokens=BUDGET // 2)
        before = time.perf_counter()
        seen = context(chat, budget_tokens=BUDGET, system="Be brief.")
        contexts.append(time.perf_counter() - before)
        said = reply(seen)
        chat.say(assistant(said))
        whole.append(time.perf_counter() - began)
        size += len(said) + len(TEXT) + 5
    return size


def quarters(seconds: list[float]) -> list[float]:
    """The median of each quarter, in milliseconds."""
    size = len(seconds) // 4
    return [round(1000 * median(seconds[n * size : (n + 1) * size]), 3) for n in range(4)]


def main() -> None:
    turns, url = int(sys.argv[1]), sys.argv[2]
    with Holdfast(url) as hf:
        size = hf.session("talk").run(talk, turns, "--plain" not in sys.argv, id="talk")
    report = {
        "turns": turns,
        "context_ms": quarters(contexts),
        "turn_ms": quarters(whole),
        "messages_bytes": size,
        "disk_bytes": bytes_of(url),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
