"""SQL gives the same answer on every store, and an answer where a log is damaged."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.support.agent import converse, make_agent, work_for
from examples.support.script import script
from examples.support.shop import Shop
from examples.trip import agent as trip
from examples.trip.client import World, start_world
from holdfast import Holdfast, Keys, step, task, tool
from holdfast.agent import user
from holdfast.agent.adapters import OpenAIChat
from holdfast.codec.tags import readable
from holdfast.testing.scripted import ScriptedModel
from holdfast.views.sql.tables import TABLES
from tests.stores.every import KINDS, new_url, postgres_server
from tests.views.sql_tasks import record

__all__ = ["new_url", "postgres_server"]

SECURED = {"encrypted": ("key",), "signed": ("sign_key",), "both": ("key", "sign_key")}


def everything(hf) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for table in TABLES:
        rows = hf.sql(f"select * from {table}")
        assert not rows.unreadable
        found[table] = sorted(rows, key=repr)
    return found


@pytest.fixture(scope="module")
def recorded():
    with Holdfast("memory://") as hf:
        record(hf)
        yield hf


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_gives_the_same_answer(recorded, new_url, kind):
    with Holdfast(new_url(kind)) as other:
        recorded.copy_to(other)
        assert everything(other) == everything(recorded)


@pytest.mark.parametrize("kind", SECURED)
def test_so_does_one_that_is_encrypted_or_signed(recorded, tmp_path, kind):
    keys = {name: Keys.new() for name in SECURED[kind]}
    with Holdfast(tmp_path / "store", **keys) as other:
        recorded.copy_to(other)
        assert everything(other) == everything(recorded)
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("kind", KINDS)
def test_who_holds_a_task_is_told_and_until_when(new_url, kind):
    with Holdfast(new_url(kind), lease_s=60) as hf:

        @step
        def sql_held() -> list[list[str]]:
            rows = hf.sql("select at_work, lease_until from tasks").rows
            return [[str(each) for each in row] for row in rows]

        @task
        def sql_holds() -> list[list[str]]:
            return sql_held()

        begun = datetime.now(UTC).replace(tzinfo=None)
        [[who, until]] = hf.run(sql_holds, id="t")
        assert who == hf.task("t").state.owner
        left_s = (datetime.fromisoformat(until) - begun).total_seconds()
        assert 30 < left_s < 120
        assert list(hf.sql("select at_work, lease_until from tasks").rows) == [(None, None)]


# Forks


@step
def sql_guess(room: str) -> int:
    return 120


@tool
def sql_order(room: str) -> str:
    return f"ordered {room}"


@task
def sql_quote(room: str) -> str:
    return f"{sql_order(room)} for {sql_guess(room)}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_has_what_it_shares_and_says_so(new_url, kind):
    with Holdfast(new_url(kind)) as hf:
        hf.run(sql_quote, "attic", id="quote")
        hf.fork("quote", at=2, effects="reuse", new_id="other", results={"1": "nothing"})
        hf.resume("other")
        steps = "select path, output ->> '$', shared, adopted from steps where task_id = ?"
        assert hf.sql(steps, ["quote"]).rows == (("1", "ordered attic", 0, ""), ("2", 120, 0, ""))
        assert hf.sql(steps, ["other"]).rows == (
            ("1", "nothing", 1, "edited"),
            ("2", 120, 0, ""),
        )
        for more in ("", ", events"):  # by the index, and by the logs
            forks = hf.sql(f"select id, origin {more} from tasks where origin != ''")
            assert [row[:2] for row in forks] == [("other", "quote")]
        [(origin_seq, shared)] = hf.sql(
            "select origin_seq, (select max(seq) from events where task_id = id and shared) "
            "from tasks where id = 'other'"
        ).rows
        assert origin_seq == shared > 0
        assert [row[0] for row in hf.sql("select id from tasks", origin="quote")] == ["other"]


def test_what_was_rewound_is_no_step_any_more_and_stays_an_event():
    with Holdfast("memory://") as hf:
        hf.run(sql_quote, "cellar", id="back")
        before = hf.sql("select count(*) from events").rows[0][0]
        hf.rewind("back", to=2, when="before")
        assert hf.sql("select path from steps").rows == (("1",),)
        assert hf.sql("select rewinds, status from tasks").rows == ((1, "paused"),)
        assert hf.sql("select count(*) from events").rows[0][0] > before


def test_a_damaged_original_is_told_of_with_its_forks(tmp_path):
    with Holdfast(tmp_path / "store") as hf:
        hf.run(sql_quote, "attic", id="quote")
        hf.fork("quote", at=2, effects="reuse", new_id="other")
        hf.run(sql_quote, "loft", id="whole")
    change(tmp_path / "store/tasks/quote/events.jsonl", b"ordered attic", b"ordered addic")
    with Holdfast(tmp_path / "store") as hf:
        found = hf.sql("select distinct task_id from steps")
        assert found.rows == (("whole",),)
        assert len(found.unreadable) == 2


# The examples


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The trip and the support agent, as they run."""
    from openai import OpenAI

    folder = tmp_path_factory.mktemp("examples")
    with start_world(folder / "world.db") as (_, url), Holdfast(folder / "store") as hf:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trip, "world", World(url))
            hf.run(trip.plan_trip, trip.CITY, trip.GUEST, id=trip.TRIP)
        work_for(Shop(url))
        with ScriptedModel(script) as server, OpenAI(api_key="none", base_url=server.url) as client:
            agent = make_agent(OpenAIChat(client, "scripted"), budget_tokens=1800)
            for _ in converse(hf, agent, lambda question: "Yes, please."):
                pass
        yield hf


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_every_table_can_be_had_of_the_examples(examples, table):
    found = examples.sql(f"select * from {table}")
    assert found.columns == tuple(column.name for column in TABLES[table].columns)
    assert not found.unreadable
    assert bool(len(found)) == (table not in ("notes", "facts", "files", "memories"))
    for column in TABLES[table].columns:
        if column.kind in ("json", "value"):
            for (value,) in examples.sql(f"select {column.name} from {table}"):
                assert value is None or json.loads(value) is not ...


