"""What is kept out of the log: arguments by the name of their parameter, parts of texts."""

from __future__ import annotations

import re
import time
import typing
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import (
    BadInput,
    CodeChanged,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Redact,
    Secret,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    Unanswered,
    WrongArguments,
    ask,
    current,
    decide,
    note,
    progress,
    start,
    step,
    task,
    tool,
)
from holdfast.cli.root import root
from holdfast.codec.redact import DEFAULT, TEXTS
from holdfast.codec.secret import MARK
from holdfast.core.events import AnyEvent, Planned
from holdfast.engines.holder import Holding
from holdfast.engines.remote.attempt import execute
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import SideKind
from tests.flavors import Crash

PASSWORD = "zv9-meadow-2207"


@pytest.fixture
def store():
    return MemoryStore()


def log_of(store: MemoryStore, id: str = "t") -> str:
    return b"\n".join(store.read(f"tasks/{id}")).decode()


# By the name of the parameter


@step
def log_in(user: str, password: str | None = None) -> int:
    return len(password or "")


@step
def log_in_with(**options: Any) -> int:
    return len(options["db_password"])


@step(redact=["headers"])
def fetch_with(url: str, headers: dict[str, str]) -> int:
    headers["X-Seen"] = "yes"
    return len(headers)


@task
def logs_in(crash: bool = False) -> list[int]:
    found = [
        log_in("ada", PASSWORD),
        log_in(user="ada", password=PASSWORD),
        log_in_with(db_password=PASSWORD, retries=2),
        fetch_with("/", {"Authorization": PASSWORD}),
    ]
    if crash and crashes.pop():
        raise Crash
    return found


crashes: list[bool] = []


def test_arguments_are_hidden_by_name_and_the_function_gets_them(store):
    crashes[:] = [False, True]
    with Holdfast(store) as hf, pytest.raises(Crash):
        hf.run(logs_in, True, id="t")
    with Holdfast(store) as hf:
        assert hf.run(logs_in, True, id="t") == [len(PASSWORD)] * 3 + [2]
    log = log_of(store)
    assert PASSWORD not in log
    assert '{"user":"ada","password":{"$redacted":true}}' in log
    assert '{"options":{"db_password":{"$redacted":true},"retries":2}}' in log
    assert '{"url":"/","headers":{"$redacted":true}}' in log


def test_what_says_nothing_is_not_hidden(store):
    @task(name="no_password")
    def body() -> int:
        return log_in("ada", None)

    with Holdfast(store) as hf:
        hf.run(body, id="t")
    assert '{"user":"ada","password":null}' in log_of(store)


def test_a_named_secret_is_shown_by_its_name(store, monkeypatch):
    monkeypatch.setenv("ZV_KEY", PASSWORD)

    @step(name="call_with_key")
    def call(api_key: Secret, token, credentials: dict[str, str]) -> int:
        return len(api_key.reveal()) + len(token.reveal())

    @task(name="calls_with_key")
    def body() -> int:
        key = Secret.named("ZV_KEY")
        return call(key, token=key, credentials={"$secret": "plain-text-here"})

    with Holdfast(store) as hf:
        assert hf.run(body, id="t") == 2 * len(PASSWORD)
    shown = '{"api_key":{"$secret":"ZV_KEY"},"token":{"$secret":"ZV_KEY"},'
    assert shown + '"credentials":{"$redacted":true}}' in log_of(store)


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        *((name, True) for name in ("password", "db_password", "openai_api_key", "token", "Token")),
        *((name, True) for name in ("client_secret", "access_token", "authorization")),
        *((name, False) for name in ("max_tokens", "page_token", "key", "passwords", "user")),
    ],
)
def test_which_names_are_hidden_without_being_told(name, is_hidden):
    assert DEFAULT.hides(name) is is_hidden


def test_names_are_added_kept_and_left_out():
    assert Redact(names=["ssn", "pin_*"]).hides("PIN_code") and Redact(names=["ssn"]).hides("token")
    assert not Redact(keep=["token"]).hides("token")
    assert not Redact(builtin=False).hides("password")


