"""Run every contender in turn on the same disk, and print medians as ratios to the raw loop.

A disk's speed drifts while one measures, so a contender is compared with the raw loop of
its own round, and the order changes from round to round. Every measurement is a process of
its own.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench import aims, engines, postgres, stores
from bench.running import ROOT, Failed, Json, child, say

CONTENDERS = [
    "raw",
    "holdfast_files",
    "holdfast_nosync",
    "burr_sqlite",
    "langgraph_sqlite",
    "dbos_sqlite",
]
GRAPHS = [
    "SqliteSaver",
    "SqliteSaver, delta channel",
    "HoldfastSaver, files",
    "HoldfastSaver, SQLite",
    "HoldfastSaver, SQLite, delta channel",
]
IMPORTS = ["holdfast", "langgraph.graph", "dbos"]


def main() -> None:
    options = parse()
    # The short measurements first: what is broken shows before the long wait.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        if options.projections_only:
            row = measure_projections(options, Path(folder))
            print(
                json.dumps({"projections": row}, indent=2)
                if options.json
                else projections_line(row)
            )
            return
        if options.graph_only:
            rows = measure_graph(options.conversation, Path(folder))
            shown = "\n".join(map(graph_line, rows))
            print(json.dumps({"graph": rows}, indent=2) if options.json else shown)
            return
        if options.aims:
            found = aims.measure(options, Path(folder))
            if options.write:
                aims.write(found, options)
            shown = f"{aims.machine(found, options)}\n\n{aims.told(found)}"
            print(aims.as_json(found) if options.json else shown)
            return
        if options.stores_only:
            rows = stores.measure(child, say, options, Path(folder))
            shown = "\n".join(stores.table(rows, options.rounds))
            print(json.dumps({"stores": rows}, indent=2) if options.json else shown)
            return
        if options.engines_only:
            rows = engines.measure(say, options, Path(folder))
            shown = "\n".join(engines.table(rows, options.rounds))
            print(json.dumps({"engines": rows}, indent=2) if options.json else shown)
            return
        report = {
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            "steps": options.steps,
            "rounds": options.rounds,
            "import": [measure_import(name, options.imports) for name in IMPORTS],
            "resume": measure_resume(options.resume_steps, Path(folder)),
            "each": measure_each(options.items, options.rounds, Path(folder)),
            "checkpoints": measure_checkpoints(options.checkpoints, Path(folder)),
            "stores": stores.measure(child, say, options, Path(folder)),
            "projections": measure_projections(options, Path(folder)),
            "listing": measure_listing(options, Path(folder)),
            "conversation": measure_talk("conversation", options.conversation, Path(folder)),
            "agent": measure_talk("agent", options.conversation, Path(folder)),
            "graph": measure_graph(options.conversation, Path(folder)),
            "engines": engines.measure(say, options, Path(folder)),
            "contenders": measure_steps(
                [CONTENDERS[0], *options.only], options.steps, options.rounds, Path(folder)
            ),
        }
    print(json.dumps(report, indent=2) if options.json else table(report))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    parser.add_argument(
        "--aims", action="store_true", help="what we aim at, beside the aims and the peers"
    )
    parser.add_argument(
        "--write", action="store_true", help="with --aims: put them into docs/benchmarks.md"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=aims.PARTS, default=aims.PARTS, help="of the aims; all"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--steps", type=int, help="steps of one run (2000; quick: 200)")
    parser.add_argument("--rounds", type=int, help="rounds of all contenders (5; quick: 3)")
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="a folder on the disk to measure (the current one)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:], help="default: all"
    )
    parser.add_argument(
        "--stores-only", action="store_true", help="only one task and many on each store"
    )
    parser.add_argument(
        "--projections-only", action="store_true", help="only what readable files cost"
    )
    parser.add_argument(
        "--graph-only", action="store_true", help="only a conversation in a graph of LangGraph"
    )
    parser.add_argument(
        "--media", nargs="+", choices=stores.MEDIA, default=stores.MEDIA, help="default: all"
    )
    parser.add_argument("--tasks", type=int, default=200, help="how many tasks at once (200)")
    parser.add_argument("--steps-each", type=int, default=10, help="steps of each of them (10)")
    parser.add_argument(
        "--engines-only", action="store_true", help="only steps on Temporal and on Restate"
    )
    parser.add_argument(
        "--engines", nargs="+", choices=engines.ENGINES, default=engines.ENGINES, help="all"
    )
    parser.add_argument(
        "--engine-stores", nargs="+", choices=engines.STORES, default=engines.STORES, help="all"
    )
    parser.add_argument(
        "--engine-steps", type=int, help="steps of the task of a round there (1000; quick: 200)"
    )
    parser.add_argument(
        "--engine-items", type=int, help="items of the map of a round there (1000; quick: 200)"
    )
    parser.add_argument(
        "--engine-long", type=int, help="steps of the long task there (10000; quick: 1000)"
    )
    parser.add_argument(
        "--engine-nosync",
        dest="engine_durable",
        action="store_false",
        help="servers and stores there that survive a kill and no power cut: without the disk",
    )
    options = parser.parse_args()
    quick = options.quick
    options.steps = options.steps or (200 if quick else 2000)
    options.rounds = options.rounds or (3 if quick else 5)
    options.resume_steps = 1000 if quick else 10_000
    options.imports = 3 if quick else 10
    options.items = [100, 1000] if quick else [1000, 10_000]
    options.checkpoints = 10_000 if quick else 1_000_000
    options.listed = 1000 if quick else 10_000
    options.conversation = 400 if quick else 2000
    options.engine_steps = options.engine_steps or (200 if quick else 1000)
    options.engine_items = options.engine_items or (200 if quick else 1000)
    options.engine_long = options.engine_long or (1000 if quick else 10_000)
    return options


def measure_steps(names: list[str], steps: int, rounds: int, folder: Path) -> list[Json]:
    runs: dict[str, list[Json]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            say(f"round {number + 1} of {rounds}: {name}")
            place = folder / f"{name}-{number}"
            place.mkdir()
            runs[name].append(child("bench.child", name, str(steps), str(place)))
    return [summary(name, runs[name], runs["raw"], steps) for name in names]


def summary(name: str, runs: list[Json], raw: list[Json], steps: int) -> Json:
    missing = runs[0].get("missing")
    if missing:
        return {"contender": name, "missing": missing}
    seconds = [run["seconds"] for run in runs]
    ratios = [run["seconds"] / base["seconds"] for run, base in zip(runs, raw, strict=True)]
    return {
        "contender": name,
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "steps_per_s": steps / median(seconds),
        "notes": runs[0]["notes"],
    }


def measure_import(name: str, times: int) -> Json:
    """The best of several starts with the import, less the best of as many without it."""
    if importlib.util.find_spec(name.split(".")[0]) is None:
        return {"module": name, "missing": f"No module named {name!r}"}
    say(f"import {name}")
    start_s(f"import {name}")  # fills the bytecode caches
    pairs = [(start_s("pass"), start_s(f"import {name}")) for _ in range(times)]
    bare, with_import = (min(column) for column in zip(*pairs, strict=True))
    return {"module": name, "seconds": with_import - bare}


def start_s(code: str) -> float:
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)
    return time.perf_counter() - start


def measure_resume(steps: int, folder: Path) -> Json:
    if importlib.util.find_spec("holdfast") is None:
        return {"steps": steps, "missing": "No module named 'holdfast'"}
    say(f"resume of {steps} recorded steps")
    place = folder / "resume"
    place.mkdir()
    child("bench.resume", "record", str(steps), str(place))
    return {"steps": steps, **child("bench.resume", "resume", str(steps), str(place))}


def measure_projections(options: argparse.Namespace, folder: Path) -> Json:
    """What readable files beside the log cost: a task with them, beside the same one without."""
    runs: dict[str, list[Json]] = {"on": [], "off": []}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: readable files")
        for which in ("on", "off") if number % 2 else ("off", "on"):
            place = folder / f"projections-{which}-{number}"
            place.mkdir()
            answer = child("bench.projections", which, str(options.steps), str(place))
            runs[which].append(answer)
    pairs = list(zip(runs["on"], runs["off"], strict=True))
    ratios = [on["seconds"] / off["seconds"] for on, off in pairs]
    return {
        "steps": options.steps,
        "steps_per_s": options.steps / median(on["seconds"] for on in runs["on"]),
        "steps_per_s_without": options.steps / median(off["seconds"] for off in runs["off"]),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratio_closed": median(on["closed_seconds"] / off["closed_seconds"] for on, off in pairs),
        "cpu_us_per_step": 1e6
        * median(on["cpu_seconds"] - off["cpu_seconds"] for on, off in pairs)
        / options.steps,
    }


def measure_each(sizes: list[int], rounds: int, folder: Path) -> list[Json]:
    """Microseconds an item, beside threads that record as many lines and do nothing else."""
    found = []
    for number, size in enumerate(sizes):
        say(f"each over {size} items")
        runs = []
        for turn in range(rounds):
            place = folder / f"each-{number}-{turn}"
            place.mkdir()
            runs.append(child("bench.each", str(size), str(place)))
        found.append(
            {
                "items": size,
                "us_per_item": 1e6 * median(run["seconds"] for run in runs) / size,
                "ratio": median(run["seconds"] / run["raw_seconds"] for run in runs),
            }
        )
    return found


def measure_checkpoints(turns: int, folder: Path) -> Json:
    say(f"a task of {turns} checkpoints")
    place = folder / "checkpoints"
    place.mkdir()
    recorded = child("bench.checkpoints", "record", str(turns), str(place))
    resumed = child("bench.checkpoints", "resume", str(turns), str(place))
    weight = recorded["log_bytes"] / recorded["change_bytes"]
    return {"turns": turns, "seconds": resumed["seconds"], "log_to_change": weight}


@contextmanager
def each_store(folder: Path, name: str) -> Iterator[list[tuple[str, str]]]:
    """An empty place in every kind of store that is here."""
    found = [("files", str(folder / name)), ("SQLite", f"sqlite:///{folder}/{name}.db")]
    with ExitStack() as stack:
        if postgres.is_installed():
            # The name of a socket is short, and so is that of the folder it is in.
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-"))
            url = stack.enter_context(postgres.server(Path(place)))
            found.append(("PostgreSQL", postgres.new_database(url, name)))
        yield found


def measure_listing(options: argparse.Namespace, folder: Path) -> list[Json]:
    """Milliseconds for a page: of 10,000 tasks in files, and of ten times as many in databases."""
    found: list[Json] = []
    with each_store(folder, "listing") as places:
        for name, url in places:
            count = options.listed * (1 if name == "files" else 10)
            say(f"a page of {count} tasks in {name}")
            child("bench.listing", "fill", url, str(count))
            row: Json = {"store": name, "tasks": count}
            found.append(row | child("bench.listing", "time", url))
    return found


def measure_talk(module: str, turns: int, folder: Path) -> list[Json]:
    """A conversation, kept by a task or by a session: how it grows, in time and in bytes."""
    found: list[Json] = []
    with each_store(folder, module) as places:
        for name, url in places:
            say(f"{module}: {turns} turns in {name}")
            found.append({"store": name} | child(f"bench.{module}", str(turns), url))
    return found


def measure_graph(turns: int, folder: Path) -> list[Json]:
    """A conversation in a graph of LangGraph, by its own checkpointer and by ours."""
    if importlib.util.find_spec("langgraph") is None:
        return []
    found: list[Json] = []
    for name in GRAPHS:
        say(f"a graph of {turns} turns: {name}")
        # LangGraph's own takes gigabytes: each is deleted before the next one begins.
        with tempfile.TemporaryDirectory(dir=folder) as place:
            found.append(child("bench.graph", name, str(turns), place))
    return found


def table(report: Json) -> str:
    lines = [
        f"{report['steps']} durable steps of one task, median of {report['rounds']} rounds, "
        f"raw loop = 1; {report['machine']}",
        "",
        f"{'contender':<18} {'ratio to raw':>20} {'steps/s':>9}  notes",
        *(contender_line(row) for row in report["contenders"]),
        "",
        *stores.table(report["stores"], report["rounds"]),
        "",
        *engines.table(report["engines"], report["rounds"]),
        "",
        *(f"import {row['module']}: {seconds(row)}" for row in report["import"]),
        f"resume of {report['resume']['steps']} recorded steps: {seconds(report['resume'])}",
        *(
            f"each over {row['items']} items: {row['us_per_item']:.0f} µs an item, "
            f"{row['ratio']:.2f}× threads that only record"
            for row in report["each"]
        ),
        f"a task of {report['checkpoints']['turns']} checkpoints goes on after "
        f"{seconds(report['checkpoints'])}; its log is "
        f"{report['checkpoints']['log_to_change']:.2f}× what changed",
        projections_line(report["projections"]),
        *(listing_line(row) for row in report["listing"]),
        *(conversation_line(row) for row in report["conversation"]),
        *(agent_line(row) for row in report["agent"]),
        *(graph_line(row) for row in report["graph"]),
    ]
    raw = report["contenders"][0]
    if raw["steps_per_s"] > 50_000:
        lines += ["", "A sync costs nothing here: is the folder in memory? Give a disk by --dir."]
    return "\n".join(lines)


def contender_line(row: Json) -> str:
    if "missing" in row:
        return f"{row['contender']:<18} {'–':>20} {'–':>9}  {seconds(row)}"
    ratio = f"{row['ratio']:.2f} ({row['ratio_min']:.2f}–{row['ratio_max']:.2f})"
    return f"{row['contender']:<18} {ratio:>20} {row['steps_per_s']:>9,.0f}  {row['notes']}"


def conversation_line(row: Json) -> str:
    weight = row["disk_bytes"] / row["messages_bytes"]
    slower = row["second_half_s"] / row["first_half_s"]
    return (
        f"a conversation of {row['turns']:,} turns of 1 KB in {row['store']}: {weight:.2f}× the "
        f"bytes of its messages; the second half takes {slower:.2f}× the time of the first"
    )


def graph_line(row: Json) -> str:
    seconds_all = row["first_half_s"] + row["second_half_s"]
    return (
        f"a graph of {row['turns']:,} turns of 1 KB, {row['saver']}: {seconds_all:.0f} s, "
        f"{row['disk_bytes'] / 1e6:,.1f} MB; the second half takes "
        f"{row['second_half_s'] / row['first_half_s']:.2f}× the time of the first"
    )


def agent_line(row: Json) -> str:
    weight = row["disk_bytes"] / row["messages_bytes"]
    context, turn = row["context_ms"], row["turn_ms"]
    return (
        f"an agent of {row['turns']:,} turns in {row['store']}: a context takes {context[0]:.1f} "
        f"ms in the first quarter of them and {context[3] / context[0]:.2f}× that in the last, a "
        f"whole turn {turn[3] / turn[0]:.2f}×; {weight:.2f}× the bytes of its messages"
    )


def projections_line(row: Json) -> str:
    return (
        f"readable files beside a task of {row['steps']} durable steps: {row['ratio']:.3f}× its "
        f"time without ({row['ratio_min']:.2f}–{row['ratio_max']:.2f}; {row['steps_per_s']:,.0f} "
        f"and {row['steps_per_s_without']:,.0f} steps/s), {row['ratio_closed']:.3f}× with the "
        f"last write; {row['cpu_us_per_step']:.0f} µs of CPU a step"
    )


def listing_line(row: Json) -> str:
    pages = sorted(row["pages"].items(), key=lambda page: page[1])
    slowest = ", ".join(f"{name} {ms:.1f}" for name, ms in pages[:-4:-1])
    return (
        f"a page of {row['tasks']:,} tasks in {row['store']}: "
        f"{median(ms for _, ms in pages):.1f} ms (median of {len(pages)} filters; slowest: "
        f"{slowest}); the first in a process {row['first_ms']:.0f} ms"
    )


def seconds(row: Json) -> str:
    if "missing" in row:
        return f"not measured: {row['missing']}"
    return f"{row['seconds']:.3f} s"


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(str(failed))
