"""Every log we ever shipped stays readable, and folds to the state it always did."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.events import FORMAT, AnyEvent
from tests.golden import record

FORMATS = sorted(Path(__file__).parent.glob("format-*"))


@pytest.fixture(params=FORMATS, ids=lambda folder: folder.name)
def golden(request, tmp_path):
    where = tmp_path / "w/tasks/golden"
    where.mkdir(parents=True)
    shutil.copy(request.param / "events.jsonl", where)
    with Holdfast(tmp_path / "w") as hf:
        yield hf, request.param


def test_it_folds_to_the_same_state(golden):
    hf, folder = golden
    expected = msgspec.json.decode((folder / "state.json").read_bytes())
    found = msgspec.json.decode(msgspec.json.encode(hf.task("golden").state))
    # A newer version may know more of an old log, but nothing else than it did.
    assert {key: found.get(key) for key in expected} == expected


def test_the_task_can_still_be_asked_for_its_result(golden):
    hf, _ = golden
    call = hf.run(record.golden, "Oslo", id="golden")
    assert call == "Oslo Inn: sent"


def test_todays_format_is_among_them_with_every_type_of_event():
    log = (Path(__file__).parent / f"format-{FORMAT}/events.jsonl").read_text()
    kinds = {kind.__struct_config__.tag for kind in AnyEvent.__args__}
    assert kinds == {msgspec.json.decode(line)["type"] for line in log.splitlines()}