@pytest.mark.parametrize(
    "options",
    [
        {"names": "password"},
        {"names": [""]},
        {"names": [5]},
        {"keep": "a"},
        {"patterns": "abc"},
        {"patterns": ["("]},
        {"patterns": [b"abc"]},
        {"patterns": [re.compile(b"abc")]},
        {"patterns": [5]},
        {"patterns": ["a*"]},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(BadInput, match="Redact"):
        Redact(**options)


def test_something_else_than_a_redact_is_refused():
    with pytest.raises(BadInput, match="must be a Redact"):
        Holdfast("memory://", redact=["password"])


@pytest.mark.parametrize("redact", ["password", ["pasword"], 5])
def test_a_step_can_only_hide_parameters_that_it_has(redact):
    with pytest.raises(BadInput, match="redact="):

        @step(name="has_password", redact=redact)
        def has_password(password: str) -> None: ...


def test_a_log_made_before_something_was_hidden_goes_on_and_so_does_one_made_after(store):
    plain, hiding = Redact(builtin=False), Redact(names=["user"])
    for number, (first, second) in enumerate([(plain, hiding), (hiding, plain)]):
        crashes[:] = [False, False, True]
        with Holdfast(store, redact=first) as hf, pytest.raises(Crash):
            hf.run(logs_in, True, id=f"t{number}")
        with Holdfast(store, redact=second) as hf:
            assert hf.check(f"t{number}").fits
            assert len(hf.run(logs_in, True, id=f"t{number}")) == 4


def test_another_argument_beside_a_hidden_one_is_still_noticed(store):
    users = ["ada", "eve"]

    @task(name="changes_user")
    def body() -> int:
        log_in(users[0], PASSWORD)
        raise Crash

    with Holdfast(store) as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        users.reverse()
        with pytest.raises(CodeChanged) as changed:
            hf.run(body, id="t")
    assert "eve" in str(changed.value) and PASSWORD not in str(changed.value)


@task
def signs_in(password: str | None) -> int:
    return log_in("ada", password)


def test_a_task_is_not_started_with_an_argument_that_would_have_to_be_hidden(store):
    with Holdfast(store) as hf:
        with pytest.raises(BadInput, match=r"signs_in\(password=…\).*Secret\.named") as refused:
            hf.run(signs_in, PASSWORD, id="t")
        assert PASSWORD not in str(refused.value)
        assert list(hf.tasks()) == []
        assert hf.run(signs_in, None, id="none") == 0
    with Holdfast(store, redact=Redact(keep=["password"])) as hf:
        assert hf.run(signs_in, PASSWORD, id="t") == len(PASSWORD)
    with Holdfast(store) as hf:  # it was started, so it is no news
        assert hf.run(signs_in, PASSWORD, id="t") == len(PASSWORD)
        with pytest.raises(WrongArguments) as wrong:
            hf.run(signs_in, "zv-another", id="t")
        assert "zv-another" not in str(wrong.value)


def test_neither_is_a_child(store):
    @task(name="parent_of_sign_in")
    def body() -> int:
        return start(signs_in, PASSWORD).result()

    with Holdfast(store) as hf, pytest.raises(TaskFailed, match=r"signs_in\(password=…\)"):
        hf.run(body, id="t")
    assert PASSWORD not in log_of(store) and "child_started" not in log_of(store)


def test_no_hash_in_the_log_is_made_of_a_secret(store):
    # Who has the log, and a list of likely passwords, could find the right one by it.
    @tool(name="hashed", in_doubt="retry")
    def hashed(password: str, key: Secret) -> str:
        return current().key.partition(":")[2]

    @task(name="hashes")
    def body(number: int) -> str:
        key = Secret(values[number])
        note(f"used {key.reveal()}", [key.reveal()])
        return hashed(key.reveal(), key)

    values = ["zv-one-of-two", "zv-two-of-two"]
    with Holdfast(store) as hf:
        assert hf.run(body, 0, id="t") == hf.run(body, 1, id="u")
        assert hf.task("t").state.marks == hf.task("u").state.marks


def test_an_approval_shows_no_secret_and_is_good_for_the_call(store):
    @tool(name="transfer", approve=True, in_doubt="retry")
    def transfer(amount: int, password: str, key: Secret) -> int:
        return amount + len(password) + len(key.reveal())

    @task(name="transfers")
    def body() -> int:
        return transfer(5, PASSWORD, Secret(PASSWORD))

    with Holdfast(store) as hf:
        with pytest.raises(Unanswered) as asked:
            hf.run(body, id="t")
        assert '"amount":5' in str(asked.value) and PASSWORD not in str(asked.value)
        hf.answer("t", True)
        assert hf.resume("t") == 5 + 2 * len(PASSWORD)
    assert PASSWORD not in log_of(store)


# Long lists, which are stored once


@step
def say(chat: list[dict[str, str]], api_key: str, key: Secret) -> str:
    chat.append({"role": "x", "text": "only here"})
    return f"{len(chat)} {len(api_key)} {len(key.reveal())}"


@step(redact=["chat"])
def whisper(chat: list[dict[str, str]], more: list[str]) -> str:
    return f"{len(chat)} {len(more)}"


@task
def talks_long(crash: bool) -> list[str]:
    chat: list[dict[str, str]] = []
    found = []
    for turn in range(30):
        chat.append({"role": "user", "text": f"zv-turn-{turn} " + "x" * 200})
        found.append(say(chat, PASSWORD, Secret(PASSWORD)))
    hushed = [{"role": "user", "text": f"zv-hushed-{n} " + "x" * 200} for n in range(30)]
    found.append(whisper(hushed, [f"zv-more-{n} " + "x" * 200 for n in range(30)]))
    if crash and crashes.pop():
        raise Crash
    return found


def test_long_lists_beside_secrets_are_stored_once_and_long_secret_ones_never(store):
    crashes[:] = [False, False, True]
    with Holdfast(store) as hf, pytest.raises(Crash):
        hf.run(talks_long, True, id="t")
    with Holdfast(store) as hf:
        assert hf.check("t").fits
        found = hf.run(talks_long, True, id="t")
    secret = f"{len(PASSWORD)} {len(PASSWORD)}"
    assert found == [*(f"{turn + 2} {secret}" for turn in range(30)), "30 30"]
    log = log_of(store)
    assert log.count("zv-turn-15 ") == log.count("zv-turn-29 ") == log.count("zv-more-3 ") == 1
    assert PASSWORD not in log and "zv-hushed" not in log


def test_a_long_list_that_holds_a_secret_is_refused_if_asked(store):
    @step(name="lists_keys")
    def lists_keys() -> list[str]:
        return [f"line {n} " + "x" * 200 for n in range(30)] + ["sk-proj-abcDEF1234567890xyz"]

    @task(name="gets_keys")
    def body() -> int:
        return len(lists_keys())

    with (
        Holdfast(store, redact=Redact(refuse=True)) as hf,
        pytest.raises(TaskFailed, match="looks like a secret"),
    ):
        hf.run(body, id="t")
    assert "sk-proj" not in log_of(store)


# Calls made from the log alone


@tool(in_doubt="retry", undo=lambda result: None)
def wire(amount: int, password: str) -> int:
    raise Crash


@tool(in_doubt="retry", undo=lambda result: None)
def wire_with(amount: int, key: Secret, *, idempotency: IdempotencyKey = IdempotencyKey()) -> int:
    raise Crash


@pytest.mark.parametrize("pay", [lambda: wire(5, PASSWORD), lambda: wire_with(5, Secret(PASSWORD))])
def test_a_call_in_doubt_whose_arguments_are_gone_is_not_made_again_to_be_undone(store, pay):
    @task(name="wires")
    def body() -> int:
        return pay()

    with Holdfast(store) as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        hf.cancel("t")
        with pytest.raises(InDoubt):
            hf.resume("t")
        hf.resolve("t", "1", happened=False)
        with pytest.raises(Exception, match="cancelled"):
            hf.resume("t")
    assert PASSWORD not in log_of(store)


@step
def add_with_key(n: int, api_key: Secret) -> int:
    return n + len(api_key.reveal())


@task
def adds_with_key() -> None: ...


@pytest.mark.parametrize(
    "args",
    [b'{"n":1,"api_key":{"$redacted":true}}', b'{"n":1,"api_key":{"$secret":0}}'],
)
def test_a_call_by_name_needs_its_secrets_by_name(store, args):
    with Holdfast(store) as hf:
        hf.start(adds_with_key, id="t")
    now = lambda: datetime.now(UTC)  # noqa: E731
    far = Holding(store, "far", 30, now, 1 << 20, None, {"ZV_FAR": "12345"})
    with pytest.raises(BadInput, match=r"task 't', call 1: add_with_key.*Secret\.named"):
        execute(far, "t", "1", "add_with_key", args)
    named = b'{"n":1,"api_key":{"$secret":"ZV_FAR"}}'
    assert bytes(execute(far, "t", "1", "add_with_key", named).result) == b"6"


# Texts


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key sk-proj-abcDEF1234567890xyz is bad", "key ••• is bad"),
        ("sk_live_abcdefghij1234", "•••"),
        ("AKIAIOSFODNN7EXAMPLE", "•••"),
        ("ghp_abcdefghijklmnopqrst1234567890", "•••"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mnop", "•••"),
        ("xoxb-123456789012-abcdef", "•••"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "•••"),
        ("hf_abcdefghijklmnopqrstuvwx", "•••"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2", "•••"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer •••"),
        ("{'authorization': 'Basic YWRhOmh1bnRlcg=='}", "{'authorization': 'Basic •••'}"),
        ("postgresql://ada:hunter2@db/x", "postgresql://ada:•••@db/x"),
        ("GET /v1?city=Oslo&api_key=abc&n=2", "GET /v1?city=Oslo&api_key=•••&n=2"),
        ("login(password='hunter2')", "login(password=•••)"),
        ('{"api_key": "abc"}', '{"api_key": •••}'),
        ("password=hunter2 host=db", "password=••• host=db"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nMIIE\n-----END RSA PRIVATE KEY-----!",
            "•••!",
        ),
        ("'-----BEGIN PRIVATE KEY-----\\nMIIEabc", "'•••"),
    ],
)
def test_the_shapes_of_well_known_keys_are_blotted_out(text, clean):
    assert DEFAULT.text(text) == clean
    assert DEFAULT.text(clean) == clean
    assert Redact(builtin=False).text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "task-1234567890-abcdefghij failed",
        "the basic understanding of the bearer of bad news",
        "login(password=password, token=self.token)",
        "sk-learn-preprocessing-pipeline",
        "https://example.org:8080/a?page=2",
        "TypeError: log_in() missing 1 required positional argument: 'password'",
        "",
    ],
)
def test_ordinary_texts_stay_as_they_are(text):
    assert DEFAULT.text(text) == text


