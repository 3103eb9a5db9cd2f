"""The log of a task is the same, whichever engine drives it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.errors import TaskCancelled
from holdfast.handle import Handle
from holdfast.testing.engine_contract.comparing import differences
from holdfast.testing.engine_contract.everything import (
    logs_aeverything,
    logs_cancelled,
    logs_everything,
)
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    new_id,
    question,
    until,
    working,
)

BOTH = pytest.mark.parametrize("fn", [logs_everything, logs_aeverything])


class Logs:
    """The same events."""

    @BOTH
    def test_the_log_is_the_same_as_that_of_the_same_task_driven_here(
        self, hf: Holdfast, fn: Any
    ) -> None:
        id = new_id(fn)
        _drive(hf, fn, id, 3)
        with Holdfast("memory://") as here, working(here):
            _drive(here, fn, id, 3)
            ids = sorted(view.id for view in here.tasks())
            family = [view.id for view in hf.tasks() if view.id.partition(".")[0] == id]
            assert sorted(family) == ids
            for each in ids:
                found = differences(hf.task(each).events(), here.task(each).events())
                assert not found, "\n".join(found)

    def test_the_log_of_a_task_that_was_cancelled_is_the_same_too(self, hf: Holdfast) -> None:
        id = new_id(logs_cancelled)
        with Holdfast("memory://") as here, working(here):
            for one in (hf, here):
                handle = one.start(logs_cancelled, id=id)
                question(handle)
                one.cancel(id, because="it rains", by="ada")
                with pytest.raises(TaskCancelled):
                    handle.result(PATIENCE_S)
            found = differences(hf.task(id).events(), here.task(id).events())
        assert not found, "\n".join(found)

    def test_logs_that_say_something_else_are_told_apart(self, hf: Holdfast) -> None:
        id = new_id(logs_everything)
        _drive(hf, logs_everything, id, 3)
        with Holdfast("memory://") as here, working(here):
            _drive(here, logs_everything, id, 4)
            found = differences(hf.task(id).events(), here.task(id).events())
        assert found
        events = list(hf.task(id).events())
        assert differences(events, events) == []
        assert differences(events, events[:-1])
        assert differences(events, [*events[:-2], events[-1]])


def _drive(hf: Holdfast, fn: Any, id: str, guests: int) -> None:
    handle = hf.start(fn, guests, id=id)
    for key in ("sure", "approve", "done"):
        asked = until(partial(_asked, handle, key))
        hf.answer(id, True, question=asked, by="ada")
    handle.result(PATIENCE_S)


def _asked(handle: Handle[Any], key: str) -> str:
    """The id of an open question, known by its beginning."""
    return next((c.key for c in handle.view.questions if c.key.startswith(key)), "")
