"""The surface is small, and what is on it is explained with an example that runs."""

from __future__ import annotations

import doctest
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import holdfast

PINNED = {
    "Alert", "ready",
    "AlreadyAnswered", "ArchiveDamaged", "Artifact", "BadId", "BadInput", "Child", "CodeChanged",
    "CodeMissing", "Conflict", "DrivenElsewhere", "EachFailed", "EngineConflict", "EngineError",
    "Handle", "Happened", "Holdfast", "HoldfastError", "HoldsSecret", "IdempotencyKey",
    "IllegalTransition", "InDoubt", "ItemFailed", "Keys", "LeaseLost", "Limit", "LogDamaged",
    "MigrationNeeded",
    "NewerFormat", "NotATask", "NotAnswered", "NotDurable", "NotFinished", "PlanItem", "Queue",
    "Rate", "Redact", "ReplyLost",
    "Results", "Retention", "Retry", "Secret", "SessionNotFound", "StepFailed", "StorageFailed",
    "StoreError", "StreamBroken", "StreamPart", "TaskBusy", "TaskCancelled", "TaskFailed",
    "TaskNotFound", "TaskPaused",
    "TaskReleased", "TaskState", "TaskStuck", "TaskWaiting", "TooLarge", "Unanswered",
    "Undecodable", "Unserializable", "Worker", "WrongArguments", "WrongKey", "aask", "areceive",
    "ask",
    "checkpoint", "current", "decide", "each", "gather", "keep", "note", "now", "patched",
    "progress", "random", "receive", "restore", "send", "sleep", "start", "step", "task",
    "tool", "uuid",
}  # fmt: skip

METHODS = {
    "answer", "archive_to", "arun", "astart", "audit", "batch", "batches", "cancel",
    "check", "close", "compare",
    "compensate", "copy_to", "experiment", "files", "follow", "fork", "from_env", "gc", "handle",
    "heads", "limits", "memory", "move", "on", "open", "options", "page", "pause", "queue",
    "queues", "replay", "resolve",
    "restore_from", "resume", "retry", "rewind", "run", "schedule", "schedules", "send",
    "session", "sessions", "set_limit", "snapshot",
    "sql", "start", "stats", "stream", "task", "tasks", "unpause", "values", "verify", "watch",
}  # fmt: skip


ASYNC_FORMS = {
    f"a{name}"
    for name in METHODS
    - {"arun", "astart", "follow", "from_env", "memory", "on", "options", "stream", "values"}
} - {"arun", "astart"}
"""Made by `off_the_loop`, or a line each; `tests/api/test_async_forms.py` holds them."""


def test_the_public_names_are_pinned_and_sorted():
    assert set(holdfast.__all__) == PINNED
    assert holdfast.__all__ == sorted(holdfast.__all__)


def test_the_methods_of_holdfast_are_pinned():
    public = {name for name in dir(holdfast.Holdfast) if not name.startswith("_")}
    assert public - ASYNC_FORMS == METHODS
    assert public >= ASYNC_FORMS


@pytest.mark.parametrize("name", sorted(PINNED))
def test_every_public_name_has_a_docstring_with_an_example(name):
    assert has_example(getattr(holdfast, name)), f"{name} has no example in its docstring"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_docstring_and_an_example_in_it_or_on_a_page(name):
    method = getattr(holdfast.Holdfast, name)
    assert method.__doc__
    assert has_example(method) or re.search(rf"\.{name}\b", code_of_the_pages())


@cache
def code_of_the_pages() -> str:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    found = (re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in pages)
    return "\n".join(chain.from_iterable(found))


def has_example(thing: object) -> bool:
    return bool(doctest.DocTestParser().get_examples(thing.__doc__ or ""))


def test_every_error_is_under_one_root_and_signals_are_not():
    from holdfast import errors

    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, BaseException):
            if issubclass(kind, errors.Signal):
                assert not issubclass(kind, Exception), name
            else:
                assert name in errors.__doc__, f"{name} is not in the tree at the top of errors.py"


def test_every_name_of_the_agent_package_is_in_the_reference():
    from holdfast import agent

    page = (Path(__file__).parents[1] / "docs/reference/api.md").read_text()
    told = set(
        re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", page.partition("## Agents")[2])))
    )
    assert sorted(set(agent.__all__) - told) == []


def test_every_name_of_the_workspace_has_an_example_and_is_in_the_reference():
    from holdfast import workspace

    page = (Path(__file__).parents[1] / "docs/reference/api.md").read_text()
    told = page.partition("## Workspace")[2].partition("\n## ")[0]
    for name in workspace.__all__:
        assert f"`{name}" in told, f"{name} is not in the reference"
        assert name == "Agent" or has_example(getattr(workspace, name)), f"{name} has no example"