def test_own_patterns_hide_their_match_or_the_group_named_secret():
    redact = Redact(patterns=[r"acme-\d+", re.compile("pin (?P<secret>[0-9]+)|code")])
    assert redact.text("acme-12, pin 3456, code") == "•••, pin •••, •••"


@pytest.mark.parametrize(
    "text", ["sk-a", "eyJa-", "://a:", "-----BEGIN PRIVATE KEY-----", "a-b_c."]
)
def test_no_text_takes_the_built_in_patterns_long(text):
    # A bound that only a pattern with a quadratic case misses, by far.
    began = time.process_time()
    DEFAULT.text(text * (200_000 // len(text)))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("value", ["", "1", "abcde"])
def test_a_short_secret_is_not_searched_for(value):
    Secret(value)
    assert DEFAULT.text("1abcde1") == "1abcde1"


def test_a_known_secret_is_found_however_it_is_spelt():
    value = "zv/8 ümlaut+'\"\n"
    Secret(value)
    import base64
    import json
    from urllib.parse import quote, quote_plus

    for spelt in (
        *(value, value.strip(), repr(value), json.dumps(value), quote(value), quote_plus(value)),
        *(quote(value, safe=""), base64.b64encode(value.encode()).decode()),
    ):
        assert "zv" not in DEFAULT.text(f"<{spelt}>"), spelt


def test_of_two_secrets_the_longer_one_is_hidden_whole():
    Secret("zv-short")
    Secret("zv-short-and-longer")
    assert DEFAULT.text("zv-short-and-longer, zv-short") == "•••, •••"


def test_a_failure_is_recorded_and_raised_without_secrets(store):
    class Client:
        def __repr__(self) -> str:
            return f"Client({PASSWORD!r})"

    @step(name="fails_loudly")
    def fails(key: Secret, token: str) -> None:
        try:
            raise KeyError(f"inner {key.reveal()}")
        except KeyError as error:
            error.add_note(f"note {key.reveal()}")
            raise ValueError(Client(), {"url": f"/?k={key.reveal()}"}, f"and {token}") from error

    @task(name="task_fails_loudly")
    def body() -> str:
        try:
            fails(Secret(PASSWORD), "zv-token-just-here")
        except StepFailed as failed:
            first = str(failed)
        if crashes.pop():
            raise Crash
        seen.append(first)
        raise RuntimeError(f"after {first} came {PASSWORD}")

    seen: list[str] = []
    crashes[:] = [False, False]
    with Holdfast(store) as hf:
        with pytest.raises(TaskFailed) as failed:
            hf.run(body, id="t")
        with pytest.raises(TaskFailed) as again:
            hf.run(body, id="t")
        assert str(failed.value) == str(again.value)
        assert PASSWORD not in str(failed.value) and "•••" in str(failed.value)
        with pytest.raises(TaskFailed):
            hf.retry("t")
        assert PASSWORD not in repr(hf.task("t").state)
    assert "zv-token" not in "".join(seen) and PASSWORD not in "".join(seen)
    log = log_of(store)
    assert PASSWORD not in log and "zv-token-just-here" not in log
    assert "Client('•••')" in log and "note •••" in log


def test_first_run_and_replay_see_the_same_failure(store):
    seen: list[str] = []

    @step(name="fails_with_key")
    def fails() -> None:
        raise ValueError(f"bad {Secret.named('ZV_SEEN').reveal()}")

    @task(name="sees_failure")
    def body() -> None:
        try:
            fails()
        except StepFailed as failed:
            seen.append(str(failed))
        if len(seen) == 1:
            raise Crash

    with Holdfast(store, secrets={"ZV_SEEN": "zv-only-in-there"}) as hf, pytest.raises(Crash):
        hf.run(body, id="t")
    with Holdfast(store) as hf:
        hf.run(body, id="t")
    assert seen[0] == seen[1] and "bad •••" in seen[0]


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        *(("s3cret", MARK), (12, MARK), (0.5, MARK), ("", MARK)),
        *((True, True), (False, False), (None, None), ([], []), ({}, {})),
        (["s3cret", 12, True, ["s3cret"]], [MARK, MARK, True, [MARK]]),
        ({"old": "s3cret", "new": ["s3cret"]}, {"old": MARK, "new": [MARK]}),
    ],
)
def test_a_text_or_number_under_a_secret_name_is_hidden_and_yes_and_no_are_not(value, clean):
    data = msgspec.json.encode({"password": value, "city": value})
    assert msgspec.json.decode(Redact().data(data)) == {"password": clean, "city": value}


