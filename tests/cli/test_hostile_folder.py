"""Reading runs nothing: in a folder whose files name code, a command imports what it declares."""

import json
import os
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
import pytest

from holdfast import Holdfast, Limit, Queue, step, task
from holdfast.api.settings import Setting, _Table
from holdfast.cli.options import imports_of
from holdfast.cli.root import root
from holdfast.stores.sealed.keys import Keys
from holdfast.workspace.harness import init

from .conftest import HERE, Ended, environment, run

SETTINGS = typing.get_args(Setting)
NO_CODE = {"url", "key_file", "sign_key_file", "retention", "queues"}
RUNS_COMMANDS = {"alerts"}
"""These name commands that workers run: see tests/api/test_alerts.py."""

EVIL = {
    "app": "from agents import *",
    "redact": "from holdfast import Redact; found = Redact()",
    "secrets": "found = {}",
    "engine": "from holdfast.api.app import Local; found = Local()",
}
MARK = "from pathlib import Path; Path(__file__).with_suffix('.mark').touch()\n"
PROJECT = """\
[tool.holdfast]
url = "workspace"
app = "evil_app"
redact = "evil_redact:found"
secrets = "evil_secrets:found"
engine = "evil_engine:found"
"""

EFFECTS = ("--effects", "stub")
COMMANDS: dict[str, list[list[str]]] = {
    "ls": [[], ["--status", "failed", "--json"]],
    "show": [["trip-42"], ["trip-42", "--json"]],
    "why": [["trip-42"]],
    "context": [["trip-42"]],
    "log": [["trip-42"]],
    "snapshot": [["trip-42", "--step", "2"]],
    "diff": [["trip-42", "--from", "1", "--to", "2"]],
    "compare": [["trip-42", "mend-1"]],
    "audit": [["trip-42"]],
    "stats": [[]],
    "alerts": [[]],
    "sql": [["select * from steps"]],
    "sessions": [[]],
    "session": [["chat-1"]],
    "say": [["chat-1", "hello again"]],
    "handoff": [["trip-42"]],
    "run": [["agents:greet", "Ada", "--id", "greet-1"]],
    "once": [["fetch", "--task", "nightly", "--", "true"], ["--task", "nightly", "--done"]],
    "start": [["agents:greet", "Ada", "--id", "greet-2"]],
    "worker": [["--until-idle"]],
    "ui": [["--no-browser", "--port", "0", "--timeout", "0.1"]],
    "mcp": [["--http", "--timeout", "0.1"]],
    "setup": [["--dry-run"]],
    "move": [["ask-1", "--engine", "local"]],
    "resume": [["ask-1"], ["both"]],
    "retry": [["mend-1"]],
    "pause": [["ask-1", "--because", "lunch"]],
    "cancel": [["ask-1", "--because", "rain"]],
    "compensate": [["mend-1"]],
    "answer": [[], ["ask-1"], ["ask-1", "book", "true"]],
    "send": [["ask-1", "weather", "true"]],
    "doubt": [[], ["trip-42"]],
    "resolve": [
        ["trip-42", "5", "--did-not-happen"],
        ["trip-42", "5", "--happened", "--result", '"sent"'],
    ],
    "fork": [["trip-42", "--at", "2", *EFFECTS], ["trip-42", "--at", "2", *EFFECTS, "--run"]],
    "rewind": [["mend-1", "--to", "1"], ["mend-1", "--to", "1", "--undo"]],
    "experiment": [["trip-42", "--at", "2", *EFFECTS, "--variant", "same={}"]],
    "schedule ls": [[]],
    "schedule show": [["s"]],
    "schedule pause": [["s"]],
    "schedule resume": [["s"]],
    "schedule run": [["s"]],
    "schedule backfill": [["s", "--from", "2026-01-01", "--to", "2026-01-02"]],
    "schedule delete": [["s"]],
    "queue ls": [[]],
    "queue limits": [[]],
    "queue set-limit": [["openai", "--per-minute", "5"]],
    "queue batches": [[]],
    "queue show": [["q"]],
    "queue pause": [["q"]],
    "queue resume": [["q"]],
    "queue set": [["q", "--concurrency", "2"]],
    "memory search": [["tea"]],
    "memory ls": [[]],
    "memory add": [["green tea"]],
    "memory forget": [["tea"]],
    "init": [["Write it"]],
    "next": [["--agent", "true"], ["--agent", "true", "--mission", "nothing"]],
    "loop": [["--agent", "true", "--items", "1"]],
    "replay": [["both"], ["--all"]],
    "testcase": [["both", "-o", "tests"]],
    "evaluate": [["both"]],
    "check": [[]],
    "doctor": [[]],
    "verify": [[], ["trip-42"]],
    "head": [[]],
    "keys new": [[]],
    "keys rotate": [["--url", "sealed", "--key-file", "some.key"]],
    "copy": [["--to", "copy", "--dry-run"], ["both", "--to", "copy"]],
    "archive": [["all.hfa"]],
    "restore": [["some.hfa"], ["some.hfa", "--dry-run", "--url", "other"]],
    "import": [["otel", "spans.json"]],
    "gc": [["--older-than", "30d", "--dry-run"], ["--older-than", "0s"]],
    "mirror": [["mirrored", "--once"]],
    "rebuild": [[]],
    "export": [["otel", "--status", "stuck"]],
    "migrate": [["--dry-run"]],
    "demo": [["--dir", "demo"]],
    "help": [[], ["answer"]],
    "completion": [["bash"]],
}  # fmt: skip
"""Every command, with arguments that let it do what it is for."""

