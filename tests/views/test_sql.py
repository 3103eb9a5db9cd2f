"""`hf.sql`: any question about the logs, and nothing but questions."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import BadInput, Holdfast, checkpoint, restore, step, task
from holdfast.stores.memory import MemoryStore
from holdfast.views.sql.tables import TABLES, reference, schema
from tests.views.sql_tasks import LARGE, record

ROOT = Path(__file__).parents[2]
BOMB = "with recursive n(x) as (select 1 union all select x + 1 from n) "


@pytest.fixture(scope="module")
def hf():
    with Holdfast("memory://") as hf:
        record(hf)
        yield hf


def one(hf, query, *parameters):
    [row] = hf.sql(query, parameters).rows
    return row


# What is there


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_rows_and_every_column_can_be_asked_for_alone(hf, table):
    found = hf.sql(f"select * from {table}")
    assert found.columns == tuple(column.name for column in TABLES[table].columns)
    assert not found.unreadable
    assert len(found) > 0
    for place, column in enumerate(found.columns):
        alone = hf.sql(f'select "{column}" from {table}')
        assert [row[0] for row in alone] == [row[place] for row in found], column


@pytest.mark.parametrize("table", TABLES)
def test_what_is_said_to_be_json_is_json_and_what_is_said_to_be_a_time_is_one(hf, table):
    for column in TABLES[table].columns:
        values = [row[0] for row in hf.sql(f'select "{column.name}" from {table}')]
        there = [value for value in values if value is not None]
        if column.kind in ("json", "value"):
            for value in there:
                json.loads(value)
        elif column.kind == "time":
            query = f'select count(*) from {table} where julianday("{column.name}") > 2450000'
            assert one(hf, query) == (len(there),)
        else:
            kinds = {"text": str, "integer": int, "real": float}
            assert {type(value) for value in there} <= {kinds[column.kind]}


def test_steps_are_what_the_view_of_the_task_says(hf):
    view = hf.task("all-1")
    rows = hf.sql(
        "select path, name, kind, status, attempts, key, duration_s from steps where task_id = ?",
        ["all-1"],
    )
    assert list(rows) == [
        (
            c.path,
            c.name,
            c.kind,
            c.status,
            len(c.attempts),
            c.key,
            (c.ended_at - c.at).total_seconds() if c.ended_at else None,
        )
        for c in view.calls
    ]
    outputs = dict(hf.sql("select path, output from steps where task_id = 'all-1'").rows)
    for output in view.outputs:
        assert json.loads(outputs[output.path]) == output.output


def test_tools_are_the_steps_that_touch_the_world(hf):
    tools = hf.sql("select task_id, path, key from tool_calls").rows
    assert tools == hf.sql("select task_id, path, key from steps where kind = 'tool'").rows
    assert [task for task, _, _ in tools] == ["all-1"]


def test_attempts_and_failures_tell_of_every_try(hf):
    query = "select number, failure from attempts where name = 'sql_weigh'"
    away = "ConnectionError: the scale is away"
    assert hf.sql(query).rows == ((1, away), (2, away), (3, None))
    query = (
        "select path, type, message, attempt, input ->> '$.grams' from failures order by task_id"
    )
    path = one(hf, "select path from steps where name = 'sql_weigh'")[0]
    assert hf.sql(query).rows == (
        (path, "ConnectionError", "the scale is away", 1, 13),
        (path, "ConnectionError", "the scale is away", 2, 13),
        ("", "LookupError", "no such port", 0, None),
    )
    assert "LookupError" in one(hf, "select failure from tasks where id = 'broken-1'")[0]


def test_decisions_messages_and_model_calls(hf):
    assert one(hf, "select name, choice ->> '$', options ->> '$[1]', because from decisions") == (
        ("way", "post", "van", "cheaper")
    )
    said = hf.sql("select number, role, text, task_id, model, input_tokens, pinned from messages")
    assert said.rows[0][:4] == (1, "user", "A long story, part 0, and so on, and so on", "")
    assert said.rows[-1] == (5, "assistant", "Hello, Ada.", "talk-1", "a-model", 7, 0)
    assert [row[-1] for row in said] == [1, 0, 0, 0, 0]
    query = "select name, model, input_tokens, output_tokens, cost from model_calls"
    assert one(hf, query) == ("sql_model", "a-model", 100, 20, 0.5)


def test_files_questions_and_plans(hf):
    files = hf.sql("select name, newest, size_bytes from files").rows
    assert files == (("label.txt", 0, 4), ("label.txt", 1, 6))
    query = "select id, question, answer ->> '$', status, answered_by is not null from questions"
    assert one(hf, query) == ("who", "Who gets it?", "Ada", "completed", 1)
    plan = hf.sql("select number, text from plans where newest").rows
    assert plan == ((1, "weigh"), (2, "send"))


def test_a_large_value_is_given_whole(hf):
    query = "select length(output), output ->> '$' from steps where name = 'sql_large'"
    assert one(hf, query) == (len(LARGE) + 2, LARGE)


@step
def sql_answer(messages: list[str]) -> int:
    return len(messages)


@task
def sql_growing(turns: int) -> int:
    said: list[str] = restore({"said": []})["said"]
    for n in range(turns):
        said.append(f"message {n}: " + "and so on " * 40)
        sql_answer(said)
        if n == turns // 2:
            checkpoint({"said": said})
    return len(said)


def test_a_list_that_grew_is_whole_in_every_row():
    with Holdfast("memory://") as hf:
        hf.run(sql_growing, 30, id="growing")
        outputs = hf.task("growing").outputs
        rows = hf.sql("select path, input from steps order by seq").rows
        assert [(path, json.loads(value)) for path, value in rows] == [
            (output.path, output.input) for output in outputs
        ]
        query = "select max(json_array_length(input, '$.messages')) from steps"
        assert one(hf, query) == (30,)
        assert b'"$lists"' in b"".join(hf.store.read("tasks/growing"))


def test_events_are_the_log(hf):
    events = hf.sql("select seq, type from events where task_id = 'all-1' order by seq")
    log = [(event.seq, event.__struct_config__.tag) for event in hf.task("all-1").events()]
    assert list(events) == log


def test_times_compare_with_those_of_sqlite_and_of_python(hf):
    query = "select count(*) from tasks where created_at > datetime('now', '-1 hour')"
    assert one(hf, query) == (3,)
    before = datetime.now(UTC) - timedelta(hours=1)
    assert one(hf, "select count(*) from tasks where created_at < ?", before) == (0,)


def test_tables_can_be_joined_grouped_and_used_twice(hf):
    query = """
        with slow as (select task_id, max(duration_s) as most_s from steps group by task_id)
        select t.type, count(*), slow.most_s is not null
        from tasks t join steps s on s.task_id = t.id left join slow on slow.task_id = t.id
        where exists (select 1 from decisions d where d.task_id = t.id)
        group by t.type
    """
    calls = len(hf.task("all-1").calls)
    assert one(hf, query) == ("sql_everything", calls, 1)
    assert one(hf, "select value from json_each(?) limit 1", "[7]") == (7,)


# What is read for it


class Counting(MemoryStore):
    """A store that knows what was read of it."""

    def __init__(self):
        super().__init__()
        self.blobs_read = 0
        self.logs_read: list[str] = []

    def get_blob(self, name, *, checked=True):
        self.blobs_read += 1
        return super().get_blob(name, checked=checked)

    def read(self, stream, after_seq=0, **how):
        self.logs_read.append(stream)
        return super().read(stream, after_seq, **how)


@pytest.fixture
def counting():
    with Holdfast(Counting()) as hf:
        record(hf)
        hf.store.blobs_read, hf.store.logs_read[:] = 0, []
        yield hf


def test_a_blob_is_fetched_for_the_rows_that_are_wanted_and_for_no_other(counting):
    counting.sql("select name, status, attempts from steps")
    counting.sql("select output from steps where name = 'sql_weigh'")
    counting.sql("select count(*) from steps")
    assert counting.store.blobs_read == 0
    counting.sql("select output, length(output) from steps where name = 'sql_large'")
    assert counting.store.blobs_read == 1


def test_what_the_index_knows_needs_no_log(counting):
    counted = counting.sql("select type, status, labels, count(*) from tasks group by 1 order by 1")
    assert [row[1:] for row in counted][1] == ("completed", '{"team":"post"}', 1)
    assert counting.store.logs_read == []
    counting.sql("select count(*) from sessions")
    assert counting.store.logs_read == ["sessions/chat-sql"]


def test_filters_say_which_logs_are_read(counting):
    found = counting.sql("select distinct task_id from steps", type="sql_everything")
    assert found.rows == (("all-1",),)
    assert set(counting.store.logs_read) == {"tasks/all-1"}
    assert counting.sql("select id from sessions", type="sql_talks").rows == (("chat-sql",),)
    assert counting.sql("select id from sessions", type="sql_breaks").rows == ()
    assert counting.sql("select id from sessions", session="chat-sql").rows == (("chat-sql",),)
    with pytest.raises(BadInput, match="can't be looked for by 'colour'"):
        counting.sql("select 1 from tasks", colour="red")


# What is refused


@pytest.mark.parametrize(
    "query",
    [
        "insert into tasks (id) values ('x')",
        "update tasks set status = 'failed'",
        "delete from tasks",
        "with x as (select 1) delete from tasks",
        "with x as (select 1) insert into _tasks (id) select 1 from x",
        "explain delete from tasks",
        "replace into tasks (id) values (1)",
        "drop view tasks",
        "drop table _tasks",
        "create table x (a)",
        "create temp table x (a)",
        "create temp view x as select 1",
        "create virtual table x using fts5(a)",
        "alter table _tasks add column x",
        "attach 'FILE' as other",
        "detach main",
        "vacuum",
        "vacuum into 'FILE'",
        "/* a */ -- b\n vacuum into 'FILE'",
        "explain vacuum into 'FILE'",
        "reindex",
        "analyze",
        "pragma writable_schema = on",
        "pragma table_info(tasks)",
        "select * from pragma_table_info('tasks')",
        "select count(*) from pragma_database_list",
        "select * from dbstat",
        "begin",
        "savepoint x",
        "select load_extension('FILE')",
        "select fts3_tokenizer('simple')",
    ],
)
def test_nothing_but_reading_is_allowed(hf, query, tmp_path):
    file = tmp_path / "made"
    with pytest.raises(BadInput) as caught:
        hf.sql(query.replace("FILE", str(file)))
    unknown = ("no such table: dbstat", "no such function: fts3_tokenizer")
    assert "read only" in str(caught.value) or any(each in str(caught.value) for each in unknown)
    assert not file.exists()
    assert len(hf.sql("select * from tasks")) == 3


def test_a_query_that_never_ends_is_stopped(hf):
    with pytest.raises(BadInput, match=r"took longer than 0\.05 s, and was stopped.*--timeout"):
        hf.sql(BOMB + "select count(*) from n", timeout_s=0.05)
    with pytest.raises(BadInput, match="took longer"):
        hf.sql("select count(*) from steps a, steps b, steps c, steps d, steps e, steps f, steps g",
               timeout_s=0.05)  # fmt: skip
    assert hf.sql("select 1").rows == ((1,),)


def test_rows_without_end_end_at_the_limit(hf):
    found = hf.sql(BOMB + "select x from n", limit=3)
    assert (found.rows, found.more) == (((1,), (2,), (3,)), True)
    assert not hf.sql("select 1", limit=1).more


def test_time_that_the_reader_takes_does_not_count(hf):
    from holdfast.views.sql import asked

    many = BOMB + "select x from n limit 500000"
    with asked(hf.store, many, timeout_s=30, filters={}) as answer:
        rows = iter(answer)
        next(rows)
        left_s = answer._process._left_s
        time.sleep(1)  # the time that passes is what is tried here
        next(rows)
        assert answer._process._left_s == left_s  # of the same batch
        assert len(list(rows)) == 499_998


def test_an_interrupt_in_the_middle_of_a_query_is_one(hf):
    def pressed(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, pressed)
    us = threading.get_ident()
    press = threading.Timer(0.5, lambda: signal.pthread_kill(us, signal.SIGUSR1))
    try:
        with pytest.raises(KeyboardInterrupt):
            press.start()
            hf.sql(BOMB + "select count(*) from n", timeout_s=60)
    finally:
        press.join()
        signal.signal(signal.SIGUSR1, before)


def test_texts_can_not_be_made_without_end(hf):
    with pytest.raises(BadInput, match="too big"):
        hf.sql("select zeroblob(900000000)")


# What is wrong is said


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("selct 1", 'near "selct": syntax error (column 1)\n  selct 1\n  ^'),
        (
            "select from1, 1\nfrom tasks from steps",
            f'near "from": syntax error (line 2, column 12)\n  from tasks from steps\n{" " * 13}^',
        ),
        ("select * from taks", "did you mean tasks? There are: tasks, steps, tool_calls, "),
        ("select stats from tasks", "did you mean status? There are in tasks: id, type, status, "),
        ("select tasks.absent from tasks", "no such column: tasks.absent (column 14)"),
        ("select absent(1)", "no such function: absent (column 8)"),
        ("select 'abc", "unrecognized token"),
        ("select 1 union", "incomplete input"),
        ("select 1; select 2", "one query at a time"),
        ("select ?", "uses 1, and there are 0 supplied"),
        ("", "there is no query"),
        ("-- nothing", "there is no query"),
        ("select \0 1", "null character"),
        ("select '\udc80'", "must be a text"),
        (7, "must be a text"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_told_with_what_is_wrong_and_where(hf, query, says):
    with pytest.raises(BadInput) as caught:
        hf.sql(query)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("trip-1", "give a list of values"),
        (7, "give a list of values"),
        ([object()], "SQLite takes texts"),
        ([1, 2], "uses 1, and there are 2 supplied"),
        ([2**70], "more than 64 bits"),
        ([10**5000], "more than 64 bits"),
        (["\udc80"], "SQLite can't take it"),
        ({"other": 1}, "supply a value"),
    ],
)
def test_wrong_parameters_are_told(hf, parameters, says):
    query = "select :x" if isinstance(parameters, dict) else "select ?"
    with pytest.raises(BadInput) as caught:
        hf.sql(query, parameters)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": "3"}, {"timeout_s": 0}, {"timeout_s": "5"}]
)
def test_wrong_options_are_told(hf, options):
    with pytest.raises(BadInput, match="must be"):
        hf.sql("select 1", **options)


def test_parameters_are_values_and_never_sql(hf):
    hostile = "x' or 1=1; drop table _tasks --"
    assert hf.sql("select id from tasks where id = ?", [hostile]).rows == ()
    assert one(hf, "select ?", hostile) == (hostile,)
    assert hf.sql("select :a, :b", {"a": 1, "b": None}).rows == ((1, None),)
    assert hf.sql("select ?, ?", [True, b"\xff"]).rows == ((1, b"\xff"),)


def test_a_long_row_of_comments_is_read_in_no_time(hf):
    with pytest.raises(BadInput, match="there is no query"):
        hf.sql("/**/" * 5000)
    assert one(hf, " \n" * 5000 + "/**/" * 5000 + "select 1") == (1,)


def test_columns_of_the_same_name_are_told_apart(hf):
    found = hf.sql("select 1 as a, 2 as a, 3 as a_2")
    assert found.columns == ("a", "a", "a_2")
    assert found.dicts() == [{"a": 1, "a_2": 2, "a_2_2": 3}]


# What explains it


def test_the_reference_page_is_current():
    page = ROOT / "docs/reference/sql.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        "make it again: python -m holdfast.views.sql.tables > docs/reference/sql.md"
    )


def test_the_schema_is_sql_and_explains_every_column():
    lines = schema().splitlines()
    for table in TABLES.values():
        assert f"create view {table.name} (" in lines
        for column in table.columns:
            assert column.about.endswith((".", "…"))
            assert any(line.strip().startswith(column.name) and column.about in line
                       for line in lines)  # fmt: skip
    db = sqlite3.connect(":memory:")
    db.executescript(schema().replace("create view", "create table"))
    db.close()


def test_no_name_needs_quotes(hf):
    for table in TABLES.values():
        names = ", ".join(f"{table.name}.{column.name}" for column in table.columns)
        alone = ", ".join(column.name for column in table.columns)
        hf.sql(f"select {names} from {table.name}")
        hf.sql(f"select {alone} from {table.name}")
