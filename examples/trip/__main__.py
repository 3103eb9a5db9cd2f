"""The demo: an agent is killed at the worst moment, twice over.

First an ordinary agent, then the same agent on Holdfast. The outside world (calendar, mail,
payments, bookings) is a real server in a process of its own and keeps its own books, so what it
says at the end is not our word but its.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from holdfast import Holdfast
from holdfast.views.task import TaskView

from .agent import TRIP
from .client import PACKAGE, ROOT, World, start_world

KINDS = {"bookings": "hotel bookings", "payments": "payments", "invites": "calendar invites",
         "mails": "mails"}  # fmt: skip

console = Console(highlight=False)


def run_process(*arguments: str) -> bool:
    """Run an agent in a process of its own; True if it was killed."""
    module, *words = arguments
    command = [sys.executable, "-m", f"{PACKAGE}.{module}", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            console.print(f"    {line.rstrip()}", markup=False, soft_wrap=True)
    killed = process.returncode in (-9, signal.SIGTERM)  # as Windows tells it
    if killed:
        console.print("    [bold red]✗ killed (SIGKILL)[/], right after the invite went out")
    elif process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return killed


def act(title: str) -> None:
    console.print()
    console.print(Rule(title, style="cyan", align="left"))


def show_timeline(view: TaskView) -> None:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in ("step", "call", "kind", "status", "tries", "settled by"):
        table.add_column(column)
    for call in view.calls:
        if call.kind == "decision":
            continue
        table.add_row(
            call.path, call.name, call.kind, call.status, str(len(call.attempts)), call.settled_by
        )
    console.print(table)
    for choice in view.decisions:
        name = choice.choice.get("hotel") or choice.choice.get("flight")
        console.print(
            f"  decided {choice.name}: {name}, of {len(choice.options)}, because it is"
            f" {choice.because}"
        )


def show_counts(naive: dict[str, int], ours: dict[str, int]) -> bool:
    table = Table(title="what the outside world counted", title_justify="left", box=None,
                  padding=(0, 2), header_style="bold")  # fmt: skip
    for column in ("", "ordinary agent", "on Holdfast"):
        table.add_column(column)
    for kind, name in KINDS.items():
        bad = naive[kind] > 1
        table.add_row(name, f"[red]{naive[kind]}[/]" if bad else str(naive[kind]),
                      f"[green]{ours[kind]}[/]")  # fmt: skip
    console.print(table)
    return all(ours[kind] == 1 for kind in KINDS)


def main() -> None:
    workspace = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "demo-workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_world(Path(folder) / "world.db") as (_, url),
    ):
        world = World(url)
        console.print(
            "An agent plans a trip in nine steps: it searches, books a hotel, pays, sends\n"
            "a calendar invite and a mail. In step 6 its process is killed, right after\n"
            "the invite went out, before that could be written down. Then it is started\n"
            "again."
        )
        act("1. An ordinary agent: its state is in its variables")
        run_process("naive", url, "--die-after-invite")
        console.print("    [bold]started again[/]: it remembers nothing, so it begins at step 1")
        run_process("naive", url)
        naive = world.counts()

        world.reset()
        act("2. The same agent on Holdfast: its state is a log on disk")
        run_process("agent", url, str(workspace), "--die-after-invite")
        with Holdfast(workspace) as hf:
            view = hf.task(TRIP)
            doubt = view.doubts[0]
            console.print(
                f"    the log says: {view.position}; steps 1 to {len(view.position.committed)} are"
                f" committed;\n    {doubt.name} was begun, and how it ended is not known: it is in"
                " doubt"
            )
        console.print("    [bold]started again[/], with the same command")
        run_process("agent", url, str(workspace))
        ours = world.counts()

        act("3. What happened, from the log")
        with Holdfast(workspace) as hf:
            show_timeline(hf.task(TRIP))
        act("4. The books of the outside world")
        once = show_counts(naive, ours)
    command = "holdfast" if sys.argv[1:] else ".venv/bin/holdfast"
    console.print(
        f"\nLook for yourself: [bold]{command} --url {workspace.name} show {TRIP}[/]"
        f"\nOr in the browser:  [bold]{command} --url {workspace.name} ui[/]"
        f"\nThe log is plain text: {workspace.name}/tasks/{TRIP}/events.jsonl"
    )
    if not once:
        raise SystemExit("the demo failed: something happened more or less than once")


if __name__ == "__main__":
    main()
