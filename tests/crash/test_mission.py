"""The refactoring of five modules by four processes at once, killed at random again and again.

Every item is done once, the files are right, and what `status.md` says is true at every kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.fold import fold
from holdfast.log.reading import read_events
from holdfast.views.task import TaskView
from holdfast.workspace.harness import Means, init, loop
from holdfast.workspace.pages import PageChanges, footer_of, is_untouched, rendered
from holdfast.workspace.projecting import task_folder
from tests.thorough import THOROUGH

MODULES = ("auth", "billing", "mail", "search", "web")
KILLS = 50 if THOROUGH else 20

AGENT = r"""
import re, sys, time, pathlib
prompt = sys.stdin.read()
if "Write the plan for this mission" in prompt:
    number = 0
    print("This is the plan:")
    for module in MODULES:
        for work in ("read", "rewrite", "test"):
            after = "" if work == "read" else f" (after: {number})"
            number += 1
            print(f"- [ ] {number}. {work} {module}{after}")
    tests = ", ".join(str(n) for n in range(3, number + 1, 3))
    print(f"- [ ] {number + 1}. release (after: {tests})")
    sys.exit()
item = re.search(r"# Your item\n\n\d+\. (.*)\n", prompt)[1]
work, _, module = item.partition(" ")
time.sleep(0.15)
while work == "release" and not pathlib.Path("../enough").exists():
    time.sleep(0.02)  # nobody comes to the end before enough of them were killed
if work == "rewrite":
    path = pathlib.Path(f"{module}.py")
    text = path.read_text()
    if not text.endswith("# end\n"):  # torn by one that was killed: made whole from its copy
        text = pathlib.Path(f"{module}.orig").read_text()
    if "old_client" in text:
        path.write_text(text[: len(text) // 2])  # torn, for whoever looks now
        time.sleep(0.05)
        path.write_text(text.replace("old_client", "new_client"))
if work == "test":
    text = pathlib.Path(f"{module}.py").read_text()
    if "old_client" in text or not text.endswith("# end\n"):
        sys.exit(f"{module} is not rewritten")
    pathlib.Path(f"{module}.tested").write_text("ok\n")
time.sleep(0.15)
print(f"{work} {module}: done")
""".replace("MODULES", repr(MODULES))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    for module in MODULES:
        text = f"import old_client\n\nclass {module.title()}:\n    old_client.Client()\n# end\n"
        (folder / f"{module}.py").write_text(text)
        (folder / f"{module}.orig").write_text(text)
    (tmp_path / "agent.py").write_text(AGENT)
    return folder


def begin(store: Path, folder: Path) -> int:
    """A harness process, which works until nothing is left."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        agent = f"{sys.executable} -S {folder.parent / 'agent.py'}"
        with Holdfast(store, lease_s=5) as hf:
            means = Means(agent, folder, beside=(store,), files=task_folder(store, "refactor"))
            came = loop(hf, "refactor", means, pause_s=0.02)
        status = 0 if came.what == "done" else 2
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def must_be_true(store: Path, looked_at: set[str]) -> None:
    """Every readable file is whole, and says what the log said at the event that it names."""
    folder = task_folder(store, "refactor")
    with Holdfast(store, projections=False) as hf:
        for name in ("status.md", "plan.md", "mission.md", "state.json"):
            try:
                data = (folder / name).read_bytes()
            except FileNotFoundError:
                continue
            assert is_untouched(name, data), f"{name} is torn"
            if name in ("status.md", "state.json"):
                found = footer_of(data)
                seq = found[0].seq if found is not None else json.loads(data)["seq"]
                # Others go on meanwhile: the log is read after the file that was made from it.
                events = list(read_events(hf.store, "tasks/refactor"))
                state = fold(event for event in events if event.seq <= seq)
                changes = PageChanges()
                for event in events[:seq]:
                    changes.note(event)
                assert rendered(TaskView(hf.store, state), changes)[name] == data
                looked_at.add(f"{name} at {seq}")


def test_five_modules_are_refactored_once_by_four_processes_that_are_killed(tmp_path, project):
    chance = random.Random(7)
    store = tmp_path / "workspace"
    with Holdfast(store) as hf:
        init(hf, "Replace the old client by the new one in all modules.", id="refactor")
    processes = {begin(store, project) for _ in range(4)}
    kills, looked_at = 0, set[str]()
    give_up_at = time.monotonic() + 200
    try:
        while kills < KILLS:
            time.sleep(chance.uniform(0.01, 0.08))
            victim = chance.choice(sorted(processes))
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            assert os.WIFSIGNALED(status), "it ended before it was killed"
            kills += 1
            processes.remove(victim)
            must_be_true(store, looked_at)
            processes.add(begin(store, project))
    finally:
        (tmp_path / "enough").touch()
    for process in processes:
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > give_up_at:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.01)
    must_be_true(store, looked_at)
    assert looked_at

    with Holdfast(store) as hf:
        mission = hf.task("refactor")
        assert mission.status == "completed"
        assert [item.status for item in mission.plan] == ["done"] * 16
        items = [view for view in hf.tasks() if view.type == "mission_item"]
        assert sorted(view.input["item"] for view in items) == sorted(str(n) for n in range(1, 17))
        assert {view.status for view in items} == {"completed"}
        agents = [
            call for view in items for call in view.state.calls.values() if call.kind == "tool"
        ]
        assert any(len(call.attempts) > 1 for call in agents), "no agent was ever killed at work"
        assert hf.verify().sound
    for module in MODULES:
        text = (project / f"{module}.py").read_text()
        assert text == (project / f"{module}.orig").read_text().replace("old_client", "new_client")
        assert (project / f"{module}.tested").read_text() == "ok\n"
