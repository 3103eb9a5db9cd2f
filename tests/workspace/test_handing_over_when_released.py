"""A task that is released, to wait, leaves word of where it stands."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, Unanswered, ask, decide, task
from holdfast.workspace.projecting import task_folder


@task
def asks_and_is_released() -> str:
    decide("room", "attic", because="it has a window")
    return str(ask("Book the attic?", bool, id="book"))


def test_a_task_that_waits_for_a_person_leaves_a_summary(tmp_path):
    with Holdfast(tmp_path) as hf, pytest.raises(Unanswered):
        hf.run(asks_and_is_released, id="t")
    summary = (task_folder(tmp_path, "t") / "SUMMARY.md").read_text()
    assert "Book the attic?" in summary and "it has a window" in summary
    assert (task_folder(tmp_path, "t") / "CHANGELOG.md").exists()
    with Holdfast(tmp_path) as hf:
        hf.answer("t", True)
        assert hf.resume("t") == "True"
        assert hf.verify().sound


def test_when_it_has_ended_the_summary_says_so(tmp_path):
    with Holdfast(tmp_path) as hf, pytest.raises(Unanswered):
        hf.run(asks_and_is_released, id="t")
    with Holdfast(tmp_path) as hf:
        hf.answer("t", True)
        hf.resume("t")
    assert ": completed" in (task_folder(tmp_path, "t") / "SUMMARY.md").read_text()
