"""How the tests of the command line run it: in this process, in a new one, or on a terminal."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from holdfast.cli.root import root

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "holdfast.cli"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONPATH"):
        plain.pop(name, None)
    return plain | {"TERM": "xterm-256color"} | more


def run(*args: str, cwd: Path, **env: str) -> Ended:
    """The command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *args], cwd=cwd, env=environment(**env), capture_output=True, check=False
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def begin(*args: str, cwd: Path) -> subprocess.Popen[str]:
    """The command in a process of its own, while it runs."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(),
        stdout=pipe,
        stderr=pipe,
        text=True,
        preexec_fn=take_interrupts,  # noqa: PLW1509 (no thread of ours runs yet)
    )


def take_interrupts() -> None:
    """A shell that runs the tests in the background has them ignore Ctrl-C; a child would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_terminal(*args: str, cwd: Path, columns: int = 100, **env: str) -> str:
    """What a person at a terminal sees, escape sequences and all."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(COLUMNS=str(columns), **env),
        stdin=inner,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    seen = bytearray()
    while True:
        try:
            part = os.read(outer, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(outer)
    process.wait()
    return seen.decode().replace("\r\n", "\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the agents in it and no store yet."""
    shutil.copy(HERE / "agents.py", tmp_path)
    _settle_in(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def crew(folder: Path) -> Path:
    """The current folder, with the agents in it that a worker drives."""
    shutil.copy(HERE / "crew.py", folder)
    return folder


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copy(HERE / "agents.py", folder)
    (folder / "die").touch()
    options = ("--id", "trip-42", "--user", "ada", "--session", "s-1", "--label", "team=travel")
    assert run("run", "agents:plan_trip", "Oslo", *options, cwd=folder).code == -9
    (folder / "die").unlink()
    assert run("resume", "trip-42", "--app", "agents", cwd=folder).code == 3
    assert run("run", "agents:mendable", "--id", "mend-1", cwd=folder).code == 1
    cities = '["Oslo", "Bergen"]'
    assert run("run", "agents:branches", cities, "--id", "both", cwd=folder).code == 0
    return folder


@pytest.fixture
def recorded(_recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a store: a task in doubt, a failed one, and a finished one."""
    place = tmp_path / "recorded"
    shutil.copytree(_recorded, place)
    _settle_in(place, monkeypatch)
    return place


def _settle_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for name in ("HOLDFAST_URL", "HOLDFAST_APP", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command in this process: for what only reads, and imports little code."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "agents"]:
        monkeypatch.delitem(sys.modules, name)  # an SDK of that name, or another test's agents

    def invoke(*args: str) -> Ended:
        result = CliRunner().invoke(root, args, prog_name="holdfast")
        return Ended(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def patience() -> Iterator[Callable[[subprocess.Popen[str]], None]]:
    """Ends what a test began, whatever came of the test."""
    begun: list[subprocess.Popen[str]] = []
    yield begun.append
    for process in begun:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def until(holds: Callable[[], object], within_s: float = 60) -> None:
    """Wait until something holds."""
    give_up_at = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(0.02)


def effects() -> list[str]:
    """What the agents of the crew did, one line each."""
    return Path("effects").read_text().splitlines() if Path("effects").exists() else []


def line_of(process: subprocess.Popen[str], wanted: str, within_s: float = 60) -> str:
    """The next line of the output that holds `wanted`."""
    found: list[str] = []

    def look() -> None:
        for line in process.stdout or ():
            if wanted in line:
                found.append(line)
                return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(within_s)
    assert found, f"{wanted!r} did not come"
    return found[0]
