"""A task with secrets in every place they can be put: no byte of the store holds one of them."""

from __future__ import annotations

import base64
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from holdfast import (
    Holdfast,
    Redact,
    Retry,
    Secret,
    StepFailed,
    TaskFailed,
    Unanswered,
    ask,
    checkpoint,
    current,
    decide,
    each,
    gather,
    note,
    progress,
    restore,
    start,
    step,
    task,
    tool,
)
from holdfast.cli.root import root
from tests.flavors import Crash

CANARY = "canary/4Ω9-in the coal mine"
SPELT = [
    CANARY.encode(),
    CANARY.encode("unicode_escape"),
    CANARY.replace("Ω", "\\u03a9").encode(),
    CANARY.replace("Ω", "\\\\u03a9").encode(),
    quote(CANARY).encode(),
    quote(CANARY, safe="").encode(),
    base64.b64encode(CANARY.encode()).rstrip(b"="),
    b"coal mine",
    b"coal%20mine",
]


@dataclass
class Login:
    user: str
    key: Secret

    def __repr__(self) -> str:
        return f"Login({self.user!r}, {self.key.reveal()!r})"


@step
def canary_by_value(key: Secret, logins: list[Login], deep: Any, *more: Any, **options: Any) -> int:
    return len(key.reveal()) + len(logins[0].key.reveal()) + len(deep["a"][0].reveal())


@step
def canary_by_name(password: str, api_key: str, **options: Any) -> int:
    return len(password) + len(api_key) + len(options["client_secret"])


@step(redact=["headers"])
def canary_in_headers(headers: dict[str, str]) -> str:
    return str(len(headers))


@tool(retry=Retry(attempts=2, delay_s=0), in_doubt="retry")
def canary_in_errors(login: Login, token: str) -> None:
    try:
        raise LookupError(login, login.key.reveal())
    except LookupError as error:
        error.add_note(f"see https://example.org/?q={quote(login.key.reveal())}")
        raise ExceptionGroup(f"for {token}", [error, OSError(5, "no", token)]) from error


@step
def canary_in_parts(key: Secret):
    yield "part"
    raise ValueError(key.reveal())


@step
def canary_returned() -> Any:
    return [Secret(CANARY)]


@step
def canary_item(key: Secret) -> int:
    raise RuntimeError(f"item {key.reveal()}")


@task
def canary_child(key: Secret) -> None:
    raise ValueError(f"child with {key.reveal()}")


@task
def canary_task(key: Secret) -> str:
    state: dict[str, Any] = restore({"key": key, "n": 0})
    if state["n"] == 0:
        state = checkpoint({"key": key, "n": 1})
    value = Secret(state["key"].reveal())
    canary_by_value(value, [Login("ada", value)], {"a": [value]}, value, extra={value: 1})
    canary_by_name(CANARY, CANARY, client_secret=CANARY)
    canary_in_headers({"X-Key": CANARY})
    current().plan([f"use {CANARY}"])
    note(f"note {CANARY}", {"deep": [CANARY, Login("ada", value)], "password": "x"})
    note("large", [CANARY] * 10_000)
    progress(f"progress {CANARY}")
    decide("way", "this", options=[f"this {CANARY}"], because=f"because {CANARY}")
    for fails in (
        lambda: canary_in_errors(Login("ada", value), CANARY),
        lambda: list(canary_in_parts(value)),
        canary_returned,
        lambda: each(canary_item, [value, value]),
        lambda: gather(lambda: canary_item(value), lambda: canary_item(value)),
        lambda: start(canary_child, key).result(),
    ):
        with pytest.raises(Exception) as failed:
            fails()
        assert CANARY not in str(failed.value) and CANARY not in repr(failed.value)
    if crashes.pop():
        raise Crash
    answer = ask(f"Is it {CANARY}?")
    raise RuntimeError(f"{answer}: {CANARY} {Login('ada', value)!r}")


crashes: list[bool] = []


@pytest.fixture(params=["files", "sqlite"])
def url(request, tmp_path):
    return tmp_path / "w" if request.param == "files" else f"sqlite:///{tmp_path}/w.db"


def test_no_byte_of_a_store_holds_the_canary(url, tmp_path, capfd):
    crashes[:] = [False, False, False, True]
    redact = Redact(names=["pin"])
    with Holdfast(url, redact=redact, secrets={"CANARY": CANARY}) as hf:
        with pytest.raises(Crash):
            hf.run(canary_task, Secret.named("CANARY"), id="c", labels={"a": "b"})
        with pytest.raises(Unanswered):
            hf.run(canary_task, Secret.named("CANARY"), id="c")
        hf.pause("c", because=f"pause {CANARY}")
        hf.unpause("c")
        hf.answer("c", "yes")
        for _ in range(2):
            with pytest.raises(TaskFailed) as failed:
                hf.resume("c")
            assert CANARY not in str(failed.value)
        with pytest.raises(TaskFailed):
            hf.retry("c")
        shown = repr(hf.task("c").state) + repr(list(hf.tasks()))
        assert CANARY not in shown
        assert_free(tmp_path)  # also of what is only there while it is open
    assert_free(tmp_path)
    lines = ("show c --full", "show c --json", "log c", "log c --json", "ls")
    outputs = [cli(url, line) for line in lines]
    told = "".join([*outputs, *capfd.readouterr()])
    assert "•••" in told and not any(spelt.decode() in told for spelt in SPELT)


def cli(url: Any, line: str) -> str:
    ran = CliRunner().invoke(root, [*line.split(), "--url", str(url)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def assert_free(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 10_000
    for path in files:
        data = path.read_bytes()
        for spelt in SPELT:
            assert spelt not in data, f"{path}: {data[max(data.find(spelt) - 300, 0) :][:400]!r}"


def test_the_search_finds_a_canary_that_is_there(url, tmp_path):
    @step(name="canary_let_out")
    def let_out() -> str:
        return CANARY

    @task(name="lets_canary_out")
    def body() -> int:
        try:
            canary_returned()
        except StepFailed:
            note("x" * 10_000)
        return len(let_out())

    with Holdfast(url) as hf:
        hf.run(body, id="c")
    with pytest.raises(AssertionError):
        assert_free(tmp_path)


def test_sqlite_is_searched_as_it_stands(tmp_path):
    # What is compressed, or in pages that were freed, is in the bytes of the file as well.
    with sqlite3.connect(tmp_path / "x.db") as db:
        db.execute("create table t (x)")
        db.execute("insert into t values (?)", ("pad" * 4000 + CANARY,))
    db.close()
    with pytest.raises(AssertionError):
        assert_free(tmp_path)
