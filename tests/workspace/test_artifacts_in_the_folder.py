"""What a task makes is in its folder, and is made anew from the log."""

from __future__ import annotations

import shutil

from holdfast import Holdfast, task
from holdfast.workspace import files
from holdfast.workspace.projecting import project, task_folder


@task
def makes_files_for_its_folder() -> None:
    files.write("report.md", "# One")
    files.write("data/rows.csv", "a,b")
    files.write("report.md", "# Two")
    files.remove("data/rows.csv")


def test_the_files_of_a_task_are_in_its_folder_and_come_back(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.run(makes_files_for_its_folder, id="t")
    folder = task_folder(tmp_path, "t")
    assert (folder / "artifacts" / "report.md").read_text() == "# Two"
    assert not (folder / "artifacts" / "data" / "rows.csv").exists()
    shutil.rmtree(folder / "artifacts")
    with Holdfast(tmp_path) as hf:
        project(hf.store, "t", folder)
        assert hf.verify().sound
    assert (folder / "artifacts" / "report.md").read_text() == "# Two"
