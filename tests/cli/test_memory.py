"""`holdfast memory`: what agents remember, looked at and mended by people."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast
from holdfast.cli.commands.sessions import memory


@pytest.mark.parametrize("name", sorted(memory.commands))
def test_every_command_has_help_with_examples(cli, name):
    code, out, _ = cli("memory", name, "--help")
    assert code == 0
    assert f"holdfast memory {name}" in out[out.index("Examples:") :]
    assert "--json" in out and "--url" in out


def test_what_is_added_is_found_listed_and_forgotten(cli, folder):
    ended = cli("memory", "add", "Ada wants a quiet room", "--user", "ada", "--label", "kind=taste")
    assert ended.code == 0 and ended.out.startswith("remembered: ")
    id = ended.out.split()[-1]
    assert cli("memory", "add", "Orders ship from Oslo", "--id", "shipping").code == 0
    found = json.loads(cli("memory", "search", "QUIET", "--user", "ada", "--json").out)
    assert [(each["id"], each["text"], each["score"] > 0) for each in found] == [
        (id, "Ada wants a quiet room", True)
    ]
    assert json.loads(cli("memory", "search", "quiet", "--user", "bob", "--json").out) == []
    listed = cli("memory", "ls")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["ID", "shipping", id]
    assert "Orders ship from Oslo" in listed.out
    by_label = json.loads(cli("memory", "ls", "--label", "kind=taste", "--json").out)
    assert [each["labels"] for each in by_label] == [{"kind": "taste"}]
    assert cli("memory", "forget", "shipping", "--because", "moved").out == "forgotten: shipping\n"
    assert "nothing is remembered" in cli("memory", "search", "oslo").out
    with Holdfast("workspace") as hf:
        assert [entry.id for entry in hf.memory.entries()] == [id]


def test_an_entry_that_is_not_there_can_not_be_forgotten(cli, folder):
    assert cli("memory", "add", "x").code == 0
    ended = cli("memory", "forget", "nobody")
    assert (ended.code, ended.out) == (5, "")
    assert "no entry nobody" in ended.err
    ended = cli("memory", "forget", "nobody", "--json")
    assert (ended.code, json.loads(ended.out)) == (5, {"id": "nobody", "forgotten": False})


def test_a_store_that_is_not_there_is_not_made_by_looking(cli, folder):
    for words in (("ls",), ("search", "x"), ("forget", "x")):
        ended = cli("memory", *words)
        assert ended.code == 5 and "there is no store" in ended.err
    assert not (folder / "workspace").exists()


def test_a_page_says_that_there_is_more(cli, folder):
    for number in range(3):
        cli("memory", "add", f"number {number}")
    ended = cli("memory", "ls", "--limit", "2")
    assert len(ended.out.splitlines()) == 3 and "older ones" in ended.err
    assert cli("memory", "ls", "--limit", "3").err == ""


def test_what_a_text_would_do_to_a_terminal_is_only_shown(cli, folder):
    cli("memory", "add", "red \x1b[31m\nand [bold]more[/]", "--user", "\x1b]0;x\x07")
    shown = cli("memory", "ls").out + cli("memory", "search", "red").out
    assert "\x1b" not in shown and r"red \x1b[31m\nand [bold]more[/]" in shown


def test_wrong_input_is_told_in_one_paragraph(cli, folder):
    assert cli("memory", "add", " ").code == 2
    ended = cli("memory", "add", "x" * 20_000)
    assert ended.code == 2 and "20,000 bytes is too long" in ended.err
    assert cli("memory", "search", "x", "--limit", "0").code == 2
