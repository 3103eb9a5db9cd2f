"""`holdfast setup` shows what it would write into an assistant's configuration, and asks first."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest
from click.testing import CliRunner

from holdfast.cli.root import root


@pytest.fixture
def home(tmp_path, monkeypatch):
    project = tmp_path / "project"
    for folder in (".cursor", ".codex", ".gemini", "project/.vscode", "project/.claude"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(project)
    return tmp_path


def run(*words, answers=""):
    return CliRunner().invoke(root, ["setup", "--url", "store", *words], input=answers)


def files(home):
    return {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def test_a_dry_run_shows_the_changes_and_writes_nothing(home):
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"other": {"command": "x"}}}')
    before = files(home)
    done = run("--dry-run")
    assert done.exit_code == 0, done.output
    assert '+    "holdfast": {' in done.output and "[mcp_servers.holdfast]" in done.output
    assert files(home) == before


def test_nothing_is_written_unless_you_say_so(home):
    before = files(home)
    done = run(answers="n\n" * 10)
    assert done.exit_code == 0 and "left as it is" in done.output
    assert files(home) == before


def test_entries_are_added_beside_what_is_there_and_a_second_run_changes_nothing(home):
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"other": {"command": "x"}}, "a": 1}')
    (home / ".codex/config.toml").write_text('# mine\nmodel = "m"\n')
    assert run("--yes").exit_code == 0
    cursor = json.loads((home / ".cursor/mcp.json").read_text())
    assert cursor["a"] == 1 and cursor["mcpServers"]["other"] == {"command": "x"}
    ours = cursor["mcpServers"]["holdfast"]
    store = str(home / "project" / "store")
    assert ours == {"command": sys.executable, "args": ["-m", "holdfast", "mcp", "--url", store]}
    codex = (home / ".codex/config.toml").read_text()
    assert codex.startswith("# mine\n") and tomllib.loads(codex)["mcp_servers"]["holdfast"] == ours
    code = json.loads((home / "project/.vscode/mcp.json").read_text())
    assert code["servers"]["holdfast"] == {"type": "stdio", **ours}
    assert "holdfast" in json.loads((home / "project/.mcp.json").read_text())["mcpServers"]
    assert "holdfast next" in (home / "project/HOLDFAST.md").read_text()
    before = files(home)
    again = run("--yes")
    assert again.exit_code == 0 and "written" not in again.output
    assert files(home) == before


def test_a_file_that_is_not_understood_is_left_to_you(home):
    (home / ".cursor/mcp.json").write_text("{ // mine\n}")
    (home / ".gemini/settings.json").write_text("[1]")
    done = run("--yes")
    assert "by hand" in done.output
    assert (home / ".cursor/mcp.json").read_text() == "{ // mine\n}"
    assert (home / ".gemini/settings.json").read_text() == "[1]"


@pytest.mark.parametrize(
    "text", ['mcp_servers = { other = { command = "x" } }\n', "mcp_servers = 3\n"]
)
def test_toml_that_can_not_be_added_to_is_left_to_you(home, text):
    """A table in one line ends there: a second header for it would break the whole file."""
    (home / ".codex/config.toml").write_text(text)
    done = run("--yes")
    assert done.exit_code == 0 and "by hand" in done.output
    assert (home / ".codex/config.toml").read_text() == text


def test_what_can_not_be_read_holds_up_no_other(home):
    (home / ".cursor/mcp.json").mkdir()
    done = run("--yes")
    assert done.exit_code == 0 and "Cursor" in done.output and "can't be read" in done.output
    assert (home / ".codex/config.toml").exists()


def test_any_path_reaches_the_server_as_it_is(home):
    words = ["setup", "--yes", "--url", 'file://\U0001f600 "a" \\ b']
    assert CliRunner().invoke(root, words).exit_code == 0
    for servers in (
        json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"],
        tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"],
    ):
        assert servers["holdfast"]["args"][-1] == str(home / 'project/\U0001f600 "a" \\ b')


@pytest.mark.parametrize("url", ["redis://x", "sqlite:agents.db", "sqlite://", "memory://"])
def test_no_url_is_written_that_names_no_store(home, url):
    done = CliRunner().invoke(root, ["setup", "--yes", "--url", url])
    assert done.exit_code != 0 and not (home / ".cursor/mcp.json").exists()


def test_a_link_stays_a_link_and_the_mode_is_kept(home):
    real = home / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    (home / ".cursor/mcp.json").symlink_to(real)
    run("--yes")
    assert (home / ".cursor/mcp.json").is_symlink()
    assert "holdfast" in json.loads(real.read_text())["mcpServers"]
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_password_is_never_written_and_actions_only_if_asked(home):
    words = ["setup", "--yes", "--url", "postgresql://ada:secret@db/agents"]
    done = CliRunner().invoke(root, words)
    assert done.exit_code != 0 and not (home / ".cursor/mcp.json").exists()
    run("--yes", "--allow-actions")
    assert "--allow-actions" in (home / ".cursor/mcp.json").read_text()


def test_with_json_nobody_is_asked(home):
    told = json.loads(run("--json").output)["files"]
    assert all(each["changes"] and not each["written"] for each in told)
    assert not (home / ".cursor/mcp.json").exists()
    assert all(each["written"] for each in json.loads(run("--json", "--yes").output)["files"])
    assert (home / ".cursor/mcp.json").exists()
