"""What somebody gets by `pip install holdfast`: a wheel, its dependencies, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from holdfast import __version__

REPOSITORY = Path(__file__).parents[2]
AGENT = """
from holdfast import step, task

@step
def greet(name: str) -> str:
    return f"Hello {name}"

@task
def hello(name: str) -> str:
    return greet(name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hatchling = pytest.importorskip("hatchling.build", reason="the wheel is built by hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    script = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert hatchling
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment: the wheel, and what it says it depends on."""
    root = tmp_path_factory.mktemp("fresh")
    venv.create(root, with_pip=False)
    (packages,) = root.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        named = re.search(r"holdfast = ([\w.]+):(\w+)", archive.read(points).decode())
    assert named is not None
    (metadata,) = packages.glob("holdfast-*.dist-info")
    for needed in _closure(Distribution.at(metadata)):
        for top in {file.parts[0] for file in needed.files or () if file.parts[0] != ".."}:
            if not (packages / top).exists() and top != "__pycache__":
                (packages / top).symlink_to(Path(str(needed.locate_file(top))).resolve())
    script = root / "bin" / "holdfast"
    start = f"#!{root}/bin/python\nfrom {named[1]} import {named[2]}\n{named[2]}()\n"
    script.write_text(start)
    script.chmod(0o755)
    return script.parent


def _closure(of: Distribution) -> list[Distribution]:
    """What a distribution needs, without its extras, and what that needs in turn."""
    found: dict[str, Distribution] = {}
    todo = [of]
    while todo:
        for line in todo.pop().requires or ():
            name = re.match(r"[\w.-]+", line)
            if name is None or "extra ==" in line or "win32" in line.lower() or name[0] in found:
                continue
            if "python_version <" in line:
                continue
            found[name[0]] = distribution(name[0])
            todo.append(found[name[0]])
    return list(found.values())


def test_the_command_works_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)

    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = [str(installed / "holdfast"), *words]
        return subprocess.run(
            command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )

    empty = holdfast("ls")
    assert (empty.returncode, empty.stdout) == (5, "")
    assert "there is no store at workspace" in empty.stderr
    ran = holdfast("run", "agents:hello", "Ada", "--id", "hello-1")
    assert (ran.returncode, ran.stdout) == (0, '"Hello Ada"\n'), ran.stderr
    listed = holdfast("ls")
    assert listed.returncode == 0
    assert "hello-1" in listed.stdout
    shown = holdfast("show", "hello-1")
    assert shown.returncode == 0
    assert "Hello Ada" in shown.stdout
    assert holdfast("--version").stdout == f"holdfast {__version__}\n"


def test_import_holdfast_loads_none_of_what_the_command_line_needs(installed: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, holdfast
        print({"click", "rich", "pydantic", "holdfast.cli"} & set(sys.modules))
        """
    )
    done = subprocess.run(
        [str(installed / "python"), "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
