"""A turn of four tools that take half a second each: `python -m bench.parallel_tools [URL]`.

Three agents whose model asks for all four at once: a sync one, an async one with async tools, and
an async one with sync tools. Printed are the seconds from the first call that begins to the answer.
One after the other they would take two.
"""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast, tool
from holdfast.agent import Orchestrator, Reply, Request, ToolCall, assistant

TOOLS, EACH_S = 4, 0.5


@tool(in_doubt="retry")
def wait_in_a_thread(number: int) -> int:
    time.sleep(EACH_S)
    return number


@tool(in_doubt="retry")
async def wait_on_the_loop(number: int) -> int:
    await asyncio.sleep(EACH_S)
    return number


def model_of(name: str, began: list[float]) -> Callable[[Request], Reply]:
    def model(request: Request) -> Reply:
        if request.messages[-1].role != "user":
            return Reply(assistant("All four have ended."))
        began.append(time.perf_counter())
        calls = [ToolCall(f"c{n}", name, f'{{"number": {n}}}') for n in range(TOOLS)]
        return Reply(assistant("", calls), stop="tool_calls")

    return model


def awaited(model: Callable[[Request], Reply]) -> Any:
    async def amodel(request: Request) -> Reply:
        return model(request)

    return amodel


def main() -> None:
    contenders = {
        "sync": (wait_in_a_thread, False),
        "async": (wait_on_the_loop, True),
        "sync tools of an async agent": (wait_in_a_thread, True),
    }
    report = {}
    folder = tempfile.mkdtemp(prefix="bench-")
    with Holdfast(sys.argv[1] if len(sys.argv) > 1 else folder) as hf:
        for number, (label, (fn, is_async)) in enumerate(contenders.items()):
            began: list[float] = []
            model = model_of(fn.__name__, began)
            asked = awaited(model) if is_async else model
            agent = Orchestrator(f"bench_{number}", asked, [fn], plan=False)
            agent.run(hf.session(f"s-{number}"), "Go.")
            report[label] = round(time.perf_counter() - began[0], 3)
    shutil.rmtree(folder)
    print(json.dumps({"tools": TOOLS, "each_s": EACH_S, "turn_s": report}))


if __name__ == "__main__":
    main()
