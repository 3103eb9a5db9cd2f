"""The debugging story is run: each command of its page, in order, prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "debugging.md"
FUNCTION = re.compile(r"^def best\(.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def expected(shown: str) -> re.Pattern[str]:
    """What a page shows, where … stands for anything."""
    lines = [".*".join(map(re.escape, line.split("…"))) for line in shown.splitlines()]
    several = [r"(?:.*\n)*?" if line == ".*" else f"{line}\n" for line in lines]
    return re.compile("".join(several))


def commands(block: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.timeout(300)
def test_the_debugging_story_goes_as_it_is_told(tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, module in (("holdfast", "holdfast.cli"), ("python", "")):
        words = f"{sys.executable} -m {module}" if module else sys.executable
        (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (tools / name).chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PYTEST_"))}
    env = plain | {"PATH": f"{tools}:{os.environ['PATH']}"}
    told = 0
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            agents = folder / "agents.py"
            before = agents.read_text() if agents.exists() else ""
            mended = FUNCTION.split(before)
            agents.write_text(text.rstrip().join(mended) if before else text)
            continue
        for command, shown in commands(text):
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert expected(shown).fullmatch(done.stdout), (
                f"$ {command}\n{done.stdout}{done.stderr}"
            )
            told += 1
    assert told >= 12
    (folder / "agents.py").write_text(blocks(PAGE, "python")[0])
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"], cwd=folder, env=env, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 1, "with the mistake in it again, the test that was kept fails"
    assert "book" in again.stdout
