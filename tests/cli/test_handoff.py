"""`holdfast handoff`: two files that somebody else can go on from."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import Holdfast


def test_the_files_are_written_into_the_tasks_own_folder(recorded, cli):
    ended = cli("handoff", "trip-42")
    assert ended.code == 0, ended.err
    paths = [Path(line) for line in ended.out.splitlines()]
    assert [path.name for path in paths] == ["SUMMARY.md", "CHANGELOG.md"]
    assert all((path.parent / "events.jsonl").exists() for path in paths)
    text = paths[0].read_text()
    assert text.startswith("# Summary of `trip-42`\n")
    assert "may or may not have happened (`holdfast resolve trip-42 " in text
    assert cli("doctor").code == 0  # files beside the log disturb nothing


def test_or_elsewhere_or_printed(recorded, cli):
    ended = cli("handoff", "trip-42", "--dir", "out", "--json")
    files = json.loads(ended.out)["files"]
    assert files == ["out/SUMMARY.md", "out/CHANGELOG.md"]
    printed = cli("handoff", "trip-42", "--print").out
    assert printed.startswith("# Summary of `trip-42`\n")
    assert Path("out/SUMMARY.md").read_text().startswith(printed.rstrip("\n"))
    assert json.loads(cli("handoff", "trip-42", "--print", "--json").out)["summary"] == printed


def test_a_store_that_is_no_folder_needs_one_to_be_named(folder, cli):
    with Holdfast("sqlite:///trips.db") as hf:
        hf.start(_task(), id="t-1")
    url = ("--url", "sqlite:///trips.db")
    ended = cli("handoff", "t-1", *url)
    assert ended.code != 0
    assert "say where with --dir" in ended.err
    assert cli("handoff", "t-1", "--dir", "out", *url).code == 0
    assert "no task 't-2'" in cli("handoff", "t-2", *url).err


def _task():
    from holdfast import task

    @task
    def handed_over_by_command() -> None:
        """Nothing."""

    return handed_over_by_command
