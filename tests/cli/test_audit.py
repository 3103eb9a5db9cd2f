"""`holdfast audit`: a report for people and for programs, that says first whether it is true."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.conftest import on_terminal


def entries(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_it_tells_who_did_what_and_begins_with_the_verification(recorded, cli):
    done = cli("audit", "trip-42")
    assert (done.code, done.err) == (0, "")
    title, verdict, *_ = done.out.splitlines()
    assert title == "Audit of task trip-42"
    assert verdict.startswith("The log is as it was written: ")
    for text in (
        "user         ada",
        "call 5, send_letter, may or may not have happened",
        "the first claim",
        "never released it: its process ended, or it was taken over",
        "ConnectionError: hotels.example did not answer, try 2",
        "because  the cheapest",
        "ValueError: closed on Mondays",
        "UTC",
    ):
        assert text in done.out, text


def test_json_lines_are_one_head_and_one_object_for_each_entry(recorded, cli):
    done = cli("audit", "trip-42", "--format", "jsonl")
    head, *rest = entries(done.out)
    assert done.code == 0 and head["record"] == "audit" and head["count"] == len(rest)
    assert head["verification"]["sound"] and head["labels"] == {"team": "travel"}
    assert rest[0]["what"] == "created" and rest[0]["input"] == {"city": "Oslo"}
    page = next(e for e in rest if e.get("name") == "read_page" and e["what"] == "called")
    assert page["output"].count("\n") == 59


def test_a_page_is_written_into_a_file_that_only_its_owner_reads(recorded, cli):
    for form, begin in (("html", "<!doctype html>"), ("markdown", "# Audit"), ("text", "Audit of")):
        Path(f"out.{form}").touch(mode=0o644)
        done = cli("audit", "trip-42", "--format", form, "--output", f"out.{form}")
        assert (done.code, done.out, done.err) == (0, "", "")
        text = Path(f"out.{form}").read_text()
        assert text.startswith(begin) and "\x1b" not in text
        assert stat.S_IMODE(Path(f"out.{form}").stat().st_mode) == 0o600
    written = cli("audit", "trip-42", "--format", "markdown").out
    assert (
        written.partition("report made")[0]
        == Path("out.markdown").read_text().partition("report made")[0]
    )


def test_an_output_that_cannot_be_written_is_said(recorded, cli):
    done = cli("audit", "trip-42", "--output", "nowhere/a.html")
    assert done.code == 2 and "nowhere/a.html can't be written" in done.err


def test_entries_are_chosen_by_call_event_and_time(recorded, cli):
    def chosen(*options: str) -> list[dict]:
        return entries(cli("audit", "trip-42", "--format", "jsonl", *options).out)[1:]

    calls = chosen("--call", "3")
    assert {e["path"] for e in calls} == {"3", "3.1"}
    assert [e["seq"] for e in chosen("--event", "4")] == [4]
    assert chosen("--until", "2020-01-01") == [] and chosen("--since", "2999-01-01") == []
    assert len(chosen("--since", "2w")) > 10
    text = cli("audit", "trip-42", "--event", "4").out
    assert "other entries are not shown" in text


def test_a_damaged_log_is_reported_up_to_the_damage_with_exit_code_4(recorded, cli):
    log = Path("workspace/tasks/trip-42/events.jsonl")
    before = log.read_bytes().replace(b"the cheapest", b"the dearest!", 1)
    log.write_bytes(before)
    done = cli("audit", "trip-42")
    assert done.code == 4
    assert done.out.splitlines()[1].startswith("THE LOG IS DAMAGED")
    assert "its sum does not fit" in done.out.splitlines()[2]
    assert "hotels.example did not answer, try 2" in done.out and "dearest" not in done.out
    head, *rest = entries(cli("audit", "trip-42", "--format", "jsonl").out)
    assert not head["verification"]["sound"] and rest[-1]["seq"] == head["verification"]["head_seq"]
    done = cli("audit", "trip-42", "--format", "html", "--output", "out.html")
    assert done.code == 4 and "the log of trip-42 is damaged" in done.err
    assert 'class="verdict damaged"' in Path("out.html").read_text()
    assert log.read_bytes() == before


def test_a_log_that_was_cut_shows_against_its_head(recorded, cli):
    Path("heads.json").write_text(cli("head").out)
    log = Path("workspace/tasks/both/events.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert cli("audit", "both").code == 0
    done = cli("audit", "both", "--against", "heads.json")
    assert done.code == 4 and "the log was cut" in done.out


def test_a_task_that_is_not_there_is_named_with_those_that_are_near(recorded, cli):
    done = cli("audit", "trip-43")
    assert done.code == 5 and "Did you mean trip-42" in done.err
    assert cli("audit", "trip-42", "--format", "pdf").code == 2


def test_a_terminal_sees_no_escape_of_a_log(recorded):
    from holdfast import Holdfast, note, task

    @task
    def cli_audit_evil() -> str:
        note("red \x1b[31m and \x1b]0;title\x07")
        return "x\r\x1b[2J"

    with Holdfast("workspace") as hf:
        hf.run(cli_audit_evil, id="evil")
    for form in ("text", "jsonl"):  # the others are the same everywhere
        seen = on_terminal("audit", "evil", "--format", form, cwd=recorded)
        assert "\x1b[31m" not in seen and "\x1b]" not in seen and "\x1b[2J" not in seen
        assert "\x07" not in seen


def test_it_needs_nothing_that_only_encrypted_stores_need(recorded):
    code = (
        "import sys; sys.modules['cryptography'] = None; import holdfast.cli as c; "
        "sys.argv = ['holdfast', 'audit', 'trip-42']; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
