"""What a release holds: the wheel and the sdist, built as `make dist` builds them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("holdfast_dist", ROOT / ".ci" / "dist.py")
assert _spec is not None and _spec.loader is not None
dist = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dist)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    wheel, sdist = dist.build(sys.executable, tmp_path_factory.mktemp("dist"))
    return wheel, sdist


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no checkout")
    return {name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()}


def test_the_wheel_holds_the_package_the_page_and_the_demo_and_nothing_else(built):
    names = dist.names_in(built[0])
    about = {name for name in names if ".dist-info/" in name}
    expected = {name.removeprefix("src/") for name in tracked("src/holdfast")}
    expected |= {
        name.replace("examples/trip", "holdfast/cli/trip") for name in tracked("examples/trip")
    }
    assert set(names) - about == expected
    assert {"METADATA", "WHEEL", "entry_points.txt", "RECORD", "LICENSE"} == {
        name.rpartition("/")[2] for name in about
    }
    assert "holdfast/py.typed" in names
    assert "holdfast/web/static/index.html" in names


def test_the_sdist_holds_what_the_wheel_is_built_from_and_the_docs(built):
    names = set(dist.names_in(built[1]))
    assert tracked("src/holdfast", "examples/trip") <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops <= {
        "src", "docs", "examples", "PKG-INFO", ".gitignore", "pyproject.toml", "README.md",
        "LICENSE", "CHANGELOG.md", "SECURITY.md",
    }  # fmt: skip
    assert not [name for name in names if name.endswith((".pyc", ".db", ".log"))]


def test_both_are_small(built):
    assert all(path.stat().st_size < dist.MOST_BYTES for path in built)


def test_what_is_said_of_a_release_can_be_shown(built):
    pytest.importorskip("twine", reason="`make dist` has it")
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


def test_the_bill_of_materials_names_every_dependency_of_the_core():
    bill = json.loads(json.dumps(dist.bill("1.2.3")))
    named = {each["name"] for each in bill["components"]}
    assert {"click", "msgspec", "rich"} <= named
    assert all(each["hashes"] for each in bill["components"])
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/run.txt").read_text(), re.M)
    assert named == set(pinned)


def test_every_python_that_is_named_is_one_that_the_tests_run_on():
    text = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r"Python :: (3\.\d+)", text)
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    assert named == ["3.11", "3.12", "3.13"]
    assert all(f'"{version}"' in workflow for version in named)