def test_questions_about_the_examples_are_answered(examples):
    tried = examples.sql("select task_id, name, attempts from steps where attempts > 1").rows
    assert tried == ((trip.TRIP, "check_weather", 3),)
    tools = examples.sql("select name, status from tool_calls order by started_at").rows
    names = ["book_hotel", "pay", "send_invite", "send_mail", "refund", "send_email"]
    assert tools == tuple((name, "completed") for name in names)
    chosen = examples.sql("select choice ->> '$.hotel' from decisions where name = 'hotel'")
    assert chosen.rows[0][0] == examples.task(trip.TRIP).decisions[1].choice["hotel"]
    asked = examples.sql("select task_id, answer ->> '$' from questions").rows
    assert asked == (("refund-it", "Yes, please."),)
    [(calls, read)] = examples.sql("select count(*), sum(input_tokens) from model_calls").rows
    [(said,)] = examples.sql("select sum(input_tokens) from messages").rows
    assert calls == 11  # the one that summarized is among them
    assert read >= said > 0


# Damage


@pytest.fixture
def folder(recorded, tmp_path):
    with Holdfast(tmp_path / "store") as hf:
        recorded.copy_to(hf)
    return tmp_path / "store"


def change(path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_a_damaged_log_is_named_and_all_else_is_answered(folder):
    change(folder / "tasks/all-1/events.jsonl", b"cheaper", b"dearer!")
    with Holdfast(folder) as hf:
        found = hf.sql("select distinct task_id from events order by 1")
        assert found.rows == (("broken-1",), ("talk-1",))
        [error] = found.unreadable
        assert "tasks/all-1" in str(error)
        assert hf.sql("select count(*) from decisions").rows == ((0,),)
        assert hf.sql("select text from messages where number = 5").rows == (("Hello, Ada.",),)
        assert not hf.sql("select id from sessions").unreadable


def test_a_damaged_session_is_named_too(folder):
    change(folder / "sessions/chat-sql/events.jsonl", b"part 2", b"part 7")
    with Holdfast(folder) as hf:
        found = hf.sql("select count(*) from messages")
        assert found.rows == ((0,),)
        assert "sessions/chat-sql" in str(found.unreadable[0])
        assert len(hf.sql("select * from tasks")) == 3


def test_a_value_that_is_gone_is_null_and_named(folder):
    with Holdfast(folder) as hf:
        size = {blob.digest: blob.size_bytes for blob in hf.store.blobs()}
        large = max(size, key=lambda digest: size[digest])
        assert hf.store.delete_blob(large, 0)
        query = "select name, output is null from steps where name in ('sql_large', 'sql_weigh')"
        found = hf.sql(query)
        assert found.rows == (("sql_weigh", 0), ("sql_large", 1))
        [error] = found.unreadable
        assert "tasks/all-1" in str(error) and large in str(error)
        assert not hf.sql("select name from steps").unreadable


# Values


@step
def sql_echo(value: object) -> object:
    return value


@task
def sql_hostile(value: object) -> object:
    return sql_echo(value)


HOSTILE = [
    "'; drop table _steps; --",
    "\x1b[31mred\x00nul\u202e",
    "😀 Ωmega \ue000",
    10**30,
    -(2**63),
    float("inf"),
    1e308,
    b"\xff\x00",
    {"$blob": "x", "size_bytes": 1},
    {"$lists": [], "value": 1},
    {'a"b': {"c.d": [None, True]}},
    [[[[[[[[[["deep"]]]]]]]]]],
    list(range(3000)),
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_any_value_comes_back_as_the_log_has_it(value):
    with Holdfast("memory://") as hf:
        hf.run(sql_hostile, value, id="h", user="x' or '1'='1")
        output = hf.task("h").outputs[0]
        [(got_input, got_output, result)] = hf.sql(
            "select s.input, s.output, t.result from steps s join tasks t on t.id = s.task_id"
        ).rows
    assert got_output == result
    assert readable(json.loads(got_output)) == output.output
    assert readable(json.loads(got_input)) == output.input


def test_what_anybody_may_have_written_into_a_message_is_no_harm():
    with Holdfast("memory://") as hf:
        chat = hf.session("s")
        for tokens in (2**63, -1, 10**18, "many", None, True, [1]):
            chat.say(user("x", meta={"usage": {"input_tokens": tokens}, "model": ["m"]}))
        chat.say(user("\x00\x1b", meta={"usage": [1]}, name="'\";--"))
        found = hf.sql("select input_tokens, model from messages")
        assert [row for row in found if row != (None, None)] == [(10**18, None)]
        assert not found.unreadable
        assert hf.sql("select text, name from messages where number = 8").rows == (
            ("\x00\x1b", "'\";--"),
        )


# The docs

PAGE = Path(__file__).parents[2] / "docs/how-to/sql.md"
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_the_queries_of_the_docs_find_something_in_the_examples(examples, query):
    found = examples.sql(query)
    assert not found.unreadable
    assert len(found) > 0 or "in_doubt" in query or "t.origin" in query


def test_there_are_queries_in_the_docs():
    assert len(QUERIES) >= 8
