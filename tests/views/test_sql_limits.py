"""A query takes no more time and memory than it may, whatever it does."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from holdfast import BadInput, Holdfast
from holdfast.views.sql import MEMORY_BYTES
from tests.thorough import THOROUGH
from tests.views.sql_tasks import record

NUMBERS = "with recursive n(x) as (select 1 union all select x + 1 from n) "
DOUBLED = (
    "with a as (select 1 x), "
    + ", ".join(
        f"{b} as (select x from {a} union all select x from {a})"
        for a, b in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
    )
    + " select count(*) from u"
)
"""Each name stands for two of the one before it, a million in all, and all are compiled."""

GREEDY = {
    "zeroblob": "select length(hex(zeroblob(60000000))) + length(hex(zeroblob(50000000)))",
    "blobs in rows": NUMBERS + "select zeroblob(100000000) from n",
    "printf": "select length(printf('%.*c', 900000000, 'x'))",
    "printf in rows": NUMBERS + "select printf('%.*c', 100000000, 'x') from n",
    "group_concat": NUMBERS + "select length(group_concat(printf('%.*c', 1000000, 'x'))) from n",
    "json_group_array": NUMBERS + "select length(json_group_array(hex(randomblob(99999)))) from n",
    "replace": (
        "select length(replace(replace(printf('%.*c', 10000, 'x'), 'x', printf('%.*c', 10000, 'x'))"
        ", 'x', 'yy'))"
    ),
    "replace, slowly": NUMBERS
    + "select sum(length(replace(printf('%.*c', 10000000, 'xx'), 'x', 'yyyyyy'))) from n",
    "randomblob": NUMBERS + "select count(distinct hex(randomblob(1000000))) from n",
    "like": "select printf('%.*c', 10000, 'a') like replace(printf('%.*c', 20, 'x'), 'x', '%a') "
    "|| '%b'",
    "glob": "select printf('%.*c', 10000, 'a') glob replace(printf('%.*c', 20, 'x'), 'x', '*a') "
    "|| '*b'",
    "instr": "select instr(printf('%.*c', 20000000, 'a'), printf('%.*c', 9000000, 'a') || 'b')",
    "order by": NUMBERS + "select * from (select x, hex(randomblob(1000)) y from n) order by y",
    "distinct": NUMBERS + "select count(*) from (select distinct hex(randomblob(1000)) from n)",
    "sorted join": "select a.event from events a, events b, events c, events d, events e "
    "order by b.event || c.event || d.event || e.event",
    "window": NUMBERS + "select group_concat(x) over (order by -x) from n",
    "materialized": NUMBERS + "select count(*) from n a join n b on a.x = -b.x",
    "compiling": DOUBLED,
}

CHILD = """
import json, re, resource, sys, time
from pathlib import Path
from holdfast import BadInput, Holdfast
with Holdfast(sys.argv[1]) as hf:
    hf.sql("select 1")
    began, what = time.monotonic(), "answered"
    try:
        hf.sql(sys.argv[2], timeout_s=float(sys.argv[3]))
    except BadInput as error:
        what = str(error)
    took_s = time.monotonic() - began
# Not `ru_maxrss`, which begins with what the process that started this one has.
here = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
there = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([what, took_s, here, there]))
"""

TIMEOUT_S = 2.0 if THOROUGH else 0.5
AT_MOST_S = 30.0
"""Much more than is needed, and much less than the queries would take: other tests run as well."""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("greedy") / "store"
    with Holdfast(place) as hf:
        record(hf)
    return str(place)


def asked(store: str, query: str) -> tuple[str, float, int, int]:
    """What came of a query; how long it took; the peak memory of the asking process and its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, store, query, str(TIMEOUT_S)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    what, took_s, here_kib, there_kib = json.loads(done.stdout)
    return what, took_s, here_kib << 10, there_kib << 10


@pytest.mark.parametrize("name", GREEDY)
def test_a_greedy_query_keeps_its_time_and_its_memory(store, name):
    what, took_s, here, there = asked(store, GREEDY[name])
    limits = (f"took longer than {TIMEOUT_S:g} s", "MiB of memory", "too big", "MiB (")
    assert what == "answered" or any(words in what for words in limits), what
    assert took_s < AT_MOST_S, what
    assert there < 1.3 * MEMORY_BYTES, what
    assert here < 1.3 * MEMORY_BYTES, what


def test_an_answer_without_end_does_not_fill_the_memory_of_the_asking_process(store):
    what, _, here, _ = asked(store, NUMBERS + "select x, 'some text' from n")
    assert "the answer takes more than 256 MiB" in what or "took longer" in what
    assert here < MEMORY_BYTES


def test_a_query_with_little_time_is_stopped_in_the_middle_of_an_instruction(store):
    with Holdfast(store) as hf:
        hf.sql("select 1")
        began = time.monotonic()
        with pytest.raises(BadInput, match=r"took longer than 0\.2 s"):
            hf.sql(GREEDY["instr"], timeout_s=0.2)
        assert time.monotonic() - began < AT_MOST_S


def test_a_store_in_sqlite_is_not_limited_by_a_query(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path}/s.db") as hf:
        record(hf)
        with pytest.raises(BadInput):
            hf.sql(GREEDY["order by"], timeout_s=1)
        id = hf.memory.remember("as before").id
        assert hf.sql("select text from memories where id = ?", [id]).rows == (("as before",),)


def test_no_process_is_left_behind(store):
    from holdfast.views.sql import asked as ask

    with Holdfast(store) as hf, ask(hf.store, NUMBERS + "select x from n", filters={}) as answer:
        process = answer._process._process
        next(iter(answer))
        assert process.poll() is None
    assert process.poll() is not None
