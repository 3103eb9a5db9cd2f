"""Values under keys are durable in every store, have a history, and change once in a task."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct

from holdfast import (
    BadId,
    BadInput,
    Conflict,
    Holdfast,
    HoldsSecret,
    Redact,
    Undecodable,
    Unserializable,
    task,
)
from holdfast.agent import values
from holdfast.testing import Clock
from tests.flavors import Crash
from tests.stores.every import KINDS, LASTING, new_url, postgres_server  # noqa: F401


class Price(Struct):
    amount: int
    currency: str = "NOK"


@pytest.fixture(params=KINDS)
def hf(request, new_url):  # noqa: F811
    with Holdfast(new_url(request.param)) as opened:
        yield opened


@pytest.fixture
def here():
    with Holdfast("memory://") as opened:
        yield opened


def test_what_was_put_is_there_and_what_was_deleted_is_not(hf):
    prices = hf.values("prices")
    first = prices.put("oslo/room", {"nights": (1, 2)})
    prices.put_many({"oslo/desk": 3, "rome/room": None, "ünï ✓": b"\0"})
    assert prices.get("oslo/room") == {"nights": (1, 2)}
    assert prices.keys("oslo/") == ["oslo/desk", "oslo/room"]
    assert prices.get("rome/room", 7) is None and prices.get("paris", 7) == 7
    assert prices.get_many(["ünï ✓", "oslo/desk", "paris"]) == {"ünï ✓": b"\0", "oslo/desk": 3}
    assert prices.delete("oslo/room", "paris") == 1
    assert prices.entry("oslo/room") is None and prices.entry("oslo/desk").version > first
    assert [each.key for each in prices.entries()] == ["oslo/desk", "rome/room", "ünï ✓"]
    assert hf.verify().sound and hf.values("other").keys() == []


@pytest.mark.parametrize("kind", LASTING)
def test_another_process_sees_it_and_adds_to_it(new_url, kind):  # noqa: F811
    url = new_url(kind)
    with Holdfast(url) as one, Holdfast(url) as two:
        version = one.values("n").put("a", 1)
        assert two.values("n").entry("a").version == version
        two.values("n").put("a", 2, expected=version)
        with pytest.raises(Conflict, match=f"version {version} was expected, and version 3"):
            one.values("n").put("a", 3, expected=version)
        assert one.values("n").get("a") == 2
        two.values("n").drop()
        assert one.values("n").get("a") is None
        one.values("n").put("a", "anew", expected=0)
        assert two.values("n").get("a") == "anew"


def test_of_many_that_compare_and_set_at_once_each_counts(hf):
    counter = hf.values("counter")
    counter.put("n", 0)

    def add():
        for _ in range(5):
            while True:
                entry = counter.entry("n")
                try:
                    counter.put("n", entry.value + 1, expected=entry.version)
                    break
                except Conflict:
                    continue

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert counter.get("n") == 20


def test_the_past_can_be_read_and_not_written(hf):
    n = hf.values("n")
    versions = [n.put("a", number) for number in range(3)]
    n.delete("a")
    assert [n.as_of(version).get("a") for version in versions] == [0, 1, 2]
    assert n.as_of(0).keys() == [] and n.get("a") is None
    found = n.history("a")
    assert [(each.value, each.deleted) for each in found] == [
        (0, False), (1, False), (2, False), (None, True),
    ]  # fmt: skip
    assert n.as_of(found[1].at).get("a") == 1
    assert n.as_of(datetime(2000, 1, 1, tzinfo=UTC)).get("a") is None
    for change in (lambda past: past.put("a", 9), lambda past: past.delete("a")):
        with pytest.raises(BadInput, match="for reading"):
            change(n.as_of(versions[0]))
    with pytest.raises(BadInput, match="no time zone"):
        n.as_of(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(BadInput, match="a time or a version"):
        n.as_of("yesterday")


def test_values_expire_and_make_room_for_others():
    clock = Clock()
    with Holdfast("memory://", clock=clock) as hf:
        n = hf.values("n")
        n.put("a", 1, lifetime_s=10)
        n.put("b", 2)
        before = clock()
        clock.advance(9)
        assert n.keys() == ["a", "b"]
        clock.advance(1)
        assert n.keys() == ["b"] and n.get("a") is None and n.get_many(["a", "b"]) == {"b": 2}
        assert n.as_of(before).get("a") == 1, "then it had not expired"
        n.put("a", 3, expected=0)
        assert n.get("a") == 3


@pytest.mark.parametrize("lifetime_s", [0, -1, "1", True, float("nan"), float("inf")])
def test_a_lifetime_is_a_number_of_seconds(here, lifetime_s):
    with pytest.raises(BadInput, match="lifetime_s"):
        here.values("n").put("a", 1, lifetime_s=lifetime_s)


def test_values_have_the_type_that_was_asked_for(here):
    prices = here.values("prices", of=Price)
    prices.put("room", Price(120))
    assert prices.get("room") == Price(120)
    plain = here.values("prices").plain
    assert plain.bytes_of(plain.find(["room"])["room"]) == b'{"amount":120,"currency":"NOK"}'
    with pytest.raises(Unserializable):
        prices.put("room", 120)
    here.values("prices").put("room", "much")
    with pytest.raises(Undecodable):
        prices.get("room")
    with pytest.raises(Unserializable):
        here.values("n").put("a", object())


@pytest.mark.parametrize("key", ["", 7, None, "\ud800", "k" * 1025])
def test_a_key_is_a_text_that_is_not_too_long(here, key):
    for use in (here.values("n").get, here.values("n").delete, here.values("n").history):
        with pytest.raises(BadInput, match="key="):
            use(key)
    with pytest.raises(BadInput, match="key="):
        here.values("n").put_many({"good": 1, key: 2})
    assert here.values("n").keys() == []


@pytest.mark.parametrize("name", ["", 7, "\n", "n" * 300, "\ud800"])
def test_a_namespace_has_a_name(here, name):
    with pytest.raises((BadId, BadInput)):
        here.values(name)


def test_hostile_names_are_only_names(hf):
    for name in ("../../etc", "a/b", "default", "values/x", "%2e", "a b"):
        hf.values(name).put("k", name)
    assert [hf.values(name).get("k") for name in ("../../etc", "a/b")] == ["../../etc", "a/b"]
    assert hf.memory.search("k") == [] and hf.verify().sound


def test_large_values_and_many_of_them_are_kept_whole(hf):
    n = hf.values("n")
    n.put("large", "x" * 1_000_000)
    n.put_many({f"k{number}": "y" * 20_000 for number in range(40)})
    assert len(n.get("large")) == 1_000_000 and len(n.keys("k")) == 40
    n.delete(*n.keys())
    assert n.keys() == [] and hf.verify().sound


def test_a_secret_is_refused():
    with Holdfast("memory://", redact=Redact(patterns=[r"acme-\d+"], refuse=True)) as hf:
        with pytest.raises(HoldsSecret):
            hf.values("n").put("a", "acme-77")
        assert hf.values("n").keys() == []


def test_copies_and_archives_take_values_along(hf, tmp_path):
    hf.values("n").put("a", "x" * 100_000)
    archived = hf.archive_to(tmp_path / "all.hfa")
    with Holdfast("memory://") as other, Holdfast("memory://") as third:
        hf.copy_to(other)
        third.restore_from(archived.path)
        assert len(other.values("n").get("a")) == len(third.values("n").get("a")) == 100_000


# Inside of tasks


def test_a_task_changes_a_value_once_and_sees_what_it_saw(here):
    crashed = []

    @task
    def counting() -> list[object]:
        n = values("n")
        seen = n.get("a")
        version = n.put("a", (seen or 0) + 1)
        conflict = ""
        try:
            n.put("a", 9, expected=0)
        except Conflict as error:
            conflict = str(error)
        gone = n.delete("b", "c")
        if not crashed:
            crashed.append(True)
            raise Crash
        return [seen, version, bool(conflict), gone, n.keys()]

    here.values("n").put("b", 1)
    with pytest.raises(Crash):
        here.run(counting, id="c-1")
    here.values("n").put("b", 2)
    here.values("n").put("d", 2)
    assert here.run(counting, id="c-1") == [None, 3, True, 1, ["a", "b", "d"]]
    assert [each.value for each in here.values("n").history("a")] == [1]
    here.values("n").put("a", 50)
    assert here.run(counting, id="c-1")[0] is None
    assert here.replay("c-1").same


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_change_that_the_task_did_not_get_to_record_is_not_made_again(here, change, monkeypatch):
    """The process dies after the namespace has the change and before the task's log says so."""
    from holdfast.agent import flow

    @task
    def changing() -> int:
        return values("n").put("a", 1) if change == "put" else values("n").delete("a")

    here.values("n").put("a", 0)
    record = flow._record

    def die(*args):
        monkeypatch.setattr(flow, "_record", record)
        raise Crash

    monkeypatch.setattr(flow, "_record", die)
    with pytest.raises(Crash):
        here.run(changing, id="c-1")
    assert here.run(changing, id="c-1") == {"put": 3, "delete": 1}[change]
    assert len(here.values("n").history("a")) == 2


