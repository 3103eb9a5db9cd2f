"""What a snapshot shows: of each call what there is to know of it, and the texts of files."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from holdfast import (
    Holdfast,
    InDoubt,
    ReplyLost,
    Retry,
    StepFailed,
    Unanswered,
    ask,
    start,
    step,
    task,
    tool,
)
from holdfast.core.events import FileKept
from holdfast.log.artifacts import kept
from holdfast.log.log import open_log

pytestmark = pytest.mark.holdfast("memory://")


@step
def shown_step(n: int) -> int:
    return n + 1


@step(retry=Retry(attempts=1))
def shown_failing() -> None:
    raise ValueError("no")


@tool(approve=True)
def shown_paying(amount: int) -> str:
    return "paid"


@tool(in_doubt="ask")
def shown_losing() -> None:
    raise ReplyLost("no answer")


@task
def shown_child() -> int:
    return 7


@task
def shown_agent() -> bool:
    shown_step(1)
    with pytest.raises(StepFailed):
        shown_failing()
    start(shown_child).result()
    shown_paying(5)
    sure = ask("Go on?", bool)
    shown_losing()
    return sure


def test_a_call_is_shown_with_what_there_is_to_know_of_it(hf: Holdfast):
    for answer in (True, True):
        with pytest.raises(Unanswered):
            hf.run(shown_agent, id="t")
        hf.answer("t", answer)
    with pytest.raises(InDoubt):
        hf.run(shown_agent, id="t")
    view = hf.task("t")
    assert [call.why for call in view.calls if call.path == "6"] != [""]
    calls = view.at(seq=view.seq).content["calls"]
    asked = calls.pop(next(path for path in calls if path.startswith("4!")))
    assert asked == {
        "name": "approve",
        "kind": "approval",
        "status": "completed",
        "input": {"amount": 5},
        "question": 'May it call shown_paying({"amount":5})?',
        "output": True,
    }
    done = {"status": "completed"}
    assert calls == {
        "1": {"name": "shown_step", "kind": "step", **done, "input": {"n": 1}, "output": 2},
        "2": {
            "name": "shown_failing",
            "kind": "step",
            "status": "failed",
            "input": {},
            "failure": "ValueError: no",
        },
        "3": {
            "name": "shown_child",
            "kind": "child",
            **done,
            "input": {},
            "output": 7,
            "child": "t.3",
        },
        "4": {
            "name": "shown_paying",
            "kind": "tool",
            **done,
            "input": {"amount": 5},
            "output": "paid",
        },
        "5": {"name": "ask", "kind": "question", **done, "question": "Go on?", "output": True},
        "6": {"name": "shown_losing", "kind": "tool", "status": "in_doubt", "input": {}},
    }


def test_only_what_is_a_text_is_compared_by_its_text(hf: Holdfast):
    hf.run(shown_child, id="t")
    contents = {"a text": b"one", "bytes": b"\xff", "a long text": b"x" * 300_000}
    log = open_log(hf.store, "t", "a test", 30, lambda: datetime.now(UTC))
    for name, content in contents.items():
        artifact = kept(hf.store, [content], name)
        log.append(FileKept(name=name, file=Raw(msgspec.json.encode(artifact))))
    log.append(FileKept(name="of another kind", file=Raw(b'{"size":1}')))
    log.close()
    view = hf.task("t")
    files = view.at(seq=view.seq).comparable()["files"]
    assert [name for name, file in files.items() if "text" in file] == ["a text"]
    assert files["a text"]["text"] == "one"
    assert files["of another kind"] == {"size": 1}
