"""`Holdfast.from_env` opens what the command line would open in the same place."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from holdfast import BadInput, Holdfast, Keys, Secret, TaskFailed, WrongKey, task
from tests.engines.toy import SHARED

REDACT = "from holdfast import Redact\nfound = Redact(patterns=[r'{}'])\n"


@task
def phones(digits: str) -> str:
    return digits


@task
def rings(digits: str) -> None:
    raise ValueError(f"no line for {digits}")


@task
def reads() -> int:
    return len(Secret.named("pin").reveal())


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder of our own, no settings, and no modules left behind."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project(folder, settings):
    (folder / "pyproject.toml").write_text(f"[tool.holdfast]\n{settings}\n")


def test_the_environment_comes_before_the_project_and_that_before_the_default(here, monkeypatch):
    with Holdfast.from_env():
        assert (here / "workspace").is_dir()
    project(here, 'url = "state"')
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    with Holdfast.from_env():
        assert (here / "state").is_dir()
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{here}/trips.db")
    with Holdfast.from_env() as hf:
        assert hf.store.url.endswith("/trips.db")
    assert not list((here / "deep").iterdir())


def test_the_command_line_reads_what_was_written_with_the_same_settings(here, monkeypatch):
    (here / "some.key").write_text(Keys.new())
    project(here, 'url = "state"\nkey_file = "some.key"')
    with Holdfast.from_env() as hf:
        hf.run(phones, "none", id="phones-1")
    command = [sys.executable, "-m", "holdfast", "ls", "--json"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    assert "phones-1" in done.stdout
    monkeypatch.setenv("HOLDFAST_KEY", Keys.new())
    with pytest.raises(WrongKey), Holdfast.from_env() as hf:
        hf.task("phones-1")


def test_the_engine_and_what_is_kept_out_of_the_log_are_imported(here, monkeypatch):
    (here / "env_keeps.py").write_text(REDACT.format("[0-9]{4}") + "secrets = {'pin': '1234'}\n")
    monkeypatch.setenv("HOLDFAST_REDACT", "env_keeps:found")
    monkeypatch.setenv("HOLDFAST_SECRETS", "env_keeps:secrets")
    with Holdfast.from_env() as hf:
        with pytest.raises(TaskFailed, match="no line for •••"):
            hf.run(rings, "9876")
        assert hf.run(reads) == 4
    monkeypatch.delenv("HOLDFAST_REDACT")
    with Holdfast.from_env() as hf, pytest.raises(TaskFailed, match="no line for 9876"):
        hf.run(rings, "9876")
    monkeypatch.setenv("HOLDFAST_ENGINE", "tests.engines.toy:SHARED")
    with Holdfast.from_env() as hf:
        assert hf.engine is SHARED
    monkeypatch.setenv("HOLDFAST_ENGINE", "cron")
    with pytest.raises(BadInput, match="there are local, temporal and restate"):
        Holdfast.from_env()


def test_arguments_that_no_setting_says_are_handed_on(monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", "memory://")
    with pytest.raises(BadInput, match="lease_s"):
        Holdfast.from_env(lease_s=0)


def test_code_that_a_project_above_names_is_imported_with_a_warning(here, monkeypatch):
    (here / "above_keeps.py").write_text(REDACT.format("x"))
    project(here, 'redact = "above_keeps:found"')
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    with pytest.warns(UserWarning, match="imports the code that .*pyproject.toml names") as seen:
        Holdfast.from_env().close()
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Holdfast.from_env().close()  # it was told


@pytest.mark.parametrize("spoilt", ["", "pyproject.toml"])
def test_code_that_anybody_may_have_named_above_is_refused(here, monkeypatch, spoilt):
    (here / "evil_keeps.py").write_text("from pathlib import Path; Path('mark').touch()")
    project(here, 'redact = "evil_keeps:found"')
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    (here / spoilt).chmod(0o777)
    with pytest.raises(BadInput, match="can be written to by everybody"):
        Holdfast.from_env()
    assert not list((here / "deep").iterdir())
    assert "evil_keeps" not in sys.modules


def test_the_tasks_of_the_app_are_not_imported(here):
    (here / "env_app.py").write_text("raise SystemExit('imported')")
    project(here, 'app = "env_app"')
    Holdfast.from_env().close()
    assert "env_app" not in sys.modules
