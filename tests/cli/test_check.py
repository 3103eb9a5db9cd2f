"""`holdfast check`"""

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import HERE, effects, run


@pytest.fixture(scope="session")
def _under_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("under_way")
    shutil.copy(HERE / "crew.py", folder)
    assert run("run", "crew:asks", "--id", "a-1", cwd=folder).code == 3
    assert run("start", "crew:chore", "tea", "--id", "c-1", cwd=folder).code == 0
    assert run("pause", "c-1", cwd=folder).code == 0
    assert run("start", "crew:naps", "3600", "--id", "n-1", cwd=folder).code == 0
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=folder).code == 0
    assert run("run", "crew:chore", "tea", "--id", "done", cwd=folder).code == 0
    return folder


@pytest.fixture
def under_way(_under_way: Path, crew: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task that asks, one that was never driven, one that naps, and a finished one."""
    place = crew / "under_way"
    shutil.copytree(_under_way, place)
    monkeypatch.chdir(place)
    return place


def check(*args: str):
    return run("check", "--app", "crew", *args, cwd=Path.cwd())


def change(old: str, new: str) -> None:
    source = Path("crew.py").read_text()
    assert old in source
    Path("crew.py").write_text(source.replace(old, new))


def everything() -> dict[str, bytes]:
    files = [path for path in Path("workspace").rglob("events.jsonl") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


def test_code_that_fits_is_fine_and_nothing_is_called_or_written(under_way):
    before, done = everything(), effects()
    assert check() == (0, "3 tasks: all fit\n", "")
    assert (everything(), effects()) == (before, done)


def test_a_changed_call_is_found_and_both_sides_are_shown(under_way):
    change("    sleep(seconds)\n", "    finish(str(seconds))\n")
    before = everything()
    code, out, err = check()
    assert (code, err) == (7, "")
    assert out == (
        "n-1  naps  diverges at call 1\n"
        '  the log holds sleep({"seconds":3600.0})\n'
        '  the code      calls finish({"text":"3600.0"})\n'
        "\n"
        "3 tasks: 2 fit, 1 diverges\n"
    )
    assert everything() == before


def test_json_has_every_task_and_one_answer(under_way):
    change('ask("Book it?"', 'ask("Really?"')
    code, out, _ = check("--json")
    assert code == 7
    data = json.loads(out)
    assert data["fits"] is False
    found = {task["task"]: task for task in data["tasks"]}
    assert {id: task["verdict"] for id, task in found.items()} == {
        "a-1": "diverges", "c-1": "fits", "n-1": "fits",
    }  # fmt: skip
    assert found["a-1"]["path"] == "1"
    assert found["a-1"]["type"] == "asks"
    assert found["a-1"]["recorded"] != found["a-1"]["asked"]


def test_code_that_is_missing_is_found(under_way):
    change("@task\ndef naps(", "@task\ndef slumbers(")
    code, out, _ = check()
    assert code == 7
    assert "n-1  naps  its code is missing\n" in out
    assert "keep its old name in the log: @task(name='naps')" in out
    assert "3 tasks: 2 fit, 1 has no code\n" in out
    assert run("check", cwd=under_way).code == 7


def test_a_check_can_be_of_one_type_or_of_some_tasks(under_way):
    change("    sleep(seconds)\n", "    finish(str(seconds))\n")
    assert check("--type", "asks") == (0, "1 task: all fit\n", "")
    assert check("--type", "naps").code == 7
    assert check("a-1", "c-1", "a-1") == (0, "2 tasks: all fit\n", "")
    assert check("a-1", "n-1").code == 7
    assert check("--type", "nothing") == (0, "no unfinished task to check\n", "")


def test_what_the_code_prints_is_kept_from_the_answer(under_way):
    change("    sleep(seconds)\n", '    print("hello")\n    sleep(seconds)\n')
    code, out, err = check("--json")
    assert (code, err) == (0, "hello\n")
    assert json.loads(out)["fits"] is True


def test_a_function_that_ends_the_program_does_not_end_the_check(under_way):
    change("    sleep(seconds)\n", "    raise SystemExit(0)\n")
    code, out, _ = check()
    assert code == 7
    assert "its function ends the program" in out
    assert "3 tasks: 2 fit, 1 diverges\n" in out


def test_a_log_that_can_not_be_read_is_named(under_way):
    log = Path("workspace/tasks/n-1/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b"3600", b"3601"))
    code, out, err = check()
    assert code == 4
    assert out == "2 tasks: all fit\n"
    assert re.match(r"warning: tasks/n-1: event \d+ is damaged", err)
    data = json.loads(check("--json").out)
    assert (data["fits"], len(data["tasks"]), len(data["unreadable"])) == (False, 2, 1)


def test_older_code_than_started_a_task_does_not_fit(crew):
    source = Path("crew.py").read_text()
    Path("crew.py").write_text(source.replace("@task\ndef asks(", "@task(version=2)\ndef asks("))
    run("run", "crew:asks", "--id", "a-1", cwd=crew)
    Path("crew.py").write_text(source)
    code, out, _ = check()
    assert code == 7
    assert "a-1  asks  diverges at its start\n" in out
    assert "a task of version 2" in out


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["a-2"], 5, "Did you mean a-1?"),
        (["--app", "nowhere"], 2, "there is no module 'nowhere'"),
        (["--url", "elsewhere"], 5, "there is no store at elsewhere"),
        (["--nonsense"], 2, "No such option"),
    ],
)
def test_wrong_uses(under_way, args, code, complaint):
    ended = run("check", *args, cwd=under_way)
    assert (ended.code, ended.out) == (code, "")
    assert complaint in ended.err
    assert not Path("elsewhere").exists()