def test_async_code_does_not_wait_on_the_loop(here):
    @task
    async def reading() -> list[object]:
        n: Any = values("n", of=int)
        await n.aput("b", 2)
        await asyncio.gather(n.put("c", 3), n.aput("d", 4))
        return [await n.get("a"), await n.aget_many(["b"]), await n.akeys(), await n.adelete("a")]

    async def main() -> object:
        n = here.values("n")
        await n.aput_many({"a": 1})
        assert (await n.aentry("a")).value == 1 and [e.key for e in await n.aentries()] == ["a"]
        return await here.arun(reading, id="r-1")

    assert asyncio.run(main()) == [1, {"b": 2}, ["a", "b", "c", "d"], 1]
    assert asyncio.run(here.arun(reading, id="r-1"))[0] == 1


def test_drop_is_not_for_tasks(here):
    @task
    def dropping() -> None:
        values("n").drop()

    with pytest.raises(Exception, match="outside of tasks"):
        here.run(dropping)


KILLED = """
import os, signal, sys
from holdfast import Holdfast
hf = Holdfast(sys.argv[1])
for number in range(1000):
    hf.values("n").put("a", number)
    print(number, flush=True)
    if number == 20:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", LASTING)
def test_what_was_acknowledged_is_there_after_a_kill(new_url, kind):  # noqa: F811
    url = new_url(kind)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, url], capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[-1] == "20"
    with Holdfast(url, lease_s=1) as hf:
        assert hf.values("n").get("a") == 20
        assert len(hf.values("n").history("a")) == 21 and hf.verify().sound


def test_the_clock_is_the_one_that_was_given():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with Holdfast("memory://", clock=Clock(at)) as hf:
        hf.values("n").put("a", 1, lifetime_s=60)
        entry = hf.values("n").entry("a")
        assert entry.expires_at - entry.at <= timedelta(seconds=60)
