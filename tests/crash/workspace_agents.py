"""Agents that work on files, to be killed everywhere: rows in batches, and a project's folder.

What they leave is known to the byte. Whoever writes a row twice, loses one, or edits a file twice,
leaves something else.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from holdfast import Holdfast, TaskCancelled, step, task
from holdfast.testing.crash import boundary
from holdfast.workspace import files
from holdfast.workspace.batches import process, rows
from holdfast.workspace.ensure import (
    ensure_absent,
    ensure_block,
    ensure_dir,
    ensure_file,
    ensure_json,
    ensure_line,
)
from holdfast.workspace.task_files import materialize

FOLDER = Path(tempfile.mkdtemp(prefix="holdfast-crash-agents-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)  # those that are killed never come by


@step
def crash_row(row: dict[str, str]) -> dict[str, Any] | None:
    boundary("inside a row")
    return None if row["n"] == "4" else {"n": row["n"], "text": row["text"].upper()}


@task
def crash_rows() -> dict[str, Any]:
    source = rows(FOLDER / "in.csv", batch=3, on_error="skip")
    done = process(source, crash_row, into="out.csv", workers=1)
    return {"rows": done.rows, "left_out": done.left_out, "skipped": done.skipped}


@task
async def crash_rows_async() -> dict[str, Any]:
    source = rows(FOLDER / "in.csv", batch=4, on_error="skip")
    work: Any = process(source, crash_row, into="out.csv", workers=2)
    done = await work
    return {"rows": done.rows, "left_out": done.left_out, "skipped": done.skipped}


@task(compensate="always")
def crash_project() -> str:
    files.write("report.md", "# Begun\n")
    ensure_dir("docs", root=FOLDER)
    ensure_file("src/main.py", "print(1)\n", root=FOLDER)
    ensure_line("notes.txt", "a line", root=FOLDER)
    ensure_block("notes.txt", "ours", "one\ntwo", root=FOLDER)
    ensure_json("a.json", "a.b", [1, 2], root=FOLDER)
    ensure_absent("old.txt", root=FOLDER)
    files.append("report.md", "Done\n")
    seen = files.version("report.md")
    files.write("report.md", files.read_text("report.md").upper(), expected=seen)
    return files.read_text("report.md")


@task(compensate="always")
def crash_undone() -> None:
    crash_project()
    raise RuntimeError("it is called off")


class Scenario:
    """A folder with a project and a table in it, and an agent that works on them."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def reset(self) -> None:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        table = "".join(f'{n},"row\n{n}"\n' for n in range(7))
        (FOLDER / "in.csv").write_text(f"n,text\n{table}bad\n11,last\n")
        (FOLDER / "notes.txt").write_text("was there")
        (FOLDER / "a.json").write_text('{"z": 1}')
        (FOLDER / "old.txt").write_text("old")

    def run(self, hf: Holdfast) -> Any:
        try:
            result = hf.run(self.agent, id="t")
        except TaskCancelled as error:
            result = str(error)
        except Exception as error:
            result = type(error).__name__
        artifacts = FOLDER / "artifacts"
        materialize(hf.store, hf.task("t").state, artifacts)
        found = {file.name: hf.files("t").read_text(file.name) for file in hf.files("t").list()}
        return [result, found, hf.verify().sound]

    def effects(self) -> Any:
        return {
            str(path.relative_to(FOLDER)): path.read_text() if path.is_file() else None
            for path in sorted(FOLDER.rglob("*"))
        }


def rows_in_batches() -> Scenario:
    return Scenario(crash_rows)


def rows_async() -> Scenario:
    return Scenario(crash_rows_async)


def project_undone() -> Scenario:
    return Scenario(crash_undone)
