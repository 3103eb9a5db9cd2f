"""Other systems, simulated: the one module that knows the system, with the rules of another.

A process of its own loses what the other system lacks before Holdfast is imported, so nothing that
was not asked for can use it. This is no proof that it runs there, but that it asks for nothing
that is not there.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.stores import system

SOURCES = Path(system.__file__).parents[1]
REFUSED = {
    f"workspace/{name}.py" for name in ("guard", "process", "replacement", "script", "task_files")
}
"""Modules for the files store, or for commands in groups of processes."""

WINDOWS = """
import asyncio, getpass, multiprocessing, os, platform, sqlite3, subprocess, sys, tempfile
# Above: what Python itself needs from the real system. Below: what Windows lacks.
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in (
    "uname", "fdatasync", "getuid", "geteuid", "fork", "setsid", "killpg", "fchmod", "mkfifo",
    "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "register_at_fork", "sync",
):
    if hasattr(os, name):
        delattr(os, name)
os.supports_dir_fd = set()
platform.system = lambda: "Windows"
platform.node = lambda: "desk"

class Locks:
    LK_NBLCK, LK_LOCK, LK_UNLCK = 2, 1, 0
    held = set()
    @classmethod
    def locking(cls, fd, how, count):
        file = os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR)
        if how == cls.LK_UNLCK:
            cls.held.discard(file)
        elif file in cls.held:
            raise OSError(13, "locked")
        else:
            cls.held.add(file)
sys.modules["msvcrt"] = Locks

# What its files are like: one that is open is neither removed nor replaced, nothing is renamed to
# a name that is taken, and some names can't be had.
import io, re, shutil
shutil._use_fd_functions = False
taken = re.compile(r'(?i)(con|prn|aux|nul|com\\d|lpt\\d)(\\.|$)|.*[<>:"|?*]|.*[. ]$')

def must_be_closed(path):
    if os.path.exists(path):
        for fd in os.listdir("/proc/self/fd"):
            mine = f"/proc/self/fd/{fd}"
            if os.path.exists(mine) and os.path.samefile(path, mine):
                raise PermissionError(13, "the file is open", str(path))

def must_be_a_name(path):
    if not isinstance(path, int) and taken.match(os.path.basename(os.fspath(path))):
        raise OSError(22, "no such name on Windows", str(path))

def with_rules(module, name, *rules):
    real = getattr(module, name)
    def ruled(path, *args, **options):
        for rule in rules:
            rule(path, *args)
        return real(path, *args, **options)
    setattr(module, name, ruled)

def must_be_free(path, to):
    if os.path.exists(to):
        raise FileExistsError(17, "the name is taken", str(to))

for name in ("unlink", "remove"):
    with_rules(os, name, must_be_closed)
for name in ("open", "mkdir"):
    with_rules(os, name, lambda path, *_: must_be_a_name(path))
with_rules(io, "open", lambda path, *_: must_be_a_name(path))
__builtins__.open = io.open
ends = lambda path, to: (must_be_closed(path), must_be_closed(to), must_be_a_name(to))
with_rules(os, "replace", ends)
with_rules(os, "rename", ends, must_be_free)
"""

MAC = """
import fcntl, os, sys
for name in ("fdatasync", "O_TMPFILE", "memfd_create"):
    if hasattr(os, name):
        delattr(os, name)
_open = open
def no_proc(file, *args, **more):
    if str(file).startswith("/proc"):
        raise FileNotFoundError(2, "there is no /proc", str(file))
    return _open(file, *args, **more)
import builtins
builtins.open = no_proc
fcntl.F_FULLFSYNC = 51
full, real = [], fcntl.fcntl
def fake(fd, command, *args):
    if command == 51:
        full.append(fd)
        return 0
    return real(fd, command, *args)
fcntl.fcntl = fake
_fsync, plain = os.fsync, []
os.fsync = lambda fd: plain.append(fd)
import platform
platform.system = lambda: "Darwin"
"""

STORY = """
from holdfast import Holdfast, ask, step, task, tool
from holdfast.errors import TaskWaiting

@step
def look(city: str) -> str:
    return f"{city} Inn"

@tool
def book(room: str) -> str:
    return f"{room}: booked"

@task
def trip(city: str) -> str:
    room = look(city)
    return book(room) if ask("Book?", bool) else ""

def tell(url):
    with Holdfast(url) as hf:
        try:
            hf.run(trip, "Oslo", id="trip")
        except TaskWaiting:
            pass
        hf.answer("trip", True)
        return hf.resume("trip")
