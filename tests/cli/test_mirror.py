"""`holdfast mirror`, `rebuild`, and `run --progress`"""

import json
import shutil
import signal
from pathlib import Path

import pytest

from holdfast.workspace.projecting import FILES
from tests.cli.conftest import begin, run

PLACE = Path("workspace/tasks/trip-42")


def files_in(folder):
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def test_the_files_are_there_after_a_run(recorded, cli):
    assert files_in(PLACE).keys() == set(FILES)
    assert b"- status: awaiting_user\n" in (PLACE / "status.md").read_bytes()
    assert "trip-42" in cli("ls").out


def test_rebuilt_they_are_the_same_bytes_and_it_says_what_was_written(recorded, cli):
    before = files_in(PLACE)
    assert cli("rebuild") == (0, "3 tasks as before, 0 tasks not\n", "")
    for name in before:
        (PLACE / name).unlink()
    (PLACE / "mine.txt").write_text("mine")
    code, out, err = cli("rebuild", "trip-42")
    assert (code, err) == (0, "")
    assert out.startswith("trip-42: wrote mission.md, ")
    assert files_in(PLACE) == before
    assert (PLACE / "mine.txt").read_text() == "mine"
    (PLACE / "status.md").write_text("all is well\n")
    (PLACE / "plan.md").write_text("# Plan\n")
    found = json.loads(cli("rebuild", "--json", "trip-42").out)[0]["files"]
    assert (found["status.md"], found["plan.md"]) == ("kept aside", "edited")
    assert (PLACE / "status.md").read_bytes() == before["status.md"]
    assert (PLACE / "status.md.edited-1").read_text() == "all is well\n"
    assert (PLACE / "plan.md").read_text() == "# Plan\n"


def test_a_mirror_says_that_an_edit_is_not_taken_in(recorded, cli):
    assert cli("copy", "trip-42", "--to", "sqlite:///t.db").code == 0
    assert cli("mirror", "--url", "sqlite:///t.db", "view", "--once").err == ""
    plan = Path("view/tasks/trip-42/plan.md")
    plan.write_text("- [ ] 1. fly\n")
    code, _, err = cli("mirror", "--url", "sqlite:///t.db", "view", "--once")
    assert (code, plan.read_text()) == (0, "- [ ] 1. fly\n")
    assert "trip-42: plan.md was edited, and is left alone until that is taken in" in err


def test_a_damaged_log_is_told_and_the_others_are_rebuilt(recorded, cli):
    shutil.rmtree("workspace/tasks/both/artifacts", ignore_errors=True)
    log = PLACE / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Oslo", b"Olso", 1))
    Path("workspace/tasks/both/status.md").unlink()
    code, _, err = cli("rebuild")
    assert code == 4
    assert "tasks/trip-42" in err
    assert Path("workspace/tasks/both/status.md").exists()


def test_a_mirror_of_a_database_has_the_files_of_the_folder_it_was_copied_from(recorded, cli):
    before = {id: files_in(Path("workspace/tasks") / id) for id in ("both", "mend-1")}
    assert cli("copy", "both", "mend-1", "--to", "sqlite:///t.db").code == 0
    code, out, err = cli("mirror", "--url", "sqlite:///t.db", "view", "--once")
    assert (code, err) == (0, "")
    assert sorted(line.partition(":")[0] for line in out.splitlines()) == sorted(before)
    assert {id: files_in(Path("view/tasks") / id) for id in before} == before
    assert oct(Path("view").stat().st_mode & 0o777) == "0o700"
    assert cli("mirror", "--url", "sqlite:///t.db", "view", "--once").out == ""
    assert cli("rebuild", "--url", "sqlite:///t.db").code == 2


def test_a_mirror_follows_until_it_is_interrupted(folder):
    database = ("--url", "sqlite:///t.db")
    assert run("start", "agents:greet", "Ada", "--id", "g-1", *database, cwd=folder).code == 0
    mirror = begin("mirror", "view", "--interval", "0.05", *database, cwd=folder)
    assert mirror.stdout is not None
    assert mirror.stdout.readline() == "g-1: event 1\n"
    assert run("resume", "g-1", "--app", "agents", *database, cwd=folder).code == 0
    lines = iter(mirror.stdout.readline, "")
    assert "g-1: event 3\n" in lines  # it is said after the files are written
    mirror.send_signal(signal.SIGINT)
    _, err = mirror.communicate()
    assert (mirror.returncode, err) == (0, "")
    assert b"- status: completed\n" in (folder / "view/tasks/g-1/status.md").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("mirror", "workspace", "--once"), 2, "is the store itself"),
        (("mirror", "view", "nobody", "--once"), 5, "no task 'nobody'"),
        (("mirror", "agents.py/view", "--once"), 4, "can't make the folder"),
        (("mirror", "view", "--interval", "0"), 2, "--interval"),
        (("rebuild", "nobody"), 5, "no task 'nobody'"),
        (("rebuild", "--url", "memory://"), 2, "is no folder"),
    ],
)
def test_wrong_words_are_refused_and_change_nothing(words, code, said, recorded, cli):
    ended = cli(*words)
    assert ended.code == code
    assert said in ended.err
    assert not Path("view").exists()


def test_an_encrypted_store_is_mirrored_only_where_that_is_said(folder, cli):
    Path("secret.key").write_text(cli("keys", "new").out)
    key = ("--key-file", "secret.key")
    options = ("--id", "g-2", *key)
    assert run("run", "agents:greet", "Ada", *options, cwd=folder).code == 0
    assert not list(Path("workspace").rglob("*.md"))
    ended = cli("mirror", "view", "--once", *key)
    assert ended.code == 2
    assert "--plain" in ended.err
    assert not Path("view").exists()
    assert cli("rebuild", *key).code == 2
    assert cli("mirror", "view", "--once", "--plain", *key).code == 0
    assert b"hello Ada" in Path("view/tasks/g-2/status.md").read_bytes()


def test_what_a_task_does_is_printed_as_it_goes_in_the_lines_of_its_log(folder):
    ended = run("run", "agents:mendable", "--id", "m-1", "--progress", cwd=folder)
    assert ended.code == 1
    told = (folder / "workspace/tasks/m-1/progress.log").read_text().splitlines()[1:]
    said = ended.err.splitlines()
    assert [line for line in said if line in told] == told
    (folder / "fixed").touch()
    ended = run("retry", "m-1", "--app", "agents", "--progress", cwd=folder)
    assert (ended.code, ended.out) == (0, '"mended"\n')
    all_told = (folder / "workspace/tasks/m-1/progress.log").read_text().splitlines()[1:]
    assert ended.err.splitlines() == all_told[len(told) :]
