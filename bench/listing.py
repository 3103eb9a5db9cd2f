"""How long a page of a list takes, among many tasks, by several filters.

`python -m bench.listing fill URL N` makes a store of N tasks, `python -m bench.listing time URL`
times pages of 50 of it and prints milliseconds as JSON. The tasks have facts, as lists need them,
and logs of one line: no log is read here. Half of them are of one user, 20 failed, and 5 have a
rare label.
"""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from holdfast import Holdfast
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores import open_store
from holdfast.stores.port import Facts

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 7
QUERIES: dict[str, dict[str, Any]] = {
    "newest": {},
    "type": {"type": "plan_1"},
    "status: most": {"status": "completed"},
    "status: 20 tasks": {"status": "failed"},
    "status: any of 3": {"status": ["failed", "cancelled", "paused"]},
    "user: half of all": {"user": "everybody"},
    "user: a few": {"user": "user 77"},
    "session": {"session": "session 333"},
    "label: a tenth": {"labels": {"team": "team 3"}},
    "label: 5 tasks": {"labels": {"rare": "yes"}},
    "user and status": {"user": "everybody", "status": "failed"},
    "label and status": {"labels": {"team": "team 0"}, "status": "failed"},
    "created: a day": {
        "created_after": BEGIN + timedelta(days=2),
        "created_before": BEGIN + timedelta(days=3),
    },
    "updated: none": {"updated_after": BEGIN + timedelta(days=9999)},
    "nothing matches": {"user": "nobody", "labels": {"no": "such"}},
}


def tasks(count: int) -> Iterator[tuple[str, Facts]]:
    """The names of tasks, and what is to be known of them."""
    rare = count // 5
    for n in range(count):
        at = BEGIN + timedelta(minutes=n)
        labels = {"team": f"team {n % 10}"} | ({"rare": "yes"} if n % rare == rare // 2 else {})
        yield (
            f"tasks/task-{n * 7919 % 1_000_003:06}",
            Facts(
                task=f"plan_{n % 3}",
                status="failed" if n % (count // 20) == 7 else "completed",
                user="everybody" if n % 2 else f"user {n % 1000 + 1}",
                session=f"session {n // 10}",
                labels=labels,
                created_at=at,
                updated_at=at,
            ),
        )


def fill(url: str, count: int) -> None:
    open_store(url, sync=False).close()
    if url.startswith("sqlite:///"):
        fill_sqlite(url.removeprefix("sqlite:///"), count)
    elif url.startswith("postgres"):
        fill_postgres(url, count)
    else:
        fill_by_appends(url, count)


def fill_by_appends(url: str, count: int) -> None:
    store = open_store(url, sync=False)
    for stream, facts in tasks(count):
        lease = acquire_one(store, stream, "bench", 60)
        line = {"type": "noted", "id": stream.removeprefix("tasks/"), "seq": 1}
        store.append(lease, 0, [json.dumps(line).encode()], facts)
        sync_one(store, lease)  # by which the index is told
        store.release([lease])
    store.close()


def fill_sqlite(path: str, count: int) -> None:
    import sqlite3

    from holdfast.stores.sqlite.rows import columns_of

    rows = [
        {"id": n, "name": name, **columns_of(facts)}
        for n, (name, facts) in enumerate(tasks(count), 1)
    ]
    labels = [
        (name, value, row["created_at"], row["id"])
        for row in rows
        for name, value in json.loads(row["labels"]).items()
    ]
    conn = sqlite3.connect(path)
    with conn:
        columns = list(rows[0])
        values = ", ".join(f":{name}" for name in columns)
        conn.executemany(
            f"insert into streams ({', '.join(columns)}, head) values ({values}, 1)", rows
        )
        conn.executemany("insert into labels values (?, ?, ?, ?)", labels)
    conn.close()


def fill_postgres(url: str, count: int) -> None:
    import psycopg

    from holdfast.stores.queries import columns_of

    with psycopg.connect(url, autocommit=True) as conn:
        names = ", ".join(f'"{name}"' for name in columns_of(Facts()))
        with conn.cursor().copy(f"copy holdfast.streams (name, head, {names}) from stdin") as copy:
            for stream, facts in tasks(count):
                columns = columns_of(facts)
                columns["labels"] = json.dumps(facts.labels)
                copy.write_row((stream, 1, *columns.values()))
        conn.execute("analyze holdfast.streams")  # as the server does by itself after a minute


def measure(url: str) -> dict[str, Any]:
    start = time.perf_counter()
    with Holdfast(url) as hf:
        hf.page(status="failed")
        first = time.perf_counter() - start
        found = {name: page_ms(hf, **filters) for name, filters in QUERIES.items()}
        cursor = None
        for _ in range(20):
            cursor = hf.page(limit=100, cursor=cursor).next
        found["page after 2,000"] = page_ms(hf, cursor=cursor)
    return {"first_ms": 1000 * first, "pages": found}


def page_ms(hf: Holdfast, **given: Any) -> float:
    """The median of several."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        hf.page(**given)
        times.append(1000 * (time.perf_counter() - start))
    return median(times)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(measure(sys.argv[2])))
