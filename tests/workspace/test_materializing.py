"""The folder of a task's files: a copy of the log that people may edit and nobody escapes from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadInput, Holdfast, task
from holdfast.stores.files.disk import Disk
from holdfast.workspace import files, replacement
from holdfast.workspace.task_files import Materialized, materialize, take_in_files


@task
def mat_write(contents: dict[str, str]) -> None:
    for name, text in contents.items():
        files.write(name, text)


@pytest.fixture
def hf(tmp_path: Path) -> Any:
    with Holdfast(tmp_path / "w") as opened:
        opened.run(mat_write, {"a.md": "one", "docs/b.md": "two"}, id="t")
        yield opened


def made(hf: Holdfast, folder: Path) -> Materialized:
    return materialize(hf.store, hf.task("t").state, folder)


def tree(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(found)}


def test_a_folder_is_brought_up_to_date_and_nothing_is_written_twice(
    hf: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts"
    assert made(hf, folder).written == ("a.md", "docs/b.md")
    assert tree(folder) == {"a.md": "one", "docs/b.md": "two"}
    assert made(hf, folder) == Materialized()
    hf.files("t").write("a.md", "newer")
    hf.files("t").remove("docs/b.md")
    assert made(hf, folder) == Materialized(("a.md",), ("docs/b.md",))
    assert tree(folder) == {"a.md": "newer"}
    assert not (folder / "docs").exists()


def test_deleted_and_made_again_it_is_the_same_to_the_byte_and_the_time(
    hf: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts"
    made(hf, folder)
    before = {name: (folder / name).stat().st_mtime_ns for name in tree(folder)}, tree(folder)
    shutil.rmtree(folder)
    made(hf, folder)
    assert (
        {name: (folder / name).stat().st_mtime_ns for name in before[1]},
        tree(folder),
    ) == before
    assert (folder / "a.md").stat().st_mode & 0o777 == 0o600


def test_an_edit_stays_until_it_is_taken_in(hf: Any, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    made(hf, folder)
    (folder / "a.md").write_text("edited")
    (folder / "new.md").write_text("added")
    assert made(hf, folder).edited == ("a.md",)
    assert tree(folder) == {"a.md": "edited", "docs/b.md": "two", "new.md": "added"}
    taken = take_in_files(hf, "t", folder, by="ada")
    assert [(file.name, file.by) for file in taken] == [("a.md", "ada"), ("new.md", "ada")]
    assert hf.files("t").read_text("a.md") == "edited"
    assert made(hf, folder) == Materialized()
    assert take_in_files(hf, "t", folder) == ()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_edit_that_the_task_wrote_over_is_kept_aside(
    hf: Any, tmp_path: Path, can_exchange: bool, monkeypatch: Any
) -> None:
    if not can_exchange:
        monkeypatch.setattr(Disk, "exchange", lambda *names: False)
    folder = tmp_path / "artifacts"
    made(hf, folder)
    for number in (1, 2):
        (folder / "docs/b.md").write_text(f"edited {number}")
        os.utime(folder / "docs/b.md", (0, 0))  # some time before the task wrote it again
        hf.files("t").write("docs/b.md", f"of the task {number}")
        found = made(hf, folder)
        assert found.aside == (f"docs/b.md.edited-{number}",)
    assert tree(folder) == {
        "a.md": "one",
        "docs/b.md": "of the task 2",
        "docs/b.md.edited-1": "edited 1",
        "docs/b.md.edited-2": "edited 2",
    }
    assert take_in_files(hf, "t", folder) == ()


def test_an_edit_that_comes_while_we_write_is_kept_aside(
    hf: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "artifacts"
    made(hf, folder)
    hf.files("t").write("a.md", "of the task")
    exchange = replacement.exchange

    def just_before(new: str, name: str, fd: int) -> None:
        os.unlink(folder / "a.md")
        (folder / "a.md").write_text("edited just now")
        exchange(new, name, fd)

    monkeypatch.setattr("holdfast.workspace.task_files.exchange", just_before)
    assert made(hf, folder).aside == ("a.md.edited-1",)
    assert (folder / "a.md").read_text() == "of the task"
    assert (folder / "a.md.edited-1").read_text() == "edited just now"


def test_no_symlink_is_followed_and_nothing_outside_is_touched(hf: Any, tmp_path: Path) -> None:
    folder, outside = tmp_path / "artifacts", tmp_path / "outside"
    outside.mkdir()
    (outside / "b.md").write_text("not ours")
    (outside / "a.md").write_text("not ours")
    folder.mkdir()
    (folder / "docs").symlink_to(outside)
    (folder / "a.md").symlink_to(outside / "a.md")
    found = made(hf, folder)
    assert set(found.aside) == {"a.md.edited-1", "docs.edited-1"}
    assert tree(outside) == {"a.md": "not ours", "b.md": "not ours"}
    assert (folder / "a.md").read_text() == "one" and not (folder / "a.md").is_symlink()
    assert (folder / "docs/b.md").read_text() == "two"
    hf.files("t").remove("docs/b.md")
    made(hf, folder)
    assert take_in_files(hf, "t", folder) == ()
    assert tree(outside) == {"a.md": "not ours", "b.md": "not ours"}


def test_a_folder_in_the_way_is_kept_aside(hf: Any, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    (folder / "a.md").mkdir(parents=True)
    (folder / "a.md/mine.txt").write_text("mine")
    assert made(hf, folder).aside == ("a.md.edited-1",)
    assert tree(folder) == {"a.md": "one", "a.md.edited-1/mine.txt": "mine", "docs/b.md": "two"}


def test_what_is_not_ours_is_left_where_it_is(hf: Any, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    made(hf, folder)
    (folder / "docs/mine.md").write_text("mine")
    hf.files("t").remove("docs/b.md")
    made(hf, folder)
    assert tree(folder) == {"a.md": "one", "docs/mine.md": "mine"}


def test_a_name_that_no_file_can_have_is_told_and_nothing_is_taken(hf: Any, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "a.md").write_text("edited")
    (folder / "b\\c").write_text("x")
    with pytest.raises(BadInput, match="backslash"):
        take_in_files(hf, "t", folder)
    assert hf.files("t").read_text("a.md") == "one"
    with pytest.raises(BadInput, match="no folder"):
        (tmp_path / "link").symlink_to(folder)
        made(hf, tmp_path / "link")
