"""Many follow one stream whose writer is killed, and come and go: each ends with the whole."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from holdfast import Holdfast, StreamPart
from tests.engines.stream_agents import PARTS, talking
from tests.flavors import BOUND_S
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH

__all__ = ["postgres_server", "postgres_url"]

FOLLOWERS = 50 if THOROUGH else 8


class Reader:
    """Follows the stream, is cut off now and then, and comes back with what it saw last."""

    def __init__(self, hf: Holdfast, seed: int) -> None:
        self._hf, self._random = hf, random.Random(seed)
        self.has: list[Any] = []
        self.restarts = 0
        self._last: str | int = 0

    def take(self, part: StreamPart) -> None:
        self._last = part.id
        if part.begins_anew:
            self.has.clear()
            self.restarts += 1
            return
        assert part.number == len(self.has) + 1
        self.has.append(part.value)

    def _goes_on(self) -> int:
        """For how many parts it stays this time; now and then the page is loaded anew."""
        if self._random.random() < 0.1:
            self._last = 0
            self.has.clear()
        return self._random.randint(1, 150)

    def follow(self) -> None:
        most = got = 1
        while got == most or not self._is_whole():
            most, got = self._goes_on(), 0
            stream = self._hf.stream("t", "tell", after=self._last, poll_s=0.02)
            for got, part in enumerate(islice(stream, most), 1):  # noqa: B007
                self.take(part)

    async def afollow(self) -> None:
        most = got = 1
        while got == most or not self._is_whole():
            most, got = self._goes_on(), 0
            async for part in self._hf.stream("t", "tell", after=self._last, poll_s=0.02):
                self.take(part)
                got += 1
                if got == most:
                    break

    def _is_whole(self) -> bool:
        return len(self.has) == PARTS


def _writer(url: str, *how: str) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.engines.stream_agents", url, *how]
    return subprocess.Popen(command, env=env)


@pytest.mark.parametrize("kind", ["files", "sqlite", "postgres"] if THOROUGH else ["files"])
def test_each_of_many_followers_ends_with_exactly_the_recorded_whole(request, tmp_path, kind):
    url = {"files": str(tmp_path / "w"), "sqlite": f"sqlite:///{tmp_path}/a.db"}.get(kind)
    url = url or request.getfixturevalue("postgres_url")
    with Holdfast(url) as hf, ThreadPoolExecutor(FOLLOWERS) as pool:
        hf.start(talking, PARTS, id="t")
        readers = [Reader(hf, seed) for seed in range(FOLLOWERS)]
        half = FOLLOWERS // 2
        ends = [pool.submit(reader.follow) for reader in readers[:half]]
        ends.append(pool.submit(asyncio.run, _all(readers[half:])))
        for attempt in (1, 2):
            writer = _writer(url, "stay")
            try:
                _await_parts(hf, attempt)
            finally:
                writer.kill()
                writer.wait(BOUND_S)
        writer = _writer(url)
        assert writer.wait(BOUND_S) == 0
        for end in ends:
            end.result(BOUND_S)
        (output,) = hf.task("t").outputs
        assert len(output.output) == PARTS
        for reader in readers:
            assert reader.has == output.output
        assert sum(reader.restarts for reader in readers) > 0


async def _all(readers: list[Reader]) -> None:
    await asyncio.gather(*(reader.afollow() for reader in readers))


def _await_parts(hf: Holdfast, attempt: int) -> None:
    """Wait until many parts of an attempt can be read."""
    for part in hf.stream("t", "tell", poll_s=0.02):
        if part.attempt == attempt and part.number > PARTS // 4:
            return
