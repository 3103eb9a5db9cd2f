"""Tasks that tell a judge outside when they are at work, and the process of a worker for them."""

from __future__ import annotations

import os
import socket
import sys
import time

from holdfast import Holdfast, Limit, Worker, task, tool

WORK_S = 0.01


@task(name="queue_visit")
def visit(n: int, judge: str, key: str = "") -> int:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(judge)
        door.sendall(f"{n} {key or '-'}\n".encode())
        assert door.recv(1) == b"."  # the judge has noted it
        time.sleep(WORK_S)
    return n


AT_ONCE, A_SECOND = 5, 40


@tool(
    name="limit_visit_tool",
    limit=Limit("doors", concurrency=AT_ONCE, per_second=A_SECOND),
    in_doubt="retry",
)
def enter(n: int, judge: str) -> int:
    visit(n, judge)  # outside of a task: the plain function
    return n


@task(name="limit_visit")
def visit_by_limit(n: int, judge: str) -> int:
    return enter(n, judge)


def main() -> None:
    url, lease_s = sys.argv[1], float(sys.argv[2])
    with Holdfast(url, lease_s=lease_s, projections=False) as hf:
        print("ready", os.getpid(), flush=True)
        Worker(hf, concurrency=8, poll_s=0.05).run()


if __name__ == "__main__":
    main()
