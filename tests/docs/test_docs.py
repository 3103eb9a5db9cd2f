"""Docs are run: every Python block of README and docs, page by page, in the order it is read.

A block that is meant to fail, or that is not ours to run, is fenced as something else (`text`).
Blocks of one page share their names, as they do in the reader's head. Commands in `sh` blocks that
begin with `holdfast` must exist. A page that starts the server of an engine is skipped where there
is none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.servers import (
    RestateServer,
    TemporalServer,
    restate_server,
    temporal_server,
)
from tests.engines.servers import need

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_the_code_of_a_page_runs(page, tmp_path):
    code = "\n".join(blocks(page, "python"))
    if "TemporalServer(" in code:
        need(TemporalServer, temporal_server())
    if "RestateServer(" in code:
        need(RestateServer, restate_server())
    script = tmp_path / "page.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page):
    for target, _ in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=name)
def test_the_commands_of_a_page_exist(page):
    from holdfast.cli.root import root

    for command in re.findall(r"^\s*holdfast (.*)$", "\n".join(blocks(page, "sh")), re.MULTILINE):
        words = [word for word in command.split() if word in root.commands]
        assert words or command.startswith("-"), f"{name(page)}: holdfast {command}"


def test_there_is_something_to_check():
    assert len([p for p in PAGES if blocks(p, "python")]) >= 1