ONLY_READ = {
    *("ls", "show", "why", "context", "log", "snapshot", "diff", "compare", "audit", "stats"),
    *("sql", "sessions", "session", "handoff", "doubt", "memory search", "memory ls", "doctor"),
    *("verify", "head", "keys new", "keys rotate", "copy", "archive", "restore", "gc", "mirror"),
    *("rebuild", "completion", "alerts", "export", "migrate", "setup", "help", "demo"),
    *("queue limits", "queue set-limit", "queue batches"),
    *("queue ls", "queue show", "queue pause", "queue resume", "queue set"),
    *("schedule ls", "schedule show", "schedule pause", "schedule resume", "schedule delete"),
}
"""These may never declare anything."""


class Tried(NamedTuple):
    command: str
    words: list[str]
    ended: Ended
    imported: set[str]


def commands(of: click.Command = root, *path: str) -> dict[str, click.Command]:
    """Every command that can be typed, those in groups as well."""
    if not isinstance(of, click.Group):
        return {" ".join(path): of}
    return {
        k: v for name, one in of.commands.items() for k, v in commands(one, *path, name).items()
    }


@task
def rest() -> None:
    """For a schedule."""


@step(limit=Limit("openai", per_minute=60))
def ask_model() -> None:
    """A call under a limit."""


@task
def asks_model() -> None:
    ask_model()


@pytest.fixture(scope="module")
def hostile(_recorded, tmp_path_factory) -> Path:
    """A folder with a store of everything, where each setting names code that leaves a mark."""
    place = tmp_path_factory.mktemp("hostile") / "place"
    shutil.copytree(_recorded, place)
    assert run("run", "agents:asks", "--id", "ask-1", cwd=place).code == 3
    with Holdfast(place / "workspace") as hf:
        hf.session("chat-1", user="ada").say("hello")
        hf.memory.remember("Ada likes tea", id="tea")
        init(hf, "Refactor it", id="mission-1")
        hf.queue(Queue("q", concurrency=1))
        hf.run(asks_model)
        hf.schedule(rest, every_s=86_400, name="s")
        hf.archive_to(place / "some.hfa")
    (place / "spans.json").write_text("[]")
    (place / "some.key").write_text(key := Keys.new())
    with Holdfast(place / "sealed", key=key) as hf:
        hf.memory.remember("Ada likes tea")
    (place / "pyproject.toml").write_text(PROJECT)
    for setting, source in EVIL.items():
        (place / f"evil_{setting}.py").write_text(MARK + source)
    return place


def tried(hostile: Path, tmp_path_factory, sub: str) -> list[Tried]:
    """What came of every command, begun in a folder `sub` of a copy of the hostile one."""
    every = [(name, words) for name, cases in COMMANDS.items() for words in cases]
    places = [tmp_path_factory.mktemp("case") / "place" for _ in every]
    for place in places:
        shutil.copytree(hostile, place)
        (place / sub).mkdir(exist_ok=True)
        if sub:
            # That commands name by a path:
            for name in ("agents.py", "some.hfa", "some.key", "spans.json"):
                shutil.copy(place / name, place / sub)
            (place / "sealed").rename(place / sub / "sealed")
    cases = [
        (str(place / sub), [*name.split(), *words])
        for place, (name, words) in zip(places, every, strict=True)
    ]
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "every_command.py")],
        input=json.dumps(cases), env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = []
    for place, (name, words), (code, err) in zip(
        places, every, json.loads(done.stdout), strict=True
    ):
        marks = {mark.stem.removeprefix("evil_") for mark in place.glob("*.mark")}
        found.append(Tried(name, words, Ended(code, "", err), marks))
    return found


def test_every_command_is_tried():
    assert set(COMMANDS) == set(commands()), "say in COMMANDS how to try a new command"


