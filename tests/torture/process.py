"""A process that writes, forked from this one: it says over a pipe what was acknowledged.

Forked, and not started: that takes milliseconds, and there are thousands of them. So this process
must have no threads of its own at that time, which is why `python -m tests.torture` is a process
apart from the tests that call it.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from random import Random

import msgspec

from holdfast.errors import StoreError
from holdfast.stores.port import Store
from tests.torture.hand import Hand
from tests.torture.promises import Mark

_decode = msgspec.json.Decoder(list[str | int]).decode


class Process:
    """A process of ours, and what it said."""

    def __init__(self, main: Callable[[Tell], None], *, at_once: bool = True) -> None:
        self.marks: list[Mark] = []
        self.last_words = ""
        self._rest = b""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.pid = os.fork()
        if not self.pid:
            ours.close()
            _live(main, theirs)
        theirs.close()
        self._socket = ours
        if at_once:
            self.go()

    def go(self) -> None:
        """Let it begin."""
        self._socket.sendall(b"!")

    def hear(self, timeout_s: float = 0.0) -> bool:
        """Take in what it says; False if it has said everything it ever will."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return True
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            mark = _decode(line)
            if mark[0] == "died":
                self.last_words = str(mark[1])
            else:
                self.marks.append(mark)
        return bool(data)

    def hear_so_far(self) -> int:
        """Take in what it has said; returns how many marks there are."""
        before = -1
        while before < len(self.marks):
            before = len(self.marks)
            self.hear()
        return before

    def hear_until(self, is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Take in what it says until something is so, or it has no more to say."""
        give_up_at = time.monotonic() + timeout_s
        while not is_so() and self.hear(0.05):
            if time.monotonic() > give_up_at:
                self.send(signal.SIGUSR1)  # it says where it is
                time.sleep(0.2)
                self.kill()
                raise TimeoutError(f"a process of ours hangs; its last words: {self.last_words!r}")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and take in what it said until then."""
        self.send(signal.SIGKILL)
        self.end()

    @property
    def is_open(self) -> bool:
        """Whether nobody has waited for its end yet."""
        return self._socket.fileno() >= 0

    def end(self, timeout_s: float = 60.0) -> int:
        """Wait for its end; returns how it ended."""
        self.hear_until(lambda: False, timeout_s)
        self._socket.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


Tell = Callable[[Mark], None]


def _live(main: Callable[[Tell], None], out: socket.socket) -> None:
    """The life of a forked process, which never returns to where it came from."""

    def tell(mark: Mark) -> None:
        # Not `write`: that is what is made to fail.
        out.sendall(msgspec.json.encode(mark) + b"\n")

    code = 1
    faulthandler.register(signal.SIGUSR1)
    try:
        out.recv(1)
        main(tell)
        code = 0
    except StoreError as error:
        tell(["died", f"{type(error).__name__}: {error}"])
    except BaseException as error:
        tell(["died", f"unclear: {type(error).__name__}: {error}"])
    finally:
        os._exit(code)


def at_work(
    open_store: Callable[[], Store], name: str, seed: str, streams: list[str], threads: int = 1
) -> Callable[[Tell], None]:
    """What a process does that works on streams until it is stopped: each thread on its own."""

    def main(tell: Tell) -> None:
        store = open_store()
        trouble: list[BaseException] = []

        def work(number: int) -> None:
            hand = Hand(store, f"{name}-{number}", Random(f"{seed} {number}"), tell, 5.0)
            try:
                while not trouble:
                    hand.act(streams[number::threads])
            except BaseException as error:
                trouble.append(error)

        others = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(1, threads)]
        for other in others:
            other.start()
        work(0)
        raise trouble[0]

    return main


def acts_in_turn(open_store: Callable[[], Store], seed: str, acts: int) -> Callable[[Tell], None]:
    """What a process does that is made to fail: always the same; after an error it goes on."""

    def main(tell: Tell) -> None:
        store = patiently_opened(open_store, tell)
        hand = Hand(store, "hand", Random(seed), tell, 0.2)
        for number in range(acts):
            what = Hand.ACTS[number % len(Hand.ACTS)][0]
            stream = f"tasks/{'ab'[number % 3 == 0]}"
            try:
                hand.take(stream)
                getattr(hand, what)(stream)
            except StoreError as error:
                tell(["failed", f"{type(error).__name__}: {error}"])
                for stream in list(hand.held):
                    store.release([hand.held.pop(stream).lease])
        store.close()

    return main


def patiently_opened(open_store: Callable[[], Store], tell: Tell) -> Store:
    """A store, opened again if it could not be at first."""
    for _ in range(5):
        try:
            return open_store()
        except StoreError as error:
            tell(["failed", f"{type(error).__name__}: {error}"])
    return open_store()


def is_clear(last_words: str) -> bool:
    """Whether a process that failed said so in an error of ours."""
    return not last_words.startswith("unclear")
