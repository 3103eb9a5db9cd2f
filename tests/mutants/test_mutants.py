"""The hunt for holes in the tests: it finds one that is there, and cries no wolf."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutants.__main__ import Plan
from tests.mutants.mutating import mutants_of

ROOT = Path(__file__).parents[2]

SOURCE = '''\
"""A package with a hole in its tests."""

MOST = 100


def is_grown_up(age: int) -> bool:
    return age >= 18


def no_less_than_nothing(number: int) -> int:
    if number < 0:
        number = 0
    return number


def wait_until(holds) -> None:
    while not holds():
        pass


def shouted(word: str) -> str:
    return word.upper()
'''

TESTS = """\
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from sample import is_grown_up, no_less_than_nothing, wait_until


def test_nobody_asks_on_the_birthday():
    assert is_grown_up(30) and not is_grown_up(5)


def test_fails_by_chance_whoever_is_at_fault():
    runs = Path({runs!r})
    runs.write_text(runs.read_text() + "x")
    assert is_grown_up(30) and len(runs.read_text()) == 1


def test_fails_among_others_whoever_is_at_fault(request):
    is_noted = "MUTANTS_TRY" not in os.environ
    assert is_grown_up(30) and (is_noted or len(request.session.items) == 1)


def test_nothing_is_the_least():
    assert [no_less_than_nothing(n) for n in (-1, 0, 1)] == [0, 0, 1]


def test_waiting_ends():
    wait_until(lambda: True)


def test_another_process_shouts():
    command = "import sample; print(sample.shouted('a'), end='')"
    done = subprocess.run([sys.executable, "-c", command], env={{}}, capture_output=True)
    assert done.stdout == b"A"
"""

CONFIG = """\
tests = ["tests/test_*.py"]

[[room]]
name = "sample"
paths = ["src/*.py"]
tests = ["tests/test_*.py"]

[[equivalent]]
where = "no_less_than_nothing"
old = "if number < 0:"
new = "if number <= 0:"
reason = "nothing is set to nothing"

[[equivalent]]
where = "no_less_than_nothing"
old = "if number < 0:"
new = "if number < 1:"
reason = "no number is between them"
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    root = tmp_path / "sample"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src/sample.py").write_text(SOURCE)
    runs = tmp_path / "runs"
    runs.write_text("")
    (root / "tests/test_sample.py").write_text(TESTS.format(runs=str(runs)))
    (root / "mutants.toml").write_text(CONFIG)
    return root


def hunt(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutants", "--root", str(root), "--hang-s", "2"]
    return subprocess.run(
        [*command, "--config", str(root / "mutants.toml"), "--seed", "1", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_hole_is_found_and_nothing_else_and_the_equivalent_is_named(sample, tmp_path):
    report = tmp_path / "report.json"
    done = hunt(sample, "--json", str(report))
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["survived"] == [
        "src/sample.py:7: return age >= 18 -> return age > 18",
        "src/sample.py:7: return age >= 18 -> return age >= 19",
    ], done.stdout
    # Among the killed are one that never ends, and one that only another process imports.
    assert found["tried"] == found["killed"] + 2
    assert "while holds():" in done.stdout and "test_another_process_shouts" in done.stdout
    assert "if number < 0: -> if number <= 0:\n      nothing is set to nothing" in done.stdout
    assert done.returncode == 1, "the score is below what is asked"
    assert (sample / "src/sample.py").read_text() == SOURCE
    # Once more: what tests run is known by now, and one seed draws the same mutants.
    first, again = (hunt(sample, "--count", "1", "--least", "0") for _ in range(2))
    assert "looking at" in done.stdout and "looking at" not in first.stdout
    assert first.returncode == again.returncode == 0, first.stdout + first.stderr
    assert first.stdout == again.stdout
    # The source has moved: its lines are matched with those that the tests ran.
    (sample / "src/sample.py").write_text(SOURCE.replace("MOST = 100", "MOST = 100\nLEAST = 1"))
    moved = hunt(sample, "--json", str(report))
    assert "1 files ran older sources" in moved.stdout, moved.stdout + moved.stderr
    assert "looking at" not in moved.stdout
    assert json.loads(report.read_text())["survived"] == [
        "src/sample.py:8: return age >= 18 -> return age > 18",
        "src/sample.py:8: return age >= 18 -> return age >= 19",
    ], moved.stdout


def test_a_mutant_whose_tests_had_no_time_is_told_apart(sample, tmp_path):
    (sample / "src/sample.py").write_text(SOURCE.split("\n\n\ndef no_less")[0])
    (sample / "tests/test_sample.py").write_text(
        "from sample import is_grown_up\n\n\n"
        "def test_first():\n    assert is_grown_up(30)\n\n\n"
        "def test_second():\n    assert sum(range(10**6)) and is_grown_up(18)\n"
    )
    report = tmp_path / "report.json"
    done = hunt(sample, "--bound-s", "0", "--json", str(report))
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert "src/sample.py:7: return age >= 18 -> return age > 18" in found["out_of_time"]
    assert found["survived"] == [] and found["killed"] >= 1
    assert "return age > 18 RAN OUT OF TIME (1 of 2 tests)" in done.stdout


def test_a_pattern_that_matches_no_file_is_an_error(sample):
    config = sample / "mutants.toml"
    config.write_text(config.read_text().replace("src/*.py", "lost/*.py"))
    done = hunt(sample)
    assert done.returncode == 1
    assert "mutants.toml names 'lost/*.py', and no file matches it" in done.stderr


def test_what_our_list_names_is_there():
    plan = Plan(ROOT, tomllib.loads((ROOT / "tests/mutants/mutants.toml").read_text()))
    _, equivalent = plan.mutants("")
    found = {(mutant.where, mutant.old.strip(), mutant.new.strip()) for mutant, _ in equivalent}
    assert plan.equivalent.keys() == found


@pytest.mark.parametrize("name", ["log/log.py", "core/fold/task.py", "stores/files/disk.py"])
def test_a_mutant_differs_in_its_line_alone(name):
    path = ROOT / "src/holdfast" / name
    source = path.read_text()
    for mutant in mutants_of(str(path), source):
        both = zip(source.splitlines(), mutant.applied(source).splitlines(), strict=True)
        assert [pair for pair in both if pair[0] != pair[1]] == [(mutant.old, mutant.new)]


def test_the_arguments_of_a_call_that_does_not_care_are_not_swapped():
    found = [
        mutant.new for mutant in mutants_of("a.py", "def f(a, b):\n    g(a, b)\n    min(a, b)")
    ]
    assert "    g(b, a)" in found and "    max(a, b)" in found
    assert "    min(b, a)" not in found


def test_annotations_protocols_messages_and_sizes_are_left_alone():
    source = '''\
MOST = 4 * 1024
WAIT_S: float = 3 + 4


class Given(Protocol):
    def show(self, most: int = 10) -> bool: ...


def shown(kind: "Literal[1, 2]" = None) -> "Literal[3]":
    """Between 5 and 6."""
    text: "Literal[7]" = f"{kind and 8}"
    for text in zip(kind, strict=True):
        pass
    raise ValueError(9, 10) from text
'''
    assert [str(mutant) for mutant in mutants_of("a.py", source)] == [
        "a.py:14: raise ValueError(9, 10) from text -> if False: raise ValueError(9, 10) from text"
    ]