def test_every_setting_that_can_name_code_is_tried():
    fields = {field.name for field in msgspec.structs.fields(_Table)}
    assert fields == {*SETTINGS} | NO_CODE | RUNS_COMMANDS, "does the new setting name code?"
    assert set(EVIL) == set(SETTINGS)


def test_commands_that_only_read_declare_nothing():
    declared = {name for name, command in commands().items() if imports_of(command).settings}
    assert declared == set(COMMANDS) - ONLY_READ


def test_a_command_imports_what_it_declares_and_nothing_else(hostile, tmp_path_factory):
    found: dict[str, set[str]] = {}
    for each in tried(hostile, tmp_path_factory, ""):
        assert each.ended.code not in (2, 70), each  # it did what it is for
        found.setdefault(each.command, set()).update(each.imported)
        if each.command == "answer" and len(each.words) < 3:  # questions are listed
            assert not each.imported, each
    wanted = {name: set(imports_of(one).settings) for name, one in commands().items()}
    assert found == wanted


def test_code_that_a_folder_above_names_is_told_of_once(hostile, tmp_path_factory):
    for each in tried(hostile, tmp_path_factory, "sub"):
        assert each.imported <= set(imports_of(commands()[each.command]).settings), each
        assert each.ended.err.count("imports the code that") == bool(each.imported), each


def _named_above(folder: Path) -> Path:
    """A folder below one whose settings name a module that leaves a mark."""
    (folder / "pyproject.toml").write_text('[tool.holdfast]\nredact = "evil:found"\n')
    (folder / "evil.py").write_text(MARK + EVIL["redact"])
    place = folder / "mine" / "deep"
    place.mkdir(parents=True)
    return place


@pytest.mark.parametrize("spoilt", ["", "pyproject.toml"])
def test_code_named_in_a_folder_that_everybody_writes_to_is_refused(tmp_path, spoilt):
    place = _named_above(tmp_path)
    (tmp_path / spoilt).chmod(0o777)
    code, out, err = run("memory", "add", "tea", cwd=place)
    assert (code, out) == (2, "")
    assert f"{tmp_path}/pyproject.toml names code to import (redact = …)" in err
    assert "can be written to by everybody" in err
    assert not (tmp_path / "evil.mark").exists()
    assert run("memory", "ls", cwd=place).code == 5  # nothing was written, and reading goes on


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("spoilt", ["", "pyproject.toml"])
def test_code_named_in_a_folder_of_another_user_is_refused(tmp_path, spoilt):
    place = _named_above(tmp_path)
    os.chown(tmp_path / spoilt, 12345, 12345)
    code, _, err = run("memory", "add", "tea", cwd=place)
    assert code == 2
    assert "belongs to another user" in err
    assert not (tmp_path / "evil.mark").exists()


def test_a_module_named_above_is_looked_for_there_and_not_in_the_current_folder(tmp_path):
    place = _named_above(tmp_path)
    (place / "evil.py").write_text(MARK + EVIL["redact"])
    code, _, err = run("memory", "add", "tea", cwd=place)
    assert (code, err) == (0, f"imports the code that {tmp_path}/pyproject.toml names\n")
    assert (tmp_path / "evil.mark").exists()
    assert not (place / "evil.mark").exists()


def test_the_environment_names_code_for_commands_that_need_it_alone(hostile, tmp_path):
    place = tmp_path / "place"
    shutil.copytree(hostile, place)
    (place / "pyproject.toml").unlink()
    named = {f"HOLDFAST_{name.upper()}": f"evil_{name}:found" for name in SETTINGS}
    for words in (["ls"], ["doubt"], ["verify"], ["gc", "--dry-run"], ["answer"]):
        run(*words, cwd=place, **named)
    assert not list(place.glob("*.mark"))
    run("say", "chat-1", "hello", cwd=place, **named)
    assert [mark.name for mark in place.glob("*.mark")] == ["evil_redact.mark"]


def test_the_command_imports_no_module_from_the_current_folder(hostile, tmp_path):
    place = tmp_path / "place"
    shutil.copytree(hostile, place)
    for name in ("json", "click", "rich", "msgspec", "sitecustomize", "usercustomize", "conftest"):
        (place / f"{name}.py").write_text(MARK)
    (place / "holdfast.toml").write_text("redact = 'evil_redact:found'")
    (place / ".pdbrc").write_text(f"!open({str(place / 'pdb.mark')!r}, 'w')")
    script = Path(sys.executable).with_name("holdfast")
    ways = [[sys.executable, "-P", "-m", "holdfast"], *([[str(script)]] if script.exists() else [])]
    for way in ways:
        for words in (["ls"], ["show", "trip-42"], ["sql", "select id from tasks"]):
            subprocess.run(
                [*way, *words], cwd=place, env=environment(), stdout=subprocess.DEVNULL, check=True
            )
    assert not list(place.glob("*.mark"))
