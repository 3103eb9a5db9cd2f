"""What Temporal is shown of a task: little, nothing that is hidden, and nothing readable of a store
that is encrypted."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    Keys,
    Redact,
    Retry,
    Secret,
    TaskFailed,
    WrongKey,
    ask,
    step,
    task,
)
from holdfast.engines.restate import Restate
from holdfast.engines.restate.http import Address
from holdfast.engines.routing import job_for
from holdfast.stores import open_store, rotate
from holdfast.testing.servers import RestateServer, TemporalServer, free_ports
from tests.engines.temporally import history, temporal_at, until, working

MEGA = 1024 * 1024
LETTERS = 5 * MEGA


@step
def paid_letter(text: str) -> str:
    return text.upper()


@task
def paid_long(size: int) -> int:
    return len(paid_letter("x" * size))


@task
def paid_long_result(size: int) -> str:
    return paid_letter("x" * size)


@step
async def paid_item(n: int, text: str) -> str:
    return f"{n} {text}"


@task
async def paid_many(count: int, size: int) -> int:
    items = await asyncio.gather(*(paid_item(n, "y" * size) for n in range(count)))
    return sum(map(len, items))


@step
def paid_raise(size: int) -> None:
    raise ValueError("z" * size)


@task
def paid_fail(size: int) -> None:
    paid_raise(size)


def test_a_value_of_five_megabytes_goes_through_and_temporal_keeps_none_of_it(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.run(paid_long, LETTERS, id="long-1") == LETTERS
        assert len(hf.run(paid_long_result, LETTERS, id="long-2")) == LETTERS
        kept = history(temporal, "long-1")
        assert len(kept) < 16 * 1024
        assert len(history(temporal, "long-2")) < 16 * 1024


def test_a_thousand_calls_at_once_fit(temporal: TemporalServer, tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(paid_many, 1000, 10_000, id="many-1")
        assert handle.result(timeout_s=60) == 1000 * 10_001 + 2890
        assert len(history(temporal, "many-1")) < 3 * MEGA


def test_a_long_error_fits(temporal: TemporalServer, tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=temporal_at(temporal)) as hf, working(hf):
        with pytest.raises(TaskFailed, match="zzz"):
            hf.run(paid_fail, LETTERS, id="fail-1")
        assert len(history(temporal, "fail-1")) < 100 * 1024


@step
def paid_reply(messages: list[dict[str, str]]) -> dict[str, str]:
    return {"role": "assistant", "text": f"{len(messages)} so far"}


@task
def paid_chat(count: int) -> str:
    messages = [{"role": "user", "text": f"message {n} " + "b" * 500} for n in range(count)]
    for _ in range(5):
        messages.append(paid_reply(messages))
    return messages[-1]["text"]


def test_a_conversation_of_two_thousand_messages_is_not_kept_by_temporal(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.run(paid_chat, 2000, id="chat-1") == "2004 so far"
        assert len(history(temporal, "chat-1")) < 32 * 1024


SECRET = "hunter-2-and-3"
HIDDEN = "4111-1111-2222"


@step(retry=Retry(attempts=2, delay_s=0.01))
def paid_pay(card: str, password: Secret, amount: int) -> str:
    if amount > 100:
        raise ValueError(f"{card} was declined by {password.reveal()}, see acme-77")
    return "paid"


@task
def paid_shop(password: Secret, amount: int) -> str:
    return paid_pay(HIDDEN, password, amount)


def test_what_is_kept_out_of_the_log_is_kept_out_of_temporal(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    redact = Redact(names=["card"], patterns=[r"acme-\d+"])
    engine, url = temporal_at(temporal), f"sqlite:///{tmp_path}/s.db"
    secrets = {"bank": SECRET}
    with Holdfast(url, redact=redact, secrets=secrets, engine=engine) as hf, working(hf):
        assert hf.run(paid_shop, Secret.named("bank"), 5, id="shop-ok") == "paid"
        with pytest.raises(TaskFailed):
            hf.run(paid_shop, Secret.named("bank"), 500, id="shop-bad")
        kept = history(temporal, "shop-ok") + history(temporal, "shop-bad")

    assert b"was declined by" in kept
    for hidden in (SECRET, HIDDEN, "acme-77"):
        assert hidden.encode() not in kept


@step
def sealed_find(city: str) -> str:
    if city == "Nowhere":
        raise LookupError("no rooms in Nowhere")
    return f"{city} Inn"


@task
def payload_sealed_trip(city: str, question: str) -> str:
    room = sealed_find(city)
    return f"{room} {ask(question, str, id='which')}"


@pytest.mark.parametrize("signed", [False, True])
def test_of_an_encrypted_store_temporal_keeps_nothing_readable(
    temporal: TemporalServer, tmp_path: Path, signed: bool
) -> None:
    sign = Keys.new() if signed else None
    url, engine = f"sqlite:///{tmp_path}/s.db", temporal_at(temporal)
    with Holdfast(url, key=Keys.new(), sign_key=sign, engine=engine) as hf, working(hf):
        one, two = f"sealed-1-{signed}", f"sealed-2-{signed}"
        handle = hf.start(payload_sealed_trip, "Oslo", "Sea or city?", id=one)
        until(lambda: hf.task(one).status == "awaiting_user")
        hf.answer(one, "Seaside")
        assert handle.result(timeout_s=20) == "Oslo Inn Seaside"
        with pytest.raises(TaskFailed, match="no rooms in Nowhere"):
            hf.run(payload_sealed_trip, "Nowhere", "?", id=two)
        job = job_for(hf.task(one).state)
        assert engine.query(job).detail == "completed"  # type: ignore[union-attr]
    kept = history(temporal, one) + history(temporal, two)
    assert b"sealed_find" in kept
    for word in (b"Oslo", b"Seaside", b"or city", b"no rooms", b"Nowhere", b"Traceback"):
        at = kept.find(word)
        assert at < 0, kept[max(at - 200, 0) : at + 200]


def test_a_new_key_of_the_store_opens_what_temporal_kept_under_the_old_one(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url, old, new = f"sqlite:///{tmp_path}/s.db", Keys.new(), Keys.new()
    queue = "rotated"
    with Holdfast(url, key=old, engine=temporal_at(temporal, queue)) as hf, working(hf):
        hf.start(payload_sealed_trip, "Rome", "Sea or city?", id="rotated-1")
        until(lambda: hf.task("rotated-1").status == "awaiting_user")
    store = open_store(url)
    rotate(store, Keys(new, old))
    store.close()
    with Holdfast(url, key=new, engine=temporal_at(temporal, queue)) as hf, working(hf):
        hf.answer("rotated-1", "City")
        assert hf.resume("rotated-1") == "Rome Inn City"


def test_a_worker_without_the_key_refuses_and_one_with_it_goes_on(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url, key, queue = f"sqlite:///{tmp_path}/s.db", Keys.new(), "keyless"
    with Holdfast(url, key=key, engine=temporal_at(temporal, queue)) as hf:
        hf.start(payload_sealed_trip, "Rome", "Sea or city?", id="keyless-1")
        with pytest.raises(WrongKey, match="no key was given"):
            Holdfast(url, engine=temporal_at(temporal, queue))
        with pytest.raises(BadInput, match=r"Temporal.* was given to a store with another key"):
            Holdfast("memory://", engine=hf.engine)
        for key_of_another in (None, Keys.new()):
            elsewhere = Holdfast(
                "memory://", key=key_of_another, engine=temporal_at(temporal, queue)
            )
            with elsewhere, working(elsewhere) as said:
                until(lambda: any("encrypted with the key of a store" in text for text in said))
        with working(hf):
            until(lambda: hf.task("keyless-1").status == "awaiting_user")


# Restate


@pytest.mark.parametrize("key", ["", Keys.new()], ids=["open", "encrypted"])
def test_restate_keeps_nothing_of_values(restate: RestateServer, tmp_path: Path, key: str) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    redact = Redact(names=["card"], patterns=[r"acme-\d+"])
    options: Any = {"redact": redact, "secrets": {"bank": SECRET}, "key": key or None}
    one, two, three = (f"kept-{n}-{bool(key)}" for n in (1, 2, 3))
    engine = Restate(restate.url, admin=restate.admin_url, listen=listen)
    store = f"sqlite:///{tmp_path}/s.db"
    with Holdfast(store, engine=engine, **options) as hf, working(hf) as said:
        until(lambda: any(text.startswith("drives") for text in said))
        with pytest.raises(TaskFailed):
            hf.run(paid_shop, Secret.named("bank"), 500, id=one)
        handle = hf.start(payload_sealed_trip, "Oslo", "Sea or city?", id=two)
        until(lambda: handle.status == "awaiting_user")
        hf.answer(two, "Seaside")
        assert handle.result(timeout_s=20) == "Oslo Inn Seaside"
        assert hf.run(paid_chat, 2000, id=three) == "2004 so far"
        kept = journal(restate)
    assert "paid_pay" in kept and "sealed_find" in kept
    for word in (SECRET, HIDDEN, "acme-77", "Oslo", "Seaside", "or city", "declined", "message 7"):
        assert word not in kept


def journal(server: RestateServer) -> str:
    """Everything that Restate keeps of all tasks."""
    address = Address(server.admin_url, "admin")
    tables = ("sys_journal", "sys_invocation", "state", "sys_promise", "sys_inbox")
    replies = [address.ask("POST", "/query", {"query": f"select * from {t}"}) for t in tables]
    assert [reply.status for reply in replies] == [200] * len(tables)
    return "".join(raw_too(reply.text) for reply in replies)


def raw_too(text: str) -> str:
    """A text, and what is in it as bytes written in hex."""
    found = re.findall(r'"((?:[0-9a-f]{2}){8,})"', text)
    return text + "".join(bytes.fromhex(each).decode("utf-8", "replace") for each in found)
