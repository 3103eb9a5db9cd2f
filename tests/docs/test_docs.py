"""Docs are run: every Python block of README and docs, page by page, in the order it is read.

A block that is meant to fail, or that is not ours to run, is fenced as something else (`text`).
Blocks of one page share their names, as they do in the reader's head. Commands that begin with
`holdfast` must be ones that the command line accepts. A page that starts the server of an engine is
skipped where there is none.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli.root import TOPICS, root
from holdfast.testing.servers import (
    RestateServer,
    TemporalServer,
    restate_server,
    temporal_server,
)
from tests.engines.servers import need

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_the_code_of_a_page_runs(page, tmp_path):
    code = "\n".join(blocks(page, "python"))
    if "TemporalServer(" in code:
        need(TemporalServer, temporal_server())
    if "RestateServer(" in code:
        need(RestateServer, restate_server())
    script = tmp_path / "page.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page):
    for target, _ in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def shell(page: Path) -> str:
    return "\n".join([*blocks(page, "sh"), *blocks(page, "console")]).replace("\\\n", " ")


@pytest.mark.parametrize("page", [p for p in PAGES if "holdfast " in shell(p)], ids=name)
def test_the_commands_of_a_page_are_accepted(page):
    lines = re.findall(r"^ *(holdfast .*)$", shell(page), re.MULTILINE)
    wrong = {line: why for line in lines if (why := refused(words_of_command(line)))}
    assert not wrong


def test_the_examples_of_the_help_are_accepted():
    helps = [root.help or "", *(each.help or "" for each in root.commands.values())]
    examples = "\n".join([*(text.partition("Examples:")[2] for text in helps), *TOPICS.values()])
    examples = re.sub(r" *\\\n +", " ", examples)
    # Two spaces come before what an example does.
    lines = re.findall(r"^ *(holdfast .*?)(?: {2,}.*)?$", examples, re.MULTILINE)
    assert len(lines) > 100
    assert not {line: why for line in lines if (why := refused(words_of_command(line)))}


@pytest.mark.parametrize(
    "line",
    [
        "holdfast shwo t",
        "holdfast show t --nope",
        "holdfast show",
        "holdfast snapshot t 6 --before",
    ],
)
def test_a_command_that_is_not_accepted_is_noticed(line):
    assert refused(words_of_command(line))


def words_of_command(line: str) -> list[str]:
    """The words after `holdfast`, without the comment and what the shell does with the output."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        words.append(word)
    return words[1:]


def refused(words: list[str]) -> str:
    """Why the command line would not accept the words; it opens no file and no store for that."""
    command: click.Command = root
    outer = None
    while True:
        ctx = click.Context(command, outer, info_name=command.name)
        is_group = isinstance(command, click.Group)
        ctx.allow_interspersed_args = not is_group and command.allow_interspersed_args
        try:
            given, words, _ = command.make_parser(ctx).parse_args(list(words))
        except click.UsageError as error:
            return error.format_message()
        if not isinstance(command, click.Group):
            needed = [each for each in command.get_params(ctx) if each.required]
            lacks = [each.name for each in needed if each.value_is_missing(given.get(each.name))]
            left = [word for word in words if word != "…"]  # stands for more that is left out
            return f"lacks {lacks}" if lacks and "…" not in words else " ".join(left)
        if not words:
            return ""
        found = command.get_command(ctx, words[0])
        if found is None:
            return f"there is no command {words[0]}"
        command, words, outer = found, words[1:], ctx


def test_there_is_something_to_check():
    assert len([p for p in PAGES if blocks(p, "python")]) >= 1
