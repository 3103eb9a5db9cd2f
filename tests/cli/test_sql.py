"""`holdfast sql`"""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.root import root
from holdfast.views.sql.tables import TABLES

from .conftest import on_terminal

BOMB = "with recursive n(x) as (select 1 union all select x + 1 from n) "


def test_rows_are_shown_as_a_table(recorded, cli):
    code, out, err = cli("sql", "select id, type, failure from tasks order by id")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["id", "type", "failure"]
    assert lines[1].split() == ["both", "branches", "NULL"]
    assert lines[3].split() == ["trip-42", "plan_trip", "NULL"]


def test_json_is_an_object_a_line(recorded, cli):
    code, out, _ = cli("sql", "--json", "select id, events > 3 as big from tasks order by 1")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows == [{"id": id, "big": 1} for id in ("both", "mend-1", "trip-42")]


def test_csv_has_the_names_first_and_quotes_what_needs_it(recorded, cli):
    code, out, _ = cli("sql", "--csv", "select 'a,b' as one, null as two, 'x\ny' as three")
    assert code == 0
    assert list(csv.reader(io.StringIO(out))) == [["one", "two", "three"], ["a,b", "", "x\ny"]]


def test_parameters_fill_the_question_marks(recorded, cli):
    query = "select name from steps where task_id = ? and path = ?"
    code, out, _ = cli("sql", "--json", query, "-p", "trip-42", "-p", "1")
    assert code == 0
    assert len(out.splitlines()) == 1
    query_of_numbers = (
        "select path from steps where attempts >= ? and attempts < cast(? as integer)"
    )
    assert cli("sql", "--json", query_of_numbers, "-p", "1", "-p", "10").out
    assert not cli("sql", "--json", query_of_numbers, "-p", "10", "-p", "9").out
    code, _, err = cli("sql", query, "-p", "trip-42")
    assert code == 2
    assert "uses 2, and there are 1 supplied" in err


def test_a_query_is_read_from_standard_input(recorded):
    asked = "select count(*) as n\nfrom tasks -- all of them\n"
    done = CliRunner().invoke(root, ["sql", "-", "--json"], input=asked)
    assert (done.exit_code, done.stdout) == (0, '{"n":3}\n')


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--status", "failed"], ["mend-1"]),
        (["--status", "failed", "--status", "completed"], ["both", "mend-1"]),
        (["--type", "branches"], ["both"]),
        (["--user", "ada"], ["trip-42"]),
        (["--session", "s-1"], ["trip-42"]),
        (["--label", "team=travel"], ["trip-42"]),
        (["--since", "1h"], ["both", "mend-1", "trip-42"]),
        (["--until", "1h"], []),
    ],
)
def test_filters_are_those_of_ls(recorded, cli, options, expected):
    for table, column in (("tasks", "id"), ("steps", "task_id")):
        query = f"select distinct {column} as id from {table} order by 1"
        code, out, _ = cli("sql", "--json", query, *options)
        assert code == 0
        assert [json.loads(line)["id"] for line in out.splitlines()] == expected


def test_a_table_has_a_limit_and_says_so(recorded, cli):
    code, out, _ = cli("sql", BOMB + "select x from n")
    assert code == 0
    assert len(out.splitlines()) == 102
    assert out.splitlines()[-1] == "… there are more than 100 rows: the same with --limit"
    assert len(cli("sql", BOMB + "select x from n", "--limit", "5").out.splitlines()) == 7
    code, out, err = cli("sql", "--json", BOMB + "select x from n", "--limit", "2")
    assert (code, out) == (0, '{"x":1}\n{"x":2}\n')
    assert err == "there are more than 2 rows: the same with --limit\n"
    assert len(cli("sql", "--csv", BOMB + "select x from n limit 300").out.splitlines()) == 301


def test_a_query_that_never_ends_is_stopped(recorded, cli):
    code, out, err = cli("sql", BOMB + "select max(x) from n", "--timeout", "0.1")
    assert (code, out) == (2, "")
    assert "took longer than 0.1 s" in err


def test_nothing_found_is_said_and_is_no_error(recorded, cli):
    code, out, _ = cli("sql", "select id from tasks where 0")
    assert (code, out) == (0, "id\nnothing was found\n")
    assert cli("sql", "--json", "select id from tasks where 0").out == ""


def test_a_wrong_query_shows_where(recorded, cli):
    code, out, err = cli("sql", "select id form tasks")
    assert (code, out) == (2, "")
    assert err == (
        'error: sql: near "tasks": syntax error (column 16)\n'
        "  select id form tasks\n"
        "                 ^\n"
    )
    code, out, _ = cli("sql", "--json", "drop table tasks")
    assert code == 2
    assert "read only" in json.loads(out)["error"]["message"]


def test_the_schema_explains_every_column_and_needs_no_store(folder, cli):
    code, out, _ = cli("sql", "--schema")
    assert code == 0
    for table in TABLES.values():
        assert f"create view {table.name} (" in out
        assert all(column.about in out for column in table.columns)


def test_without_a_query_the_command_says_what_to_give(recorded, cli):
    code, _, err = cli("sql")
    assert code == 2
    assert "--schema" in err
    assert cli("sql", "select 1", "--json", "--csv").code == 2


def test_a_store_that_is_not_there_is_not_made(folder, cli):
    assert cli("sql", "select 1").code == 5
    assert not Path("workspace").exists()


def test_a_damaged_log_is_named_and_the_rest_is_answered(recorded, cli):
    log = Path("workspace/tasks/mend-1/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b"mendable", b"mendible", 1))
    code, out, err = cli("sql", "--json", "select id, events > 0 as e from tasks order by id")
    assert code == 4
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["both", "trip-42"]
    assert err.startswith("warning: ")
    assert "mend-1" in err


def test_nothing_in_a_value_acts_on_a_terminal(recorded):
    query = "select 'a' || char(27) || '[31mred' || char(10) || 'b' as \"x\x1b[2J\""
    for options in ((), ("--csv",)):
        seen = on_terminal("sql", query, *options, cwd=recorded)
        assert "\x1b[31m" not in seen
        assert "\x1b[2J" not in seen
        assert "red" in seen


def test_long_values_are_cut_in_a_table_only(recorded, cli):
    query = "select printf('%.*c', 5000, 'x') as long"
    assert cli("sql", query).out.splitlines()[1] == "x" * 99 + "…"
    assert json.loads(cli("sql", "--json", query).out)["long"] == "x" * 5000