def test_a_secret_at_the_edge_of_a_cut_leaves_no_half():
    secret = "zv-" + "edge" * 30
    Secret(secret)
    from holdfast.engines.execution import failure_of

    for before in (*range(8 * 1024 - 130, 8 * 1024 + 20, 7), *range(131_000, 131_072, 7)):
        for between in ("y" * 20_000, "y" * 300_000, secret * 3000):
            text = "x" * before + secret + between + secret
            failure = failure_of(ValueError(text), DEFAULT)
            assert "edge" not in failure.message + failure.traceback
            assert len(failure.message) < 17_000
    failure = failure_of(ValueError(secret * 3000), DEFAULT)
    assert "edge" not in failure.message and "left out" in failure.message


def test_texts_for_people_are_recorded_without_secrets(store):
    Secret(PASSWORD)

    @task(name="talks")
    def body() -> str:
        current().plan([f"use {PASSWORD}"])
        note(f"noted {PASSWORD}", {"deep": [f"in {PASSWORD}"], "token": "zv-in-note", "n": 1})
        note("again", Secret(PASSWORD))
        progress(f"at {PASSWORD}")
        choice = decide("how", "so", options=[f"so {PASSWORD}"], because=f"of {PASSWORD}")
        return choice + ask(f"With {PASSWORD}?")

    with Holdfast(store) as hf:
        with pytest.raises(Unanswered) as asked:
            hf.run(body, id="t")
        assert "With •••?" in str(asked.value)
        hf.pause("t", because=f"of {PASSWORD}")
        hf.unpause("t")
        with pytest.raises(Unanswered):  # and nothing is said twice
            hf.resume("t")
        assert len(hf.task("t").notes) == 2
        hf.answer("t", "yes")
        assert hf.resume("t") == "soyes"
    log = log_of(store)
    assert PASSWORD not in log and "zv-in-note" not in log and '"n":1' in log


