"""Where settings come from: option, environment, pyproject.toml, default, in that order."""

from pathlib import Path

import pytest

from holdfast.api.settings import Code, code_of, url_of
from holdfast.cli.settings import Given
from holdfast.errors import BadInput

from .conftest import run


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "state"\napp = ["a", "b:c"]\n')
    (tmp_path / "deep" / "down").mkdir(parents=True)
    return tmp_path


def test_an_option_beats_all(project):
    env = {"HOLDFAST_URL": "env", "HOLDFAST_APP": "env"}
    given = Given(url="option", app=("option",))
    assert url_of(given, env, project) == "option"
    assert code_of("app", given, env, project).names == ("option",)


def test_the_environment_beats_the_project(project):
    env = {"HOLDFAST_URL": "env", "HOLDFAST_APP": "one, two,,"}
    assert url_of(Given(), env, project) == "env"
    assert code_of("app", Given(), env, project).names == ("one", "two")


def test_the_nearest_project_beats_the_default(project):
    for folder in (project, project / "deep", project / "deep/down"):
        assert url_of(Given(), {}, folder) == str(project / "state")
        assert code_of("app", Given(), {}, folder).names == ("a", "b:c")
        assert code_of("app", Given(), {}, folder).folder == project
    (project / "deep/pyproject.toml").write_text('[tool.holdfast]\napp = "one"\n')
    assert url_of(Given(), {}, project / "deep/down") == "workspace"
    assert code_of("app", Given(), {}, project / "deep/down").names == ("one",)


def test_empty_settings_count_as_none(project):
    assert url_of(Given(), {"HOLDFAST_URL": ""}, project) == str(project / "state")
    assert code_of("app", Given(), {"HOLDFAST_APP": " "}, project).names == ("a", "b:c")


def test_the_default(tmp_path):
    assert url_of(Given(), {}, tmp_path) == "workspace"
    assert code_of("app", Given(), {}, tmp_path).names == ()


def test_a_url_with_a_scheme_is_left_as_it_is(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "memory://"\n')
    assert url_of(Given(), {}, tmp_path) == "memory://"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[tool.holdfast", "can't read the settings"),
        ("[tool.holdfast]\nurl = 3", "url"),
        ("[tool.holdfast]\napp = [3]", "app"),
        ("[tool.holdfast]\nurls = 'x'", "urls"),
        ("tool.holdfast = 3", "object"),
        ("x = " + "[" * 100_000, "can't read the settings"),
        ("x = " + "1" * 5_000, "can't read the settings"),
        ("x = 1\x00", "can't read the settings"),
        ("# " + "x" * (5 << 20), "more than 4 MiB"),
    ],
    ids=lambda text: text[:20],
)
def test_wrong_settings_name_the_file(tmp_path, text, complaint):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BadInput, match=complaint) as refused:
        url_of(Given(), {}, tmp_path)
    assert "pyproject.toml" in str(refused.value)


def test_objects_come_from_the_environment_else_from_the_project(tmp_path):
    assert code_of("redact", Given(), {}, tmp_path).names == ()
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nredact = "a:b"\n')
    (tmp_path / "sub").mkdir()
    assert code_of("redact", Given(), {}, tmp_path) == Code(("a:b",), tmp_path)
    found = code_of("redact", Given(), {}, tmp_path / "sub")
    assert found == Code(("a:b",), tmp_path, above=tmp_path / "pyproject.toml")
    environment = {"HOLDFAST_REDACT": "c:d"}
    found = code_of("redact", Given(), environment, tmp_path / "sub")
    assert found == Code(("c:d",), tmp_path / "sub")
    assert code_of("secrets", Given(), environment, tmp_path).names == ()


def test_a_project_without_settings_is_no_error(tmp_path):
    for text in ("", "[tool.other]\nx = 1", "tool = 3"):
        (tmp_path / "pyproject.toml").write_text(text)
        assert url_of(Given(), {}, tmp_path) == "workspace"


def test_all_of_it_end_to_end(recorded):
    Path("workspace").rename("state")
    assert run("ls", cwd=recorded).code == 5
    assert run("ls", cwd=recorded, HOLDFAST_URL="state").code == 0
    assert run("ls", "--url", "state", cwd=recorded).code == 0
    assert run("--url", "state", "ls", cwd=recorded).code == 0
    assert run("--url", "nowhere", "ls", "--url", "state", cwd=recorded).code == 0
    (recorded / "sub").mkdir()
    (recorded / "pyproject.toml").write_text('[tool.holdfast]\nurl = "state"\napp = "agents"\n')
    assert run("ls", cwd=recorded / "sub").code == 0
    assert run("resume", "trip-42", cwd=recorded / "sub").code == 3
    assert run("resume", "trip-42", cwd=recorded, HOLDFAST_APP="nowhere").code == 2
    assert run("--app", "agents", "resume", "trip-42", cwd=recorded, HOLDFAST_APP="no").code == 3
    (recorded / "pyproject.toml").write_text("oops")
    code, _, err = run("ls", cwd=recorded)
    assert code == 2
    assert "pyproject.toml" in err
