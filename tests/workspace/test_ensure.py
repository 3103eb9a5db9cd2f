"""Operations on real files: made twice they change nothing, and what was there can be put back."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import Artifact, BadInput, Holdfast, TaskCancelled, TaskFailed, keep, task
from holdfast.workspace import ensure as before_module
from holdfast.workspace import replacement
from holdfast.workspace.ensure import (
    Ensured,
    ensure_absent,
    ensure_block,
    ensure_dir,
    ensure_file,
    ensure_json,
    ensure_line,
)
from tests.flavors import BOUND_S, Crash, Flavor

DO: dict[str, Any] = {
    "file": lambda root: ensure_file("a.txt", "new\n", root=root),
    "bytes": lambda root: ensure_file("deep/er/a.bin", b"\0\xff", root=root),
    "line": lambda root: ensure_line("a.txt", "a line", root=root),
    "block": lambda root: ensure_block("a.txt", "ours", "one\ntwo", root=root),
    "json": lambda root: ensure_json("a.json", "a.b", [1, {"c": None}], root=root),
    "dir": lambda root: ensure_dir("x/y/z", root=root),
    "absent": lambda root: ensure_absent("old.txt", root=root),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("was there\n")
    (folder / "old.txt").write_text("old")
    (folder / "a.json").write_text('{"z": 1}\n')
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def status(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {str(path): (each.st_ino, each.st_mtime_ns) for path, each in found.items()}


@pytest.mark.parametrize("kind", DO)
def test_made_twice_it_changes_nothing(root: Path, kind: str) -> None:
    assert DO[kind](root).changed
    before = status(root)
    again = DO[kind](root)
    assert not again.changed and again.before is None
    assert status(root) == before, "not even written again"


@task
def ens_one(kind: str, root: Path) -> Ensured:
    done: Ensured = DO[kind](root)
    return done


@task(compensate="always")
def ens_all(root: Path) -> None:
    for do in DO.values():
        do(root)
    raise RuntimeError("and now it is called off")


@task
async def ens_async(root: Path) -> list[bool]:
    return [do(root).changed for do in DO.values()]


def test_in_a_task_it_is_a_tool_and_a_replay_does_nothing(root: Path) -> None:
    with Holdfast("memory://") as hf:
        done = hf.run(ens_one, "line", root, id="t")
        (root / "a.txt").write_text("somebody took the line away\n")
        assert hf.run(ens_one, "line", root, id="t") == done
        assert (root / "a.txt").read_text() == "somebody took the line away\n"
        (call,) = hf.task("t").outputs
        assert (call.name, call.kind) == ("ensure_line", "tool")
        assert done.before is not None and done.before.content is not None
        with hf.open(done.before.content) as file:
            assert file.read() == b"was there\n"
        assert hf.run(ens_async, root, id="a") == [True] * len(DO)


def test_what_a_task_ensured_is_put_back_when_it_is_called_off(root: Path) -> None:
    (root / "a.txt").chmod(0o640)
    before = tree(root)
    with Holdfast("memory://") as hf:
        with pytest.raises(TaskFailed):
            hf.run(ens_all, root, id="t")
        assert {undone.status for undone in hf.task("t").compensation} == {"undone"}
    assert tree(root) == before
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640


def test_what_somebody_changed_since_is_not_put_back(root: Path) -> None:
    @task(name="ens_changed", compensate="always")
    def work() -> None:
        ensure_line(root / "a.txt", "a line")
        (root / "a.txt").write_text("an edit\n")
        raise RuntimeError

    with Holdfast("memory://") as hf:
        with pytest.raises(TaskFailed):
            hf.run(work, id="t")
        (undone,) = hf.task("t").compensation
        assert undone.status == "could not be undone" and "was changed since" in undone.why
    assert (root / "a.txt").read_text() == "an edit\n"


@pytest.mark.parametrize("kind", [kind for kind in DO if kind != "dir"])
@pytest.mark.parametrize("when", ["before the change", "after the change"])
@pytest.mark.parametrize("edited", [False, True])
def test_a_crash_around_the_change_does_not_lose_what_was_there(
    root: Path, kind: str, when: str, edited: bool, monkeypatch: Any
) -> None:
    was = tree(root)
    put, crash = replacement.put, [True]

    def dying(place: Path, seen: Any, wanted: Any) -> bool:
        if crash and when == "before the change":
            crash.pop()
            raise Crash
        done = put(place, seen, wanted)
        if crash:
            crash.pop()
            raise Crash
        return done

    monkeypatch.setattr("holdfast.workspace.ensure.put", dying)
    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(ens_one, kind, root, id="t")
        if edited and when == "before the change":
            for name in ("a.txt", "old.txt"):
                (root / name).write_text("an edit in between\n")
            was = {name: (root / name).read_bytes() if (root / name).is_file() else b""
                   for name in was}  # fmt: skip
        done = hf.run(ens_one, kind, root, id="t")
        assert done.changed and done.before is not None
        name = str(Path(done.path).relative_to(root))
        if name in was:
            assert done.before.content is not None
            with hf.open(done.before.content) as file:
                assert file.read() == was[name]
        else:
            assert done.before.content is None


def test_large_content_goes_by_reference(root: Path, tmp_path: Path) -> None:
    large = "0123456789abcdef" * 20_000

    @step_free
    def work() -> bool:
        ensure_file("large.txt", large, root=root)
        made = ensure_file("again.bin", keep([b"x" * 3_000_000]), root=root)
        return ensure_file("large.txt", "small", root=root).changed and made.changed

    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(work, id="t")
        log = (tmp_path / "w/tasks/t/events.jsonl").read_bytes()
        assert len(log) < 10_000
        assert hf.verify().sound
    assert (root / "again.bin").stat().st_size == 3_000_000


def step_free(fn: Any) -> Any:
    return task(name=f"ens_{fn.__name__}_{id(fn)}")(fn)


@pytest.mark.parametrize(
    ("there", "line", "then"),
    [
        (b"a\r\nb\r\n", "c", b"a\r\nb\r\nc\r\n"),
        (b"a\nb", "c", b"a\nb\nc\n"),
        (b"a\nb", "b", b"a\nb"),
        (b"a\r\nb", "a", b"a\r\nb"),
        (b"", "c", b"c\n"),
        (b"\xef\xbb\xbfa\n", "a", b"\xef\xbb\xbfa\n"),
        (b"\xef\xbb\xbf", "a", b"\xef\xbb\xbfa\n"),
        ("ü\n".encode(), "ü", "ü\n".encode()),
        (b"abc\n", "b", b"abc\nb\n"),
    ],
)
def test_a_line_comes_with_the_endings_of_its_file(
    tmp_path: Path, there: bytes, line: str, then: bytes
) -> None:
    (tmp_path / "f").write_bytes(there)
    ensure_line(tmp_path / "f", line)
    assert (tmp_path / "f").read_bytes() == then
    assert not ensure_line(tmp_path / "f", line).changed


@pytest.mark.parametrize(
    ("name", "there", "then"),
    [
        ("Makefile", "all:\n", "all:\n# BEGIN m\nx\n# END m\n"),
        ("a.ts", "", "// BEGIN m\nx\n// END m\n"),
        ("a.md", "# A", "# A\n<!-- BEGIN m -->\nx\n<!-- END m -->\n"),
        ("a.css", "", "/* BEGIN m */\nx\n/* END m */\n"),
        ("a", "1\r\n# BEGIN m\r\nold\r\n# END m\r\n2\r\n",
         "1\r\n# BEGIN m\r\nx\r\n# END m\r\n2\r\n"),
        ("b", "1\n  # BEGIN m\n# END m\n2", "1\n# BEGIN m\nx\n# END m\n2"),
        ("c", "# BEGIN m\nold\n# END m", "# BEGIN m\nx\n# END m"),
        ("d", "\ufeff# BEGIN m\nold\n# END m\n2\n", "\ufeff# BEGIN m\nx\n# END m\n2\n"),
    ],
)  # fmt: skip
def test_a_block_stands_between_its_marks_once(
    tmp_path: Path, name: str, there: str, then: str
) -> None:
    place = tmp_path / name
    place.write_bytes(there.encode())
    ensure_block(place, "m", "x\n")
    assert place.read_bytes().decode() == then
    assert not ensure_block(place, "m", "x").changed


@pytest.mark.parametrize(
    ("there", "keys", "value", "then"),
    [
        ('{"a": 1}', "b", True, '{"a": 1, "b": true}'),
        ('{\n\t"a": 1\n}\n', "a", 2, '{\n\t"a": 2\n}\n'),
        ('{\r\n    "a": []\r\n}\r\n', ["a", 0, "b"], "ü",
         '{\r\n    "a": [\r\n        {\r\n            "b": "ü"\r\n        }\r\n    ]\r\n}\r\n'),
        ("[1]\n", [0], True, "[true]\n"),
        ('{"a": 1.0}', "a", 1, '{"a": 1}'),
        ('{"a": "\\u00fc"}', "b", "ö", '{"a": "\\u00fc", "b": "\\u00f6"}'),
        ("", "a.b", 1, '{\n  "a": {\n    "b": 1\n  }\n}\n'),
    ],
)  # fmt: skip
def test_a_key_has_its_value_and_the_rest_stays_as_it_is(
    tmp_path: Path, there: str, keys: Any, value: Any, then: str
) -> None:
    (tmp_path / "a.json").write_bytes(there.encode())
    ensure_json(tmp_path / "a.json", keys, value)
    assert (tmp_path / "a.json").read_bytes().decode() == then
    assert not ensure_json(tmp_path / "a.json", keys, value).changed


@pytest.mark.parametrize(
    ("there", "do", "why"),
    [
        (b"\xff\xfe", lambda p: ensure_line(p, "x"), "no text in UTF-8"),
        (b"a\0b", lambda p: ensure_block(p, "m", "x"), "zero byte"),
        (b"{", lambda p: ensure_json(p, "a", 1), "no JSON"),
        (b'{"a":1,"a":2}', lambda p: ensure_json(p, "b", 1), "same key twice"),
        (b'{"a": NaN}', lambda p: ensure_json(p, "b", 1), "NaN"),
        (b'{"a": 1}', lambda p: ensure_json(p, "a.b", 1), "can't stand there"),
        (b"[]", lambda p: ensure_json(p, [3], 1), "can't stand there"),
        (b"{}", lambda p: ensure_json(p, "a", {1, 2}), "no JSON value"),
        (b"", lambda p: ensure_line(p, "a\nb"), "more than one line"),
        (b"# BEGIN m\n", lambda p: ensure_block(p, "m", "x"), "begun 1 times and ended 0"),
        (b"# END m\n# BEGIN m\n", lambda p: ensure_block(p, "m", "x"), "mend it by hand"),
        (b"", lambda p: ensure_block(p, "m", "# END m"), "marks its own"),
        (b"", lambda p: ensure_block(p, "a\nb", "x"), "can't mark a block"),
        (b"", lambda p: ensure_file(p, "\ud800"), "UTF-8"),
        (b"", lambda p: ensure_line(p / "x", "y"), "read|in the way"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_changed(
    tmp_path: Path, there: bytes, do: Any, why: str
) -> None:
    (tmp_path / "f").write_bytes(there)
    with pytest.raises(BadInput, match=why):
        do(tmp_path / "f")
    assert tree(tmp_path) == {"f": there}


def test_json_has_no_comments_to_mark_a_block_with(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no comments"):
        ensure_block(tmp_path / "a.json", "m", "x")


def test_permissions_and_symlinks_inside_stay(root: Path) -> None:
    (root / "a.txt").chmod(0o750)
    (root / "link.txt").symlink_to("a.txt")
    assert ensure_line("link.txt", "x", root=root).path == str(root / "a.txt")
    assert (root / "link.txt").is_symlink()
    assert (root / "a.txt").read_text() == "was there\nx\n"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o750
    assert ensure_file("run.sh", "#!/bin/sh\n", root=root, mode=0o755).changed
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not ensure_file("run.sh", "#!/bin/sh\n", root=root, mode=0o755).changed
    assert ensure_file("run.sh", "#!/bin/sh\n", root=root, mode=0o700).changed


@pytest.mark.parametrize("path", ["../out.txt", "/etc/passwd", "link/x", "file", "a/../../out.txt"])
@pytest.mark.parametrize(
    "do",
    [
        lambda p, root: ensure_file(p, "x", root=root),
        lambda p, root: ensure_line(p, "x", root=root),
        lambda p, root: ensure_dir(p, root=root),
        lambda p, root: ensure_absent(p, root=root),
    ],
)
def test_nothing_outside_of_the_root_is_touched(
    root: Path, tmp_path: Path, path: str, do: Any
) -> None:
    (tmp_path / "out.txt").write_text("outside")
    (tmp_path / "outer").mkdir()
    (root / "link").symlink_to(tmp_path / "outer")
    (root / "file").symlink_to(tmp_path / "out.txt")
    with pytest.raises(BadInput, match=r"is outside of|is no file"):
        do(path, root)
    assert (tmp_path / "out.txt").read_text() == "outside"
    assert list((tmp_path / "outer").iterdir()) == []


def test_folders_pipes_and_symlinks_are_not_taken_for_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to("a.txt")
    for name, what in (("pipe", "something else"), (".", "folder|outside")):
        with pytest.raises(BadInput, match=what):
            ensure_line(name, "x", root=root)
    with pytest.raises(BadInput, match="is no file, but a symlink"):
        ensure_absent("link", root=root)
    (root / "folder").mkdir()
    with pytest.raises(BadInput, match="a folder"):
        ensure_absent("folder", root=root)
    with pytest.raises(BadInput, match="in the way"):
        ensure_dir("a.txt/x", root=root)


def test_lines_that_many_ensure_at_once_are_all_there(tmp_path: Path) -> None:
    def add(n: int) -> None:
        for m in range(10):
            ensure_line(tmp_path / "f", f"line {n} {m}")

    threads = [threading.Thread(target=add, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    lines = (tmp_path / "f").read_text().splitlines()
    assert sorted(lines) == sorted(f"line {n} {m}" for n in range(6) for m in range(10))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_an_edit_in_the_very_moment_is_not_lost(root: Path, monkeypatch: Any) -> None:
    exchange, edits = replacement.exchange, ["edited by an editor\n"]

    def just_before(new: str, name: str, folder: int) -> None:
        if edits:
            (root / "tmp").write_text(edits.pop())
            os.replace(root / "tmp", root / "a.txt")
        exchange(new, name, folder)

    monkeypatch.setattr(replacement, "exchange", just_before)
    ensure_line("a.txt", "a line", root=root)
    assert (root / "a.txt").read_text() == "edited by an editor\na line\n"


def test_a_cancelled_task_puts_back_what_it_ensured(root: Path) -> None:
    flavor = Flavor("sync")

    @flavor.task
    async def work() -> None:
        ensure_file("a.txt", "of the task", root=root)
        ensure_absent("old.txt", root=root)
        raise Crash

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        assert not (root / "old.txt").exists()
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert (root / "a.txt").read_text() == "was there\n"
    assert (root / "old.txt").read_text() == "old"


def test_outside_of_a_task_nothing_is_kept_to_put_back() -> None:
    before = before_module.Before("0" * 64, None, 0o644)
    assert isinstance(before.content, Artifact | None)
    with pytest.raises(BadInput, match="was not kept"):
        before.seen()
