"""An encrypted store is copied, cleaned up and archived without a word of it getting out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import (
    Artifact,
    BadInput,
    Holdfast,
    Keys,
    Retention,
    Unanswered,
    WrongKey,
    ask,
    keep,
    step,
    task,
)
from holdfast.cli.root import root

CANARY = "canary-4711-in-the-mine"


@step
def sealed_report(n: int) -> Artifact:
    return keep([CANARY.encode() * 9, b"x" * 100_000], name="report")


@task
def sealed_trip(n: int) -> str:
    made = sealed_report(n)
    answer = ask(f"{CANARY}?", id="go")
    with made.open() as file:
        return f"{answer} {file.read(len(CANARY)).decode()}"


def begun(folder: Path, key: str) -> None:
    with Holdfast(folder, key=key, sign_key=key) as hf, pytest.raises(Unanswered):
        hf.run(sealed_trip, 1, id="t", user=CANARY, labels={"who": CANARY})


def holds_canary(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("target", ["other", "sqlite:///other/o.db"])
def test_a_copy_of_an_encrypted_store_is_encrypted_with_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    key = Keys.new()
    begun(Path("w"), key)
    with Holdfast("w", key=key, sign_key=key) as hf:
        assert [each.how for each in hf.copy_to(target, move=True).tasks] == ["copied"]
    assert holds_canary(tmp_path) == []
    with pytest.raises(WrongKey):
        Holdfast(target)
    with Holdfast(target, key=key, sign_key=key) as hf:
        assert hf.verify().sound
        assert [view.id for view in hf.tasks(user=CANARY, labels={"who": CANARY})] == ["t"]
        hf.answer("t", "yes")
        assert hf.resume("t") == f"yes {CANARY}"
        assert hf.gc(Retention(keep_last=1)).blobs == 0, "every blob is named"
        hf.gc(Retention(keep_last=0, grace=timedelta()))
        assert list(hf.store.blobs()) == []


def test_an_archive_in_the_clear_is_made_only_if_asked_for(tmp_path: Path) -> None:
    key = Keys.new()
    begun(tmp_path / "w", key)
    with Holdfast(tmp_path / "w", key=key, sign_key=key) as hf:
        with pytest.raises(BadInput, match="not encrypted"):
            hf.archive_to(tmp_path / "a.hfa")
        with pytest.raises(BadInput, match="not encrypted"):
            hf.gc(Retention(keep_last=0), archive=tmp_path / "a.hfa")
        assert not (tmp_path / "a.hfa").exists()
        hf.archive_to(tmp_path / "a.hfa", plain=True)
    with Holdfast(tmp_path / "again", key=key, sign_key=key) as hf:
        hf.restore_from(tmp_path / "a.hfa")
        assert hf.task("t").status == "paused"
    assert holds_canary(tmp_path / "again") == []


def test_the_command_line_takes_another_key_for_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key, other = Keys.new(), Keys.new()
    begun(Path("w"), key)
    Path("w.key").write_text(key)
    Path("o.key").write_text(other)
    run = CliRunner().invoke
    keys = ["--key-file", "w.key", "--sign-key-file", "w.key"]
    more = ["--to-key-file", "o.key", "--move"]
    done = run(root, ["copy", "--from", "w", "--to", "o", *keys, *more])
    assert done.exit_code == 0, done.output
    with Holdfast("o", key=other) as hf:
        assert hf.task("t").status == "awaiting_user"
    assert holds_canary(tmp_path) == []
    refused = run(root, ["archive", "all.hfa", "--url", "o", "--key-file", "o.key"])
    assert refused.exit_code != 0
    done = run(root, ["archive", "all.hfa", "--url", "o", "--key-file", "o.key", "--plain"])
    assert done.exit_code == 0, done.output
