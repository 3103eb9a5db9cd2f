"""A frozen writer, taken over and thawed: nothing that it does then is acknowledged.

A process writes to a stream, is stopped at any moment (SIGSTOP) and stays so for longer than its
lease. Another takes over and writes. Then the first is let go on (SIGCONT), in the middle of
whatever it was doing, while the other still writes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

from holdfast.log import chain
from holdfast.stores.port import Store
from tests.freezing import freeze
from tests.torture.hand import Hand
from tests.torture.process import Process, Tell
from tests.torture.promises import go_on, lines_of, patiently

LEASE_S = 0.15
_AFTER_THAW = 15
"""How much the taker writes once the other is awake."""


class Takeover(Struct):
    """What came of one."""

    acknowledged: int
    """To both."""
    zombies: int
    """To the one that was taken over, of what the taker did not find."""
    broken: list[str]


def takeovers(
    open_store: Callable[[], Store], seed: str, is_free: Callable[[], bool] = lambda: True
) -> Iterator[Takeover]:
    """Take a stream over from a frozen writer, again and again."""
    chance = Random(seed)
    number = 0
    while True:
        stream = f"tasks/{seed.replace(' ', '-')}-{number}"
        yield _one(open_store, stream, chance, is_free)
        number += 1


def _one(
    open_store: Callable[[], Store], stream: str, chance: Random, is_free: Callable[[], bool]
) -> Takeover:
    seed = chance.random()
    zombie = Process(lambda tell: _write_for_ever(open_store(), stream, Random(seed), tell))
    enough = chance.randint(2, 20)  # the first mark is not of an append: it holds the stream
    zombie.hear_until(lambda: len(zombie.marks) >= enough)

    def work_on() -> None:
        zombie.hear(0.0)
        time.sleep(chance.random() * 0.004)

    freeze(zombie.pid, is_free, work_on)
    time.sleep(LEASE_S + 0.02)
    taker = Process(lambda tell: _take_over(open_store(), stream, Random(seed + 1), tell))
    taker.hear_until(lambda: len(taker.marks) > 2)
    if len(taker.marks) <= 2:
        zombie.kill()
        taker.end()
        return Takeover(0, 0, [f"{stream}: could not be taken over: {taker.last_words}"])
    zombie.send(signal.SIGCONT)
    zombie.end()
    taker.end()
    return _judged(open_store, stream, zombie, taker)


def _write_for_ever(store: Store, stream: str, chance: Random, tell: Tell) -> None:
    hand = Hand(store, "zombie", chance, tell, LEASE_S)
    hand.take(stream)
    while True:
        hand.append(stream, chance.choice((1, 2)), chance.choice((0, 300)))
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.002)
        hand.sync(stream)
        if chance.random() < 0.5:
            store.renew(hand.held[stream].lease)
        time.sleep(chance.random() * 0.002)


def _take_over(store: Store, stream: str, chance: Random, tell: Tell) -> None:
    hand = Hand(store, "taker", chance, tell, 5.0)
    at = patiently(lambda: hand.take(stream))
    tell(["took", at.seq])
    for _ in range(2 + _AFTER_THAW):
        hand.append(stream, 1)
        hand.sync(stream)
        time.sleep(0.001)
    store.close()


def _judged(
    open_store: Callable[[], Store], stream: str, zombie: Process, taker: Process
) -> Takeover:
    found: list[str] = []
    store = open_store()
    try:
        sums = [chain.sum_of(line).decode() for line in lines_of(store, stream)]
        go_on(store, stream)
    finally:
        store.close()
    taken_at = next((int(mark[1]) for mark in taker.marks if mark[0] == "took"), 0)
    acks = [mark for mark in zombie.marks if mark[0] == "append"]
    theirs = [mark for mark in taker.marks if mark[0] == "append"]
    zombies = sum(int(seq) > taken_at or sums[int(seq) - 1] != total for _, _, seq, total in acks)
    if zombies:
        found.append(f"{stream}: a writer that was taken over was acknowledged {zombies} times")
    for _, _, seq, total in theirs:
        if len(sums) < int(seq) or sums[int(seq) - 1] != total:
            found.append(f"{stream}: line {seq} of who took over is not there")
    if len(theirs) != 2 + _AFTER_THAW:
        found.append(f"{stream}: who took over could not go on: {taker.last_words}")
    if not zombie.last_words.startswith("LeaseLost"):
        found.append(f"{stream}: who was taken over heard {zombie.last_words!r}")
    return Takeover(len(acks) + len(theirs), zombies, found)
