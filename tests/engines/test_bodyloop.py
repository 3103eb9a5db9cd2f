"""The loop that the function of a task runs on, on a remote engine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.engines.remote.carrier import Until
from holdfast.engines.remote.strands import BodyLoop, Strands


@pytest.mark.parametrize(
    "opens",
    [
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.start_server(print, "127.0.0.1", 0),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
)
def test_what_belongs_in_a_step_is_refused_in_words(opens: Any) -> None:
    nobody: Any = None  # it waits for nothing, so no carrier is asked

    async def main() -> None:
        await opens()

    with pytest.raises(NotImplementedError, match=r"asyncio's \w+\): do that in a step"):
        BodyLoop(nobody, Strands()).run(main())  # type: ignore[abstract]


def test_what_was_said_is_kept_before_a_timer_is_asked_for() -> None:
    happened: list[str] = []

    class Carrier:
        def now(self) -> datetime:
            return datetime(2030, 1, 1, tzinfo=UTC)

        def sleep(self, until: datetime) -> Any:
            happened.append(f"sleep until {until:%H:%M}")
            return Until(lambda: False)

    async def main() -> None:
        asyncio.get_running_loop().call_later(3600, print)

    carrier: Any = Carrier()
    loop = BodyLoop(carrier, Strands())  # type: ignore[abstract]
    loop.keep = lambda: happened.append("keep")
    loop.run(main())
    assert happened == ["keep", "sleep until 01:00"]
