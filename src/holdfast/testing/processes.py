"""Stores in processes of their own, which can be killed: for tests of what a crash leaves.

Whether a store notices that a holder died, and what is left of its work, is for the operating
system to decide, so a test that wants to know has to kill a real process:

    with StoreProcesses("holdfast.stores:open_store", "sqlite:///trips.db") as processes:
        store = processes.open()        # a store as any other; its work is done in a process
        lease = acquire_one(store, "tasks/t-1", "me", 60)
        processes.kill(store)           # SIGKILL; returns when the process is gone

Each process is forked from a clean one, which has imported the store and has no threads. That
takes a few milliseconds, where a new interpreter would take hundreds.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

from holdfast.errors import HoldfastError
from holdfast.stores.port import Lease, Store

_MESSAGE_BYTES = 64


class StoreProcesses:
    """Opens stores in processes of their own, all on the same place.

    `maker` names what opens a store, as `module:function`, and `given` are its arguments.

    >>> with StoreProcesses("holdfast.stores:open_store", "memory://") as processes:
    ...     processes.open().put_blob(b"")[:8]
    'e3b0c442'
    """

    def __init__(self, maker: str, *given: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A module that can be imported here can be imported there.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), maker, *given]
            self._parent = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        self._control = ours

    def open(self) -> Store:
        """A store whose work is done by a new process."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"open"], [theirs.fileno()])
            pid = int(self._answer())
        return cast(Store, _Remote(pid, Connection(ours.detach())))

    def kill(self, store: Store) -> None:
        """End the process of a store with SIGKILL. Returns when what it had is free."""
        remote = cast(_Remote, store)
        self._control.send(b"kill %d" % remote.pid)
        self._answer()
        remote.hang_up()

    def _answer(self) -> bytes:
        answer = self._control.recv(_MESSAGE_BYTES)
        if not answer:
            raise RuntimeError("the process that starts stores has ended: see what it printed")
        return answer

    def close(self) -> None:
        """End all processes."""
        self._control.close()
        self._parent.wait(30)

    def __enter__(self) -> StoreProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Remote:
    """A store that lives in another process: every call goes there, and its outcome comes back."""

    def __init__(self, pid: int, line: Connection) -> None:
        self.pid = pid
        self._line = line
        self._leases: dict[Lease, int] = {}
        self._take(self._line.recv())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "url":
            return self._call(name)
        return lambda *given, **named: self._call(name, *given, **named)

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        # A lease is equal only to itself, so it stays there and is known here by its number.
        sent = _map(given, lambda v: _Numbered(self._leases[v]) if isinstance(v, Lease) else v)
        self._line.send((name, sent, named))
        return self._take(self._line.recv())

    def _take(self, answer: tuple[str, Any]) -> Any:
        how, value = answer
        if how == "raised":
            raise _made_anew(*value)
        if how == "error":
            return _made_anew(*value)
        if how == "lease":
            lease, number = value
            self._leases[lease] = number
            return lease
        if how == "many":
            return [self._take(each) for each in value]
        return iter(value) if how == "iterator" else value

    def hang_up(self) -> None:
        """Say nothing more: the process is gone, or ends now."""
        self._line.close()


class _Numbered:
    """A lease, by the number its process gave it."""

    def __init__(self, number: int) -> None:
        self.number = number


def _map(given: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    """Arguments with each changed, also inside of lists."""
    return [_map(g, change) if isinstance(g, list | tuple) else change(g) for g in given]


def _made_anew(module: str, name: str, text: str) -> BaseException:
    """An error like the one that was raised, whatever its class wants to be made of."""
    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, HoldfastError)):
        return RuntimeError(f"the process of the store raised {name}: {text}")
    error = kind.__new__(kind, text)
    error.args = (text,)
    return error


# In the other processes


def _serve(line: Connection, make: Callable[[], Store]) -> None:
    """Be the process of one store, until nobody asks any more."""
    leases: list[Lease] = []
    with suppress(EOFError, ConnectionError):
        opened = _outcome(make, leases)
        store = opened[1]
        line.send(opened if opened[0] == "raised" else ("value", None))
        while True:
            name, given, named = line.recv()
            given = _map(given, lambda v: leases[v.number] if isinstance(v, _Numbered) else v)
            asked = getattr(store, name)
            call = (
                partial(asked, *given, **named)
                if callable(asked)
                else partial(getattr, store, name)
            )
            line.send(_outcome(call, leases))


def _outcome(call: Callable[[], Any], leases: list[Lease]) -> tuple[str, Any]:
    try:
        value = call()
        if isinstance(value, Iterator):
            return "iterator", list(value)
    except Exception as error:
        return "raised", _named(error)
    return _packed(value, leases)


def _packed(value: Any, leases: list[Lease]) -> tuple[str, Any]:
    if isinstance(value, Lease):
        leases.append(value)
        return "lease", (value, len(leases) - 1)
    if isinstance(value, HoldfastError):
        return "error", _named(value)
    if isinstance(value, list):
        return "many", [_packed(each, leases) for each in value]
    return "value", value


def _named(error: Exception) -> tuple[str, str, str]:
    return type(error).__module__, type(error).__qualname__, str(error)


def _start_stores(control: socket.socket, make: Callable[[], Store]) -> None:
    """Fork and kill, as told, until nobody tells us any more."""
    children: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
        if message == b"open":
            pid = os.fork()
            if not pid:
                control.close()
                _serve(Connection(fds[0]), make)
                os._exit(0)  # as a process does that is killed: nothing is tidied up
            os.close(fds[0])
            children.add(pid)
            control.send(b"%d" % pid)
        elif message:
            _kill(children, int(message.split()[1]))
            control.send(b"killed")
        else:
            for pid in list(children):
                _kill(children, pid)
            return


def _import_what_it_takes(make: Callable[[], Store]) -> None:
    """Import here what a store imports when it is first opened, so that its processes need not."""
    known = set(sys.modules)
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        with suppress(Exception):  # opening a store tells what is wrong
            make().close()
        os.write(write_fd, " ".join(set(sys.modules) - known).encode())
        os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd) as names:
        for name in names.read().split():
            with suppress(ImportError):
                importlib.import_module(name)
    os.waitpid(pid, 0)


def _kill(children: set[int], pid: int) -> None:
    if pid in children:
        children.remove(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # its locks are free only now


def _main(fd: str, maker: str, *given: str) -> None:
    module, _, name = maker.partition(":")
    make = getattr(importlib.import_module(module), name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which tells us
    _import_what_it_takes(lambda: make(*given))
    _start_stores(socket.socket(fileno=int(fd)), lambda: make(*given))


if __name__ == "__main__":
    # Under its own name: what is sent from one process to another is known by it.
    importlib.import_module("holdfast.testing.processes")._main(*sys.argv[1:])
