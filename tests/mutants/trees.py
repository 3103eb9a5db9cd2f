"""A copy of the tree in which a mutant can live: real files, and a Python that imports them.

Tests start processes, some of them with a cleared environment. So the copy has an environment of
its own, which finds the copied sources first and everything else where the tests of the tree do.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_NOT_COPIED = (".git", ".venv*", "build", "dist", ".*_cache", ".hypothesis", "__pycache__")
_GRACE_S = 60
"""How long tests may go on after they should have stopped; then they hang."""


class Tried(NamedTuple):
    ran: int
    failed: str | None
    """The test that failed; empty if pytest did before it came to one."""


class Tree:
    """One copy, in a folder of its own. Used by one thread at a time."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = place / "tree"
        self._place = place
        self._running: subprocess.Popen[bytes] | None = None
        self._serving: subprocess.Popen[bytes] | None = None
        shutil.copytree(root, self.root, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        # What is compiled is known by its content: a mutant and what it replaces have one time.
        checked = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.root, quiet=2, invalidation_mode=checked)
        venv.create(self.root / ".venv", symlinks=True)
        self._python = self.root / ".venv/bin/python"
        ours = next(self.root.glob(".venv/lib/python*/site-packages"))
        shutil.copy(HERE / "pytest_mutants.py", ours)
        (ours / "mutants.pth").write_text(
            f"{self.root / 'src'}\n{sysconfig.get_path('purelib')}\n"
            "import os; 'COVERAGE_PROCESS_START' in os.environ"
            " and __import__('coverage').process_startup()\n"
        )
        for program in Path(sys.executable).parent.glob("*-server"):
            (self._python.parent / program.name).symlink_to(program)

    def serve(self, files: list[str], skipped: list[str]) -> None:
        """Have all tests collected, for `swift`."""
        asked, told = os.pipe(), os.pipe()
        command = [*self._command("serving"), *files, *skipped]
        environment = os.environ | {"MUTANTS_SERVE": f"{asked[0]} {told[1]}"}
        with (self._place / "serving.output").open("wb") as out:
            self._serving = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(asked[0], told[1]),
                start_new_session=True,
            )
        os.close(asked[0])
        os.close(told[1])
        self._asking, self._hearing = os.fdopen(asked[1], "w"), os.fdopen(told[0])
        if self._hearing.readline() != "ready\n":
            raise RuntimeError((self._place / "serving.output").read_text()[-2000:])

    def swift(
        self, limits: dict[str, float], bound_s: float, path: str = "", was: str = ""
    ) -> Tried | None:
        """The same as `attempt`, with a file that was something else when its functions were made.

        None if that is not to be had in this way."""
        if self._serving is None:
            return None
        done = self._place / "swift.done"
        done.write_text("")
        given = {
            "limits": limits,
            "bound_s": bound_s,
            "timeout_s": bound_s + max(limits.values()) + _GRACE_S,
            "path": path and str(self.root / path),
            "was": was,
            "done": str(done),
        }
        self._asking.write(json.dumps(given) + "\n")
        self._asking.flush()
        outcome = self._hearing.readline().strip()
        if outcome in ("unfit", ""):
            return None
        ran = [json.loads(line) for line in done.read_text().splitlines()]
        failed = next((name for name, has_failed in ran if has_failed), None)
        if failed is None and outcome != "ran":  # the test that was under way ended all
            names = list(limits)
            failed = names[min(len(ran), len(names) - 1)]
        return Tried(len(ran), failed)

    def attempt(self, limits: dict[str, float], bound_s: float) -> Tried:
        """Run tests, each for so long at most, until one fails or they took too long together."""
        asked = self._place / "asked.json"
        asked.write_text(json.dumps({"limits": limits, "bound_s": bound_s}))
        done = asked.with_suffix(".done")
        done.write_text("")
        files = dict.fromkeys(name.split("::")[0] for name in limits)
        code = self.pytest(
            ["-x", *files],
            {"MUTANTS_TRY": str(asked)},
            bound_s + max(limits.values()) + _GRACE_S,
        )
        ran = [json.loads(line) for line in done.read_text().splitlines()]
        failed = [name for name, has_failed in ran if has_failed]
        if failed:
            return Tried(len(ran), failed[0])
        # It stops by itself when the time is up (2), and else passes (0).
        return Tried(len(ran), None if code == 0 or (code == 2 and ran) else "")

    def _command(self, temporary: str) -> list[str]:
        command = [str(self._python), "-m", "pytest", "-p", "pytest_mutants", "-q", "--tb=short"]
        if not (self.root / "src/holdfast").exists():  # then it can't load our own plugin
            command += ["-p", "no:holdfast"]
        basetemp = f"--basetemp={self._place / temporary}"
        return [*command, "-p", "no:cacheprovider", basetemp, "--doctest-modules"]

    def pytest(self, arguments: list[str], more: dict[str, str], timeout_s: float) -> int | None:
        """How pytest ended; None if it had to be killed."""
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | more
        with (self._place / "output").open("wb") as out:
            self._running = process = subprocess.Popen(
                [*self._command("tmp"), *arguments],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self.end()

    def end(self) -> None:
        """End pytest, and what its tests left running."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()

    def close(self) -> None:
        """End all that runs here."""
        self.end()
        if self._serving is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._serving.pid, signal.SIGKILL)
            self._serving.wait()

    def output(self) -> str:
        """What pytest printed last."""
        return (self._place / "output").read_text(errors="replace")