"""


def run(system_of: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", system_of + STORY + textwrap.dedent(code)],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES.parent)},
    )  # fmt: skip


def test_no_other_module_asks_for_what_a_system_lacks():
    calls = re.compile(
        r"^import (fcntl|resource|msvcrt|pwd|grp)\b|\bfcntl\."
        r"|os\.uname\(|os\.getuid\(|os\.geteuid\("
        r"|os\.O_(DIRECTORY|NOFOLLOW|CLOEXEC|NONBLOCK)|os\.fdatasync"
    )
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
        for path in SOURCES.rglob("*.py")
        if path != Path(system.__file__) and "testing" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if calls.search(line.partition("  #")[0])
    ]
    assert found == []


def test_only_what_is_refused_on_windows_changes_files_by_their_descriptors():
    calls = re.compile(r"os\.(fchmod|pread|pwrite|fork|setsid|killpg)\(")
    found = {
        path.relative_to(SOURCES).parts[:2]
        for path in SOURCES.rglob("*.py")
        if calls.search(path.read_text()) and "testing" not in path.parts
    }
    assert {"/".join(parts) for parts in found} <= {"stores/files", *REFUSED}


@pytest.mark.parametrize("url", ["memory://", "sqlite:///trips.db"])
def test_without_what_windows_lacks_tasks_run_in_memory_and_in_sqlite(url, tmp_path):
    done = run(WINDOWS, f"print(tell({url!r}))", tmp_path)
    assert (done.stdout, done.returncode) == ("Oslo Inn: booked\n", 0), done.stderr


def test_without_what_windows_lacks_the_command_line_works(tmp_path):
    code = """
        tell("sqlite:///trips.db")
        for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):  # as in a service
            os.environ.pop(name, None)
        from holdfast.cli.options import login_name
        print(repr(login_name()))
        sys.argv = ["holdfast", "--url", "sqlite:///trips.db", "ls"]
        from holdfast.cli import main
        main()
    """
    done = run(WINDOWS, code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("''\n")
    assert "trip  trip  completed" in re.sub(" +", "  ", done.stdout)


def test_by_the_rules_of_windows_tasks_are_forked_kept_copied_and_removed(tmp_path):
    code = """
        from datetime import timedelta
        from holdfast import Retention
        tell("sqlite:///trips.db")
        with Holdfast("sqlite:///trips.db") as hf:
            hf.archive_to("trips.zip")
            hf.copy_to("sqlite:///copy.db")
            hf.gc(Retention(older_than=timedelta(0)), archive="old.zip")
            print([view.id for view in hf.tasks()])
            hf.restore_from("old.zip")
            hf.fork("trip", at=1, effects="live", new_id="TRIP")
            print(sorted(view.id for view in hf.tasks()), hf.verify().damage)
        with Holdfast("sqlite:///other.db") as hf:
            hf.restore_from("trips.zip")
            print(sorted(view.id for view in hf.tasks()), hf.verify().damage)
    """
    done = run(WINDOWS, code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n['TRIP', 'trip'] []\n['trip'] []\n"


def test_a_breach_of_the_rules_of_windows_is_found(tmp_path):
    code = """
        import pathlib
        for name in ("kept", "closed", "other"):
            pathlib.Path(name).write_text("")
        kept = open("kept")
        pathlib.Path("closed").replace("now closed")
        pathlib.Path("closed").write_text("")
        for breach in (
            lambda: os.replace("other", "kept"),
            lambda: os.rename("other", "closed"),
            lambda: os.unlink("kept"),
            lambda: open("aux.txt", "w"),
            lambda: os.mkdir("a: b"),
        ):
            try:
                breach()
            except OSError as error:
                print(error.strerror)
    """
    open_, taken, no_name = "the file is open\n", "the name is taken\n", "no such name on Windows\n"
    done = run(WINDOWS, code, tmp_path)
    assert done.stdout == open_ + taken + open_ + no_name * 2, done.stderr


def test_a_files_store_is_refused_with_words_where_folders_cant_be_opened(tmp_path):
    done = run(WINDOWS, "tell('workspace')", tmp_path)
    assert done.returncode == 1
    assert "can't be kept on Windows" in done.stderr
    assert "sqlite:///agents.db" in done.stderr


def test_a_lock_by_msvcrt_is_exclusive_and_can_be_freed(tmp_path):
    code = """
        from holdfast.stores import system
        one, two = (os.open("lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
        first = system.try_lock(one)
        second = system.try_lock(two)
        system.unlock(one)
        print(first, second, system.try_lock(two), os.lseek(two, 0, os.SEEK_CUR))
    """
    done = run(WINDOWS, code, tmp_path)
    assert done.stdout == "True False True 0\n", done.stderr


def test_on_a_mac_every_sync_of_a_log_reaches_the_disk_itself(tmp_path):
    done = run(MAC, "print(tell('workspace'), len(full) > 5, plain)", tmp_path)
    assert done.stdout == "Oslo Inn: booked True []\n", done.stderr


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_knows_no_full_sync_is_synced_as_it_can(code, monkeypatch, tmp_path):
    class Fcntl:
        @staticmethod
        def fcntl(fd: int, command: int) -> None:
            raise OSError(code, "no")

    synced: list[int] = []
    monkeypatch.setattr(system, "_FULL", 51)
    monkeypatch.setattr(system, "_fcntl", Fcntl)
    monkeypatch.setattr(os, "fsync", synced.append)
    if code == errno.EIO:  # the disk failed: no other sync may hide that
        with pytest.raises(OSError, match="no"):
            system.sync_all(7)
        assert synced == []
    else:
        system.sync_all(7)
        assert synced == [7]
