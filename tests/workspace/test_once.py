"""A step whose process dies at the worst moments"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, Retention
from holdfast.core.events import Failed, TaskErrored
from holdfast.core.spec import Retry
from holdfast.log.log import Log
from holdfast.workspace import git
from holdfast.workspace.once import once
from holdfast.workspace.script import Step


class Died(BaseException):
    pass


@pytest.fixture
def nowhere():
    descriptor = os.open(os.devnull, os.O_WRONLY)
    yield {"stdout": descriptor, "stderr": descriptor}
    os.close(descriptor)


def step(command: str, **more) -> Step:
    return Step(script="s", name="a", command=("sh", "-c", command), **more)


def test_a_step_that_ended_unheard_is_told_to_its_script_by_the_next_run(
    tmp_path, monkeypatch, nowhere
):
    def die(*args):
        raise Died

    with Holdfast(tmp_path / "w") as hf:
        with monkeypatch.context() as patch:
            patch.setattr(hf._driving, "tell_parent", die)
            with suppress(Died):
                once(hf, step("true"), **nowhere)
        assert hf.task("s").calls[0].status == "running"
        assert hf.task("s:a").status == "completed"
        assert once(hf, step("true"), **nowhere) == 0
        assert hf.task("s").calls[0].status == "completed"
        assert hf.task("s").state.parked  # so that no worker looks after it


@pytest.mark.parametrize("last", [Failed, TaskErrored])
def test_a_step_that_failed_as_its_process_died_is_run_by_the_next_run(
    tmp_path, monkeypatch, nowhere, last
):
    append = Log.append

    def die(self, event, strand=None):
        if isinstance(event, last):
            raise Died
        return append(self, event, strand)

    ran = tmp_path / "ran"
    command = f"echo x >> {ran}; exit 4"
    with Holdfast(tmp_path / "w") as hf:
        with monkeypatch.context() as patch, suppress(Died):
            patch.setattr(Log, "append", die)
            once(hf, step(command), **nowhere)
        assert hf.task("s:a").status == "in_progress"
        assert once(hf, step(command), **nowhere) == 4
        assert ran.read_text() == "x\nx\n"
        assert hf.task("s:a").status == hf.task("s").calls[0].status == "failed"


def test_retries_that_were_used_up_count_anew_with_the_next_run(tmp_path, nowhere):
    ran = tmp_path / "ran"
    twice = step(f"echo x >> {ran}; exit 4", retry=Retry(attempts=2, delay_s=0))
    with Holdfast(tmp_path / "w") as hf:
        for runs in (1, 2):
            assert once(hf, twice, **nowhere) == 4
            assert ran.read_text() == "x\n" * 2 * runs


def test_a_commit_that_failed_is_made_by_the_next_run_and_the_command_is_not_run(
    tmp_path, monkeypatch, nowhere
):
    ran, commits = tmp_path / "ran", []

    def commit(folder, message, **more):
        commits.append(message.partition("\n")[0])
        if len(commits) == 1:
            raise OSError("no space left")
        return "0" * 40

    monkeypatch.setattr(git, "commit_workspace", commit)
    committed = step(f"echo x >> {ran}", git=str(tmp_path))
    said: list[str] = []
    with Holdfast(tmp_path / "w") as hf:
        assert once(hf, committed, **nowhere, say=said.append) == 1
        assert "no space left" in said[0]
        assert [once(hf, committed, **nowhere) for _ in range(2)] == [0, 0]
    assert commits == ["s: a"] * 2
    assert ran.read_text() == "x\n"


def test_a_step_begun_with_a_commit_can_go_on_without(tmp_path, monkeypatch, nowhere):
    def die(*args, **more):
        raise Died

    monkeypatch.setattr(git, "commit_workspace", die)
    with Holdfast(tmp_path / "w") as hf:
        with suppress(Died):
            once(hf, step("true", git=str(tmp_path)), **nowhere)
        assert once(hf, step("true"), **nowhere) == 0
        assert hf.task("s:a").status == "completed"


def test_large_output_is_kept_by_a_clean_up(tmp_path, monkeypatch):
    out = tmp_path / "out"
    large = step("seq 100000; exit $(cat code)")
    monkeypatch.chdir(tmp_path)
    with Holdfast(tmp_path / "w") as hf:
        for code in (3, 0, 0):
            Path("code").write_text(str(code))
            with out.open("wb") as file:
                assert once(hf, large, stdout=file.fileno(), stderr=file.fileno()) == code
            hf.gc(Retention(grace=timedelta()))
        assert out.read_bytes() == b"".join(b"%d\n" % n for n in range(1, 100_001))
        (note,) = hf.task("s:a").notes
        assert note.data["stdout"]["size_bytes"] == out.stat().st_size
