"""The files of a task: written whole, kept in every version, the same on a replay."""

from __future__ import annotations

import io
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadInput,
    CodeChanged,
    Conflict,
    Holdfast,
    HoldfastError,
    Retention,
    Retry,
    TaskFailed,
    TaskNotFound,
    checkpoint,
    restore,
)
from holdfast.core.filing import clashing
from holdfast.workspace import files
from tests.flavors import BOUND_S, Background, Crash, Flavor, Ready, eventually


@pytest.fixture(params=["sync", "async"])
def flavor(request: Any) -> Flavor:
    return Flavor(request.param)


@pytest.fixture(params=["memory://", "w", "sqlite:///w.db"])
def hf(request: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    with Holdfast(request.param) as opened:
        yield opened


remove: Any = files.remove


def soon(flavor: Flavor, given: Any) -> Any:
    """Something to await in either flavor."""
    return given if flavor.is_async else Ready(given)


def test_what_is_written_is_read_listed_and_removed(hf: Any, flavor: Flavor) -> None:
    @flavor.task
    async def work() -> list[Any]:
        made = await soon(flavor, files.write("a/notes.md", "Ünïcødé"))
        await soon(flavor, files.write("data.bin", bytes(range(256))))
        await soon(flavor, files.write("gone.txt", "soon"))
        await soon(flavor, remove("gone.txt"))
        names = [file.name for file in await soon(flavor, files.list())]
        with await soon(flavor, files.open("data.bin")) as file:
            file.seek(-2, io.SEEK_END)
            end = file.read()
        text = await soon(flavor, files.read_text("a/notes.md"))
        missing = await soon(flavor, files.version("gone.txt"))
        return [made.size_bytes, names, list(end), text, missing]

    assert hf.run(work, id="t") == [11, ["a/notes.md", "data.bin"], [254, 255], "Ünïcødé", None]
    assert [file.name for file in hf.files("t").list()] == ["a/notes.md", "data.bin"]
    assert hf.files("t").read("data.bin") == bytes(range(256))
    assert hf.files("t").versions("gone.txt")[0].size_bytes == 4
    assert hf.verify().sound


def test_a_replay_sees_what_the_first_run_saw_and_writes_nothing_again(
    hf: Any, flavor: Flavor
) -> None:
    seen: list[Any] = []
    crash = [True]

    @flavor.task
    async def work() -> None:
        first = await soon(flavor, files.write("a.txt", "one"))
        text = await soon(flavor, files.read_text("a.txt"))
        version = await soon(flavor, files.version("a.txt"))
        listed = await soon(flavor, files.list())
        second = await soon(flavor, files.write("a.txt", "two"))
        await soon(flavor, remove("b.txt"))
        seen.append((first, text, version, listed, second))
        if crash:
            crash.pop()
            raise Crash

    with pytest.raises(Crash):
        hf.run(work, id="t")
    hf.files("t").write("a.txt", "by a person")
    hf.files("t").write("b.txt", "by a person, too")
    hf.run(work, id="t")
    assert seen[0] == seen[1]
    assert seen[0][1] == "one"
    assert hf.files("t").read_text("a.txt") == "by a person"
    assert hf.files("t").read_text("b.txt") == "by a person, too"
    assert len(hf.files("t").versions("a.txt")) == 3


def test_a_state_of_the_past_has_its_files(hf: Any, flavor: Flavor) -> None:
    @flavor.task
    async def work() -> None:
        for text in ("one", "two", "three"):
            await soon(flavor, files.write("a.txt", text))
        await soon(flavor, remove("a.txt"))

    hf.run(work, id="t")
    versions = hf.files("t").versions("a.txt")
    assert [hf.files("t").read_text("a.txt", each.version) for each in versions] == [
        "one", "two", "three",
    ]  # fmt: skip
    assert [hf.files("t", at=each.version).read_text("a.txt") for each in versions] == [
        "one", "two", "three",
    ]  # fmt: skip
    assert hf.files("t").list() == ()
    with pytest.raises(BadInput, match=r"has no file 'a\.txt'"):
        hf.files("t").read("a.txt")
    with pytest.raises(BadInput, match="has no version 99"):
        hf.files("t").read("a.txt", 99)
    with pytest.raises(BadInput, match="can't be written"):
        hf.files("t", at=versions[0].version).write("a.txt", "x")


@pytest.mark.parametrize("change", ["content", "name"])
def test_code_that_writes_something_else_is_noticed(flavor: Flavor, change: str) -> None:
    now = {"name": "a.b", "content": "one"}
    crash = [True]

    @flavor.task
    async def work() -> None:
        await soon(flavor, files.write(now["name"], now["content"]))
        if crash:
            crash.pop()
            raise Crash

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        before = hf.task("t").seq
        now[change] = "a_b"
        assert not hf.check("t").fits
        with pytest.raises(CodeChanged, match=r"the log holds the file 'a.b' with other content"):
            hf.run(work, id="t")
        assert [file.name for file in hf.files("t").list()] == ["a.b"]
        now[change] = {"name": "a.b", "content": "one"}[change]
        assert hf.check("t").fits
        hf.run(work, id="t")
        assert hf.task("t").seq > before
        assert len(hf.files("t").versions("a.b")) == 1


def test_a_source_is_not_read_again_on_a_replay(tmp_path: Path, flavor: Flavor) -> None:
    (tmp_path / "in.txt").write_text("was there")
    crash = [True]

    @flavor.task
    async def work() -> str:
        await soon(flavor, files.write("copy.txt", tmp_path / "in.txt"))
        if crash:
            crash.pop()
            raise Crash
        return await soon(flavor, files.read_text("copy.txt"))

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        (tmp_path / "in.txt").unlink()
        assert hf.run(work, id="t") == "was there"


def test_a_file_is_written_piece_by_piece_or_not_at_all(flavor: Flavor) -> None:
    crash = [True]

    @flavor.task
    async def work() -> int:
        if flavor.is_async:
            async with files.create("long.txt") as out:
                for n in range(200_000):
                    out.write(b"line %d\n" % n)
        else:
            with files.create("long.txt") as out:
                for n in range(200_000):
                    out.write(b"line %d\n" % n)
        with suppress(ZeroDivisionError):
            if flavor.is_async:
                async with files.create("half.txt") as out:
                    out.write(b"%d" % (1 // 0))
            else:
                with files.create("half.txt") as out:
                    out.write(b"%d" % (1 // 0))
        if crash:
            crash.pop()
            raise Crash
        with await soon(flavor, files.open("long.txt")) as file:
            return sum(1 for _ in file)

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        assert hf.run(work, id="t") == 200_000
        assert [file.name for file in hf.files("t").list()] == ["long.txt"]
        assert len(hf.files("t").versions("long.txt")) == 1


def test_what_is_appended_is_there_once_whatever_happens(hf: Any, flavor: Flavor) -> None:
    crashes = [3, 7]
    retried: list[str] = []

    @flavor.step(retry=Retry(attempts=2, delay_s=0, jitter=0))
    async def more(line: str) -> None:
        await soon(flavor, files.append("log.txt", line))
        if line not in retried:
            retried.append(line)
            raise ConnectionError

    @flavor.task
    async def work() -> str:
        for n in range(10):
            await soon(flavor, files.append("log.txt", f"line {n}\n"))
            await more(f"more {n}\n")
            if n in crashes:
                crashes.remove(n)
                raise Crash
        return await soon(flavor, files.read_text("log.txt"))

    for _ in range(2):
        with pytest.raises(Crash):
            hf.run(work, id="t")
    assert hf.run(work, id="t") == "".join(f"line {n}\nmore {n}\n" for n in range(10))
    versions = hf.files("t").versions("log.txt")
    assert [len(hf.files("t").read("log.txt", file.version)) for file in versions] == [
        7 * count for count in range(1, 21)
    ]


def test_code_that_appends_something_else_is_noticed(flavor: Flavor) -> None:
    lines = ["one\n"]
    crash = [True]

    @flavor.task
    async def work() -> None:
        await soon(flavor, files.append("log.txt", lines[0]))
        if crash:
            crash.pop()
            raise Crash

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        lines[0] = "two\n"
        with pytest.raises(CodeChanged):
            hf.run(work, id="t")


def test_branches_that_append_to_one_file_lose_nothing(flavor: Flavor) -> None:
    @flavor.task
    async def work() -> list[str]:
        def branch(n: int) -> Any:
            async def append() -> None:
                for m in range(5):
                    await soon(flavor, files.append("log.txt", f"{n} {m}\n"))

            return append

        await flavor.gather(*(branch(n) for n in range(4)))
        return (await soon(flavor, files.read_text("log.txt"))).splitlines()

    with Holdfast("memory://") as hf:
        lines = hf.run(work, id="t")
        assert sorted(lines) == [f"{n} {m}" for n in range(4) for m in range(5)]
        for n in range(4):
            assert [line for line in lines if line[0] == str(n)] == [f"{n} {m}" for m in range(5)]


def test_who_expects_another_version_is_told_of_both_and_changes_nothing(
    hf: Any, flavor: Flavor
) -> None:
    outcomes: list[str] = []
    crash = [True]

    @flavor.task
    async def work() -> str:
        await soon(flavor, files.write("plan.md", "mine", expected=None))
        seen = await soon(flavor, files.version("plan.md"))
        await soon(flavor, files.write("plan.md", "newer", expected=seen))
        try:
            await soon(flavor, files.write("plan.md", "stale", expected=seen))
        except Conflict as conflict:
            outcomes.append(str(conflict))
        if crash:
            crash.pop()
            raise Crash
        return await soon(flavor, files.read_text("plan.md"))

    with pytest.raises(Crash):
        hf.run(work, id="t")
    second = hf.files("t").version("plan.md")
    hf.files("t").remove("plan.md", expected=second, by="ada")
    hf.files("t").write("plan.md", "after all", expected=None, by="ada")
    assert hf.run(work, id="t") == "after all"
    assert outcomes[0] == outcomes[1], "a replay is told the same"
    first, second = (file.version for file in hf.files("t").versions("plan.md")[:2])
    assert f"version {first} was expected, and version {second} is there" in outcomes[0]
    assert hf.files("t").versions("plan.md")[-1].by == "ada"
    with pytest.raises(Conflict, match=rf"version {first} was expected, and version \d+ is there"):
        hf.files("t").write("plan.md", "x", expected=first)
    with pytest.raises(Conflict, match="no such file was expected"):
        hf.files("t").write("plan.md", "x", expected=None)
    with pytest.raises(BadInput, match="expected='1'"):
        hf.files("t").write("plan.md", "x", expected="1")
    assert hf.files("t").read_text("plan.md") == "after all"


def test_of_many_who_write_at_once_one_is_first_and_the_others_are_told(hf: Any) -> None:
    flavor = Flavor("sync")

    @flavor.task
    async def work() -> None:
        files.write("count", "0")

    hf.run(work, id="t")
    told = [0]

    def add_one() -> None:
        while True:
            file = hf.files("t").list()[0]
            number = int(hf.files("t").read_text("count", file.version))
            try:
                hf.files("t").write("count", str(number + 1), expected=file.version)
            except Conflict:
                told[0] += 1
            else:
                return

    threads = [threading.Thread(target=add_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert hf.files("t").read_text("count") == "8"
    assert len(hf.files("t").versions("count")) == 9


def test_a_person_writes_while_the_task_is_driven(tmp_path: Path, flavor: Flavor) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @flavor.step
    async def wait() -> None:
        begun.set()
        await flavor.wait(go_on)

    @flavor.task
    async def work() -> str:
        await soon(flavor, files.write("a.txt", "one"))
        await wait()
        return await soon(flavor, files.read_text("a.txt"))

    with Holdfast(tmp_path / "w") as hf, Holdfast(tmp_path / "w") as other:
        run = Background(hf.run, work, id="t")
        assert begun.wait(BOUND_S)
        seen = eventually(lambda: other.files("t").version("a.txt"))
        two = other.files("t").write("a.txt", "two", expected=seen, by="ada")
        with pytest.raises(Conflict, match=f"version {two.version} is there, written by ada"):
            other.files("t").write("a.txt", "three", expected=seen)
        go_on.set()
        assert run.result() == "two"
        assert other.verify().sound


def test_each_attempt_at_a_step_looks_and_writes_for_itself(flavor: Flavor) -> None:
    tries = []

    @flavor.step(retry=Retry(attempts=3, delay_s=0, jitter=0))
    async def merge() -> str:
        seen = await soon(flavor, files.version("a.txt"))
        tries.append(seen)
        if len(tries) == 1:
            await soon(flavor, files.write("a.txt", "somebody else's", expected=seen))
        await soon(flavor, files.write("a.txt", f"try {len(tries)}", expected=seen))
        return await soon(flavor, files.read_text("a.txt"))

    @flavor.task
    async def work() -> str:
        await soon(flavor, files.write("a.txt", "one"))
        return await merge()

    with Holdfast("memory://") as hf:
        assert hf.run(work, id="t") == "try 2"
        assert len(tries) == 2 and tries[0] < tries[1]


def test_a_step_that_died_after_its_write_finds_it_made(flavor: Flavor) -> None:
    crash = [True]

    @flavor.step
    async def save(seen: int) -> str:
        await soon(flavor, files.write("a.txt", "two", expected=seen))
        if crash:
            crash.pop()
            raise Crash
        return "saved"

    @flavor.task
    async def work() -> str:
        await soon(flavor, files.write("a.txt", "one"))
        return await save(await soon(flavor, files.version("a.txt")))

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        assert hf.run(work, id="t") == "saved"
        assert hf.files("t").read_text("a.txt") == "two"


def test_in_branches_the_last_write_in_the_log_counts(flavor: Flavor) -> None:
    @flavor.task
    async def work() -> str:
        def branch(n: int) -> Any:
            async def write() -> None:
                await soon(flavor, files.write("a.txt", f"branch {n}"))
                await soon(flavor, files.write(f"{n}.txt", f"branch {n}"))

            return write

        await flavor.gather(*(branch(n) for n in range(4)))
        return await soon(flavor, files.read_text("a.txt"))

    with Holdfast("memory://") as hf:
        last = hf.run(work, id="t")
        versions = hf.files("t").versions("a.txt")
        assert len(versions) == 4
        assert hf.files("t").read_text("a.txt", versions[-1].version) == last
        assert len(hf.files("t").list()) == 5


def test_files_outlive_a_checkpoint(tmp_path: Path, flavor: Flavor) -> None:
    crash = [True]

    @flavor.task
    async def work() -> str:
        turn = restore(0)
        while turn < 3:
            await soon(flavor, files.write("log.txt", f"turn {turn}"))
            await soon(flavor, files.write(f"{turn}.txt", "x"))
            turn = checkpoint(turn + 1)
            if turn == 2 and crash:
                crash.pop()
                raise Crash
        return await soon(flavor, files.read_text("log.txt"))

    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(work, id="t")
    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(work, id="t") == "turn 2"
        assert len(hf.files("t").versions("log.txt")) == 3
        assert [file.name for file in hf.files("t").list()] == [
            "0.txt", "1.txt", "2.txt", "log.txt",
        ]  # fmt: skip


def test_thousands_of_files_outlive_a_checkpoint(tmp_path: Path) -> None:
    flavor = Flavor("sync")
    crash = [True]

    @flavor.task
    async def work() -> list[str]:
        if restore(0) == 0:
            for n in range(3000):
                files.write(f"{n % 10}/{n}.txt", str(n))
            checkpoint(1)
        if crash:
            crash.pop()
            raise Crash
        return [files.read_text("7/2997.txt"), str(len(files.list()))]

    with Holdfast(tmp_path / "w", sync=False) as hf, pytest.raises(Crash):
        hf.run(work, id="t")
    with Holdfast(tmp_path / "w", sync=False) as hf:
        assert hf.run(work, id="t") == ["2997", "3000"]
        hf.gc(Retention(grace=timedelta(0)))
        assert len(hf.task("t").state.files) == 3000
        assert hf.verify().sound


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", "a\0b", "a\nb", "..\\a", "a\\b", "a.",
     "a ", "a./b", "C:x", "x" * 300, "\ud800", ".holdfast-1", "a/.holdfast-x", 7, None],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_on_some_disk_is_refused(name: Any) -> None:
    flavor = Flavor("sync")

    @flavor.task
    async def work() -> None:
        files.write(name, "x")

    with Holdfast("memory://") as hf:
        with pytest.raises(TaskFailed, match="BadInput"):
            hf.run(work, id="t")
        with pytest.raises(BadInput, match="name"):
            hf.files("t").write(name, "x")
        assert hf.files("t").list() == ()


@pytest.mark.parametrize(
    ("there", "name"),
    [("Notes.md", "notes.md"), ("caf\u00e9", "cafe\u0301"), ("a", "a/b"), ("a/b", "a"),
     ("Docs/a", "docs/b"), ("straße", "STRASSE"), ("caf\u00c9/x", "cafe\u0301/y")],
)  # fmt: skip
def test_names_that_are_one_file_on_some_disks_are_refused(there: str, name: str) -> None:
    flavor = Flavor("sync")
    crash = [True]

    @flavor.task
    async def work() -> str:
        files.write(there, "x")
        try:
            files.write(name, "y")
        except BadInput as error:
            files.remove(there)
            files.write(name, "y")  # now there is room
            if crash:
                crash.pop()
                raise Crash from None
            return str(error)
        return "it was written"

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(work, id="t")
        assert "would be in the way of" in hf.run(work, id="t"), "also on the replay"
        with pytest.raises(BadInput, match="in the way"):
            hf.files("t").write(there, "z")


def test_names_beside_each_other_are_not_in_the_way() -> None:
    assert clashing("a/b", ["a/c", "a.md", "b", "ab"]) == ""


def test_they_belong_in_a_task() -> None:
    for call in (files.list, lambda: files.read("a"), lambda: files.write("a", "x")):
        with pytest.raises(HoldfastError, match=r"files\.\w+\(\) was called outside a task"):
            call()
    with Holdfast("memory://") as hf, pytest.raises(TaskNotFound):
        hf.files("nobody")


def test_what_is_no_content_or_no_text_is_refused() -> None:
    flavor = Flavor("sync")

    @flavor.task
    async def work(kind: str) -> None:
        if kind == "number":
            files.write("a", 7)  # type: ignore[arg-type]
        elif kind == "surrogate":
            files.write("a", "\ud800")
        elif kind == "binary":
            files.write("a", b"\xff")
            files.read_text("a")
        else:
            files.read("nothing")

    with Holdfast("memory://") as hf:
        for kind, why in (
            ("number", "not iterable"), ("surrogate", "UTF-8"), ("binary", "no text in utf-8"),
            ("missing", "has no file 'nothing'"),
        ):  # fmt: skip
            with pytest.raises(TaskFailed, match=why):
                hf.run(work, kind, id=kind)


def test_old_versions_survive_cleaning_up_copying_and_archiving(tmp_path: Path) -> None:
    flavor = Flavor("sync")

    @flavor.task
    async def work() -> None:
        restore(0)
        files.write("a.txt", "one" * 1000)
        files.write("a.txt", "two" * 1000)
        checkpoint(1)
        files.write("b.txt", "three" * 1000)
        files.remove("b.txt")

    def told(hf: Holdfast) -> list[bytes]:
        mine = hf.files("t")
        return [
            mine.read(name, each.version)
            for name in ("a.txt", "b.txt")
            for each in mine.versions(name)
        ]

    with Holdfast(tmp_path / "w") as hf:
        hf.run(work, id="t")
        everything = told(hf)
        assert [len(each) for each in everything] == [3000, 3000, 5000]
        hf.store.put_blob(b"what nobody names")
        assert hf.gc(Retention(grace=timedelta(0))).blobs == 1
        assert told(hf) == everything
        hf.copy_to(f"sqlite:///{tmp_path}/copy.db", ["t"])
        hf.archive_to(tmp_path / "a.zip", ["t"])
    with Holdfast(f"sqlite:///{tmp_path}/copy.db") as hf:
        assert told(hf) == everything and hf.verify().sound
    with Holdfast(tmp_path / "again") as hf:
        hf.restore_from(tmp_path / "a.zip")
        assert told(hf) == everything and hf.verify().sound
