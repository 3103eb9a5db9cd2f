"""The harness and what its agents find around them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import BadInput
from holdfast.workspace import Means, init, next_item

AGENT = """
import subprocess, sys
if "Write the plan for this mission" in sys.stdin.read():
    print("- [ ] 1. build")
    sys.exit()
once = [sys.executable, "-m", "holdfast.cli", "once", "build", "--url", sys.argv[1], "--"]
made = subprocess.run([*once, "sh", "-c", "echo built >> built.txt"], check=False)
sys.exit(made.returncode)
"""


def test_an_agent_may_be_a_script_of_durable_steps(tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    (tmp_path / "agent.py").write_text(AGENT)
    project = tmp_path / "project"
    project.mkdir()
    words = [sys.executable, str(tmp_path / "agent.py"), str(tmp_path / "workspace")]
    with Holdfast(tmp_path / "workspace") as hf:
        id = init(hf, "build it", id="site:1")
        means = Means(shlex.join(words), project)
        assert next_item(hf, id, means).what == "planned"
        came = next_item(hf, id, means)
        assert came.what == "did", came.said
        assert (project / "built.txt").read_text() == "built\n"
        (item,) = hf.tasks(type="mission_item")
        assert [found.id for found in hf.tasks(type="script")] == [f"{item.id}.script"]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_an_item_that_could_not_be_committed_is_committed_by_the_next_one(tmp_path):
    git(tmp_path, "init", "--quiet")
    merging = tmp_path / ".git/MERGE_HEAD"
    ran = []

    def agent(prompt: str) -> str:
        if "Write the plan for this mission" in prompt:
            return "- [ ] 1. one\n- [ ] 2. two"
        ran.append(prompt)
        return "fine"

    command = tmp_path.parent / f"{tmp_path.name}.sh"
    command.write_text("cat > /dev/null; echo made > made.txt")
    with Holdfast("memory://") as hf:
        id = init(hf, "make it")
        assert next_item(hf, id, Means(agent, tmp_path)).what == "planned"
        means = Means(f"sh {command}", tmp_path, git=True)
        merging.write_text("")
        with pytest.raises(BadInput, match="middle of a merge"):
            next_item(hf, id, means)
        assert [item.status for item in hf.task(id).plan] == ["doing", "pending"]
        merging.unlink()
        assert next_item(hf, id, Means(agent, tmp_path, git=True)).item == "2"
        assert len(ran) == 1, "the first one was done again"
        assert "1. one" in git(tmp_path, "log", "--format=%s", "--", "made.txt")
