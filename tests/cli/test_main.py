"""The command as a whole: help, version, what it needs, how it ends."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, errors, task
from holdfast.cli.exits import MEANINGS, Exit, exit_of
from holdfast.cli.reference import reference
from holdfast.cli.root import GROUPS, TOPICS, root
from holdfast.core.events import Failure
from tests.flavors import Crash

from .conftest import environment, run

ROOT = Path(__file__).parents[2]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )


def test_the_version(cli):
    assert cli("--version") == (0, f"holdfast {holdfast.__version__}\n", "")


def test_help_tells_the_exit_codes_and_settings(cli):
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    for each in Exit:
        assert re.search(rf"^ +{each.value} +{re.escape(MEANINGS[each])}$", out, re.M)
    for word in ("HOLDFAST_URL", "HOLDFAST_APP", "pyproject.toml", "Examples:"):
        assert word in out
    assert cli("help") == cli("-h") == (0, out, "")


def test_holdfast_alone_says_where_you_are(cli, recorded):
    code, out, err = cli()
    assert (code, err) == (0, "")
    assert out.startswith("store  ")
    assert "holdfast help" in out
    assert any(id in out for id in ("trip-42", "trip-43", "trip-1")) or "The newest" in out


def test_holdfast_alone_names_a_task_that_stopped_and_how_it_goes_on(cli, tmp_path):
    @task
    def overview_dies() -> None:
        raise Crash

    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(overview_dies, id="dead-1")
    code, out, _ = cli("--url", str(tmp_path / "w"))
    assert code == 0
    assert "These need you" in out
    assert "nobody is at work on it" in out
    assert "holdfast resume dead-1" in out


def test_holdfast_alone_says_so_if_there_is_no_store(cli, tmp_path):
    code, out, err = cli("--url", str(tmp_path / "nowhere"))
    assert (code, err) == (0, "")
    assert "there is no store at" in out
    assert "holdfast demo" in out


@task
def overview_works() -> None: ...


def test_where_there_is_no_store_the_stores_beside_it_are_named(cli, tmp_path):
    code, _, err = cli("ls", "--url", str(tmp_path / "workspace"))
    assert (code, "; here is" in err) == (5, False)
    with Holdfast(tmp_path / "other") as hf:
        hf.run(overview_works)
    code, _, err = cli("ls", "--url", str(tmp_path / "workspace"))
    assert code == 5
    assert err.rstrip().endswith(f"; here is {tmp_path / 'other'}")


def test_the_one_line_purpose_of_every_command_is_whole(cli):
    _, out, _ = cli("help")
    lines = re.findall(r"^  [a-z]+  +\S.*$", out, re.M)
    assert len(lines) > 50
    assert not [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.title)
def test_help_explains_every_group_and_tells_like_commands_apart(cli, group):
    code, out, err = cli("help", group.title)
    assert (code, err) == (0, "")
    assert all(f"  {each.name} " in out for each in group.commands)
    assert all(what in out for _, what in group.apart)
    assert {name for name, _ in group.apart} <= {each.name for each in group.commands}


@pytest.mark.parametrize("topic", [*TOPICS, "answer", "time", "travel"])
def test_help_explains_words_and_commands(cli, topic):
    code, out, err = cli("help", topic)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 3


def test_help_names_near_topics(cli):
    code, out, err = cli("help", "anwser")
    assert (code, out) == (2, "")
    assert "Did you mean answer?" in err
    assert all(word in err for word in TOPICS)


def test_a_word_that_is_a_command_too_is_explained_as_both(cli):
    code, out, err = cli("help", "doubt")
    assert (code, err) == (0, "")
    assert TOPICS["doubt"] in out
    assert "Usage: holdfast doubt" in out


@pytest.mark.parametrize(
    "name",
    sorted(set(root.commands) - {"completion", "help", "keys", "memory", "queue", "schedule"}),
)
def test_every_command_has_help_with_examples(cli, name):
    code, out, _ = cli(name, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"holdfast {name}" in out[out.index("Examples:") :]
    assert "--json" in out or name == "once"  # whose output is that of the command it runs
    assert "--url" in out


def test_an_unknown_command_names_near_ones(cli):
    code, out, err = cli("shwo")
    assert (code, out) == (2, "")
    assert err.startswith("error: No such command 'shwo'")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_a_dependency_it_says_what_to_install(missing):
    done = python(
        f"import sys; sys.modules[{missing!r}] = None; import holdfast.cli as c; c.main()"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"error: the command line needs {missing}, which is not installed: pip install click rich\n"
    )


def test_import_holdfast_loads_neither_click_nor_rich():
    code = "import sys, holdfast; print({'click', 'rich', 'holdfast.cli'} & set(sys.modules))"
    assert python(code).stdout == "set()\n"


def test_every_error_has_an_exit_code():
    failure = Failure("ValueError", "x")
    expected = {
        errors.TaskFailed("t", failure): 1,
        errors.BadId("x"): 2,
        errors.Unserializable("x"): 2,
        errors.TaskWaiting("t", "x"): 3,
        errors.InDoubt("t", "1", "f", "k", "why"): 3,
        errors.TaskPaused("t", "lunch"): 3,
        errors.TaskReleased("t", "x"): 3,
        errors.LogDamaged("s", 1, "x"): 4,
        errors.NewerFormat("x"): 4,
        errors.StorageFailed("x"): 4,
        errors.TaskNotFound("x"): 5,
        errors.TaskBusy("x"): 6,
        errors.LeaseLost("x"): 6,
        errors.CodeMissing("x"): 7,
        errors.CodeChanged("t", "1", "a", "b"): 7,
        errors.TaskCancelled("t", "rain"): 8,
        PermissionError("x"): 4,
        ZeroDivisionError("x"): 70,
    }
    assert {exit_of(error): error for error in expected}.keys() == set(expected.values())
    assert [exit_of(error) for error in expected] == list(expected.values())


def test_a_fault_of_our_own_is_told_as_such(cli, recorded, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("holdfast.cli.commands.overview._listed", broken)
    code, out, err = cli("ls")
    assert (code, out) == (70, "")
    assert err.startswith("error: unexpected ZeroDivisionError: oops")
    assert "Traceback" not in err
    assert "Traceback" in cli("ls", "--debug").err


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["show", "nobody", "--json"], 5, "TaskNotFound"),
        (["--url", "nowhere", "ls", "--json"], 5, "StoreNotFound"),
        (["show", "--json"], 2, "MissingParameter"),
        (["ls", "--nonsense", "--json"], 2, "NoSuchOption"),
        (["resume", "trip-42", "--json"], 7, "CodeMissing"),
    ],
)
def test_with_json_an_error_is_json_too(recorded, args, code, kind):
    ended = run(*args, cwd=recorded)
    assert ended.code == code
    error = json.loads(ended.out)["error"]
    assert error["type"] == kind
    assert ended.err == f"error: {error['message']}\n"


def test_python_m_holdfast_is_the_command(folder):
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"holdfast {holdfast.__version__}\n")


def test_a_terminal_without_utf8_gets_escapes_and_no_traceback(recorded):
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "log", "trip-42"],
        cwd=recorded,
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert b"\\u2192" in done.stdout


# Completion


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --")]
)
def test_completion_scripts(cli, shell, word):
    code, out, err = cli("completion", shell)
    assert (code, err) == (0, "")
    assert word in out
    assert "_HOLDFAST_COMPLETE" in out


def test_an_unknown_shell_is_refused(cli):
    assert cli("completion", "tcsh").code == 2
    code, _, err = cli("completion")
    assert code == 2
    assert "Choose from: bash, zsh, fish (see" in err


def complete(folder: Path, words: str) -> list[str]:
    count = str(words.count(" "))
    env = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    code, out, err = run(cwd=folder, **env)
    assert (code, err) == (0, "")
    return [line.removeprefix("plain,") for line in out.split()]


def test_commands_options_and_task_ids_complete(recorded):
    assert complete(recorded, "holdfast re") == [
        "resume",
        "retry",
        "resolve",
        "rewind",
        "replay",
        "restore",
        "rebuild",
    ]
    assert complete(recorded, "holdfast show tr") == ["trip-42"]
    assert complete(recorded, "holdfast doubt ") == ["both", "mend-1", "trip-42"]
    assert complete(recorded, "holdfast show trip-42 --lay") == ["--layer"]
    assert complete(recorded, "holdfast show --layer ret") == ["retries"]


def test_completion_is_silent_where_there_is_no_store(recorded):
    assert complete(recorded, "holdfast show --url nowhere tr") == []
    assert not Path("nowhere").exists()
    Path("pyproject.toml").write_text("oops")
    assert complete(recorded, "holdfast show tr") == []


# The reference


def test_the_reference_page_is_up_to_date():
    page = ROOT / "docs/reference/cli.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        "make it again: python -m holdfast.cli.reference > docs/reference/cli.md"
    )


def test_no_summary_in_a_list_of_commands_is_cut():
    lists = re.findall(r"^(?:Commands|[A-Z].* – .*):\n((?:  .*\n)+)", reference(), re.MULTILINE)
    assert len(lists) > 7
    assert [line for each in lists for line in each.splitlines() if line.endswith("...")] == []


def test_the_reference_does_not_depend_on_the_terminal(monkeypatch):
    before = reference()
    monkeypatch.setenv("COLUMNS", "200")
    assert reference() == before


def test_every_command_is_found_in_the_module_that_its_group_names():
    assert {name: command.name for name, command in root.commands.items()} == {
        name: name for name in root.commands
    }
    assert list(root.commands) == [each.name for group in GROUPS for each in group.commands]
    assert "unknown" not in root.commands and root.commands.get("unknown") is None
