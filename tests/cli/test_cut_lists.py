"""Lines cut out of a log whose sums were made anew: whoever reads what is left is told, and so is
who asks whether the log is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, step, task
from holdfast.cli.folder import Logs
from holdfast.errors import StoreError
from holdfast.log.verify import verify
from tests.torture.damage import Folder, _numbered, bodies, seal

STREAM = "tasks/t"


@step
def long_reply(said: list[dict[str, str]]) -> str:
    return f"{len(said)} {'x' * 400}"


@task
def talk_on(turns: int) -> int:
    said: list[dict[str, str]] = []
    for _ in range(turns):
        said.append({"role": "assistant", "text": long_reply(said)})
    return len(said)


def read_all(hf: Holdfast) -> list[Any]:
    return [each.input for each in hf.task("t").outputs]


def test_no_reader_finds_a_cut_that_verify_and_doctor_do_not(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w", projections=False) as hf:
        hf.run(talk_on, 12, id="t")
        whole = read_all(hf)
        assert verify(hf.store).sound and not list(Logs(hf.store).check(STREAM))
    found: set[str] = set()
    store = Folder(tmp_path / "w")
    lines = bodies(store, STREAM)
    for place in range(1, len(lines)):
        left = lines[:place] + lines[place + 1 :]
        seal(store, STREAM, [_numbered(line, seq) for seq, line in enumerate(left, 1)])
        with Holdfast(tmp_path / "w", projections=False) as hf:
            damage = verify(hf.store).damage
            told = [each for each in Logs(hf.store).check(STREAM) if each.level == "damage"]
            assert bool(damage) == bool(told), lines[place]
            try:
                is_wrong = any(each not in whole for each in read_all(hf))
            except StoreError:
                is_wrong = True
            if is_wrong:
                assert damage and damage[0].name.endswith("t"), lines[place]
            found |= {each.what.partition(" (")[0].partition(" of the call")[0] for each in damage}
    assert "it has items" in found and len(found) > 1


@pytest.mark.parametrize("base", ["f" * 32])
def test_a_list_that_goes_on_from_one_that_is_not_there_is_damage(
    tmp_path: Path, base: str
) -> None:
    with Holdfast(tmp_path / "w", projections=False) as hf:
        hf.run(talk_on, 12, id="t")
    store = Folder(tmp_path / "w")
    lines = bodies(store, STREAM)
    place = max(n for n, line in enumerate(lines) if b'"type":"list_grew"' in line)
    lines[place] = lines[place][:-1] + b',"base":"%b"}' % base.encode()
    seal(store, STREAM, lines)
    with Holdfast(tmp_path / "w", projections=False) as hf:
        (damage,) = verify(hf.store).damage
        assert (damage.seq, damage.what) == (
            place + 1,
            f"it goes on from a list that is not in its log ({base})",
        )
        assert any("goes on from a list" in each.what for each in Logs(hf.store).check(STREAM))