def test_a_message_left_in_the_inbox_has_no_secret(tmp_path, monkeypatch):
    Secret(PASSWORD)
    posted: list[bytes] = []
    put = FileStore.put_side

    def spy(self: FileStore, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        if kind == "inbox":
            posted.append(data)
        return put(self, stream, kind, name, data)

    monkeypatch.setattr(FileStore, "put_side", spy)

    @step(name="is_cancelled_amid")
    def amid() -> None:
        with Holdfast(tmp_path) as other:
            other.cancel("t", because=f"of {PASSWORD}")

    @task(name="cancelled_amid")
    def body() -> None:
        amid()
        amid()

    with Holdfast(tmp_path) as hf, pytest.raises(TaskCancelled, match="of •••"):
        hf.run(body, id="t")
    assert posted and PASSWORD.encode() not in b"".join(posted)
    assert PASSWORD.encode() not in (tmp_path / "tasks/t/events.jsonl").read_bytes()


def test_every_text_of_an_event_is_blotted_or_known_to_be_no_text_of_users():
    # Ids, names and paths; texts that are made of failures and other events, which have been.
    plain = {
        *("id", "task", "args_hash", "user", "session", "parent", "parent_path", "owner", "engine"),
        *("by", "post", "path", "name", "key", "scope", "mark", "call", "expects", "kind"),
        *("on_cancel", "verdict", "ending", "digest", "base", "role", "step", "supersedes", "of"),
        *("of_path", "child", "when", "process", "error"),
    }
    for kind in typing.get_args(AnyEvent):
        for field in msgspec.structs.fields(kind):
            if field.type is str and field.name not in plain:
                assert field.name in TEXTS.get(kind, ()), f"{kind.__name__}.{field.name}"
    assert "items" not in TEXTS[Planned]  # they are blotted where it is made


# On the command line

AGENTS = """
from holdfast import Redact, Secret, step, task

redact = Redact(names=["pin"], patterns=["zv-blot-[a-z]+"])
vault = {"ZV_CLI": "zv-from-the-vault"}

@step
def use_pin_of_zv(pin: str, key: Secret) -> str:
    raise ValueError("zv-blot-this " + key.reveal())

@task
def zv_cli_task(key: Secret) -> str:
    return use_pin_of_zv("-".join(["zv", "pin", "here"]), key)
"""


def test_commands_keep_the_secrets_that_the_settings_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for setting in ("URL", "APP", "REDACT", "SECRETS"):
        monkeypatch.delenv(f"HOLDFAST_{setting}", raising=False)
    (tmp_path / "zv_agents.py").write_text(AGENTS)
    settings = '[tool.holdfast]\nredact = "zv_agents:redact"\nsecrets = "zv_agents:vault"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    line = ["run", "zv_agents:zv_cli_task", '{"$secret": "ZV_CLI"}', "--id", "t"]
    ran = CliRunner().invoke(root, line)
    assert ran.exit_code == 1 and "ValueError: ••• •••" in ran.output
    log = (tmp_path / "workspace/tasks/t/events.jsonl").read_text()
    assert not any(found in log for found in ("zv-pin", "zv-blot", "zv-from"))
    monkeypatch.setenv("HOLDFAST_REDACT", "zv_agents:vault")
    assert CliRunner().invoke(root, ["show", "t"]).exit_code == 0  # which only reads
    ran = CliRunner().invoke(root, ["pause", "t"])
    assert ran.exit_code == 2 and "must be a Redact" in ran.output


# Values


def test_a_result_is_never_changed(store):
    @step(name="returns_key")
    def returns_key() -> str:
        return "sk-proj-abcDEF1234567890xyz"

    @task(name="gets_key")
    def body() -> str:
        return returns_key()

    with Holdfast(store) as hf:
        assert hf.run(body, id="t") == hf.run(body, id="t") == "sk-proj-abcDEF1234567890xyz"
    with Holdfast(store, redact=Redact(refuse=True)) as hf:
        with pytest.raises(TaskFailed, match=r"returned: it holds what looks like a secret"):
            hf.run(body, id="t2")
        with pytest.raises(TaskFailed, match=r"log_in .*was called with: it holds"):
            hf.run(task(name="passes_key")(lambda: log_in(PASSWORD)), id="t3")
    assert PASSWORD not in log_of(store, "t3")
    assert "sk-proj" not in log_of(store, "t2")
