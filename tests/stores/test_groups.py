"""Commits in groups, one decision at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from holdfast.errors import StoreError
from holdfast.stores import groups
from holdfast.stores.groups import GroupedWrite, Groups


class Committing:
    """Notes what is committed together; the jobs that it is told to it leaves, or refuses."""

    def __init__(self) -> None:
        self.groups: list[list[GroupedWrite]] = []
        self.refused: dict[GroupedWrite, StoreError] = {}
        self.interrupts: list[BaseException] = []

    def __call__(self, jobs: Sequence[GroupedWrite]) -> None:
        self.groups.append(list(jobs))
        if self.interrupts:
            jobs[0].done = True
            raise self.interrupts.pop()
        for job in jobs:
            if job in self.refused:
                job.fail(self.refused[job])
            job.done = True


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Committing:
    monkeypatch.setattr(groups, "_LINGER_S", 3600)  # nothing is done by itself
    return Committing()


def test_what_was_added_goes_with_the_first_that_is_waited_for(commit):
    made: Groups[GroupedWrite] = Groups(commit)
    one, two, three = (GroupedWrite() for _ in range(3))
    made.add(one)
    made.add(two)
    assert commit.groups == [] and not one.done
    made.do(three)
    assert commit.groups == [[one, two, three]] and one.done and two.done and three.done
    made.wait(one)
    made.settle()
    assert commit.groups == [[one, two, three]], "there is nothing more to do"
    four = GroupedWrite()
    made.add(four)
    made.settle()
    assert commit.groups[1:] == [[four]]
    made.close()
    assert commit.groups[2:] == []


def test_closing_writes_what_is_left_and_ends_the_thread(commit):
    made: Groups[GroupedWrite] = Groups(commit)
    one = GroupedWrite()
    made.add(one)
    (thread,) = made._threads
    made.close()
    assert one.done and commit.groups == [[one]]
    thread.join(10)
    assert not thread.is_alive()


def test_who_waits_is_told_why_a_job_was_refused_and_others_are_not(commit):
    made: Groups[GroupedWrite] = Groups(commit)
    good, bad = GroupedWrite(), GroupedWrite()
    commit.refused[bad] = StoreError("no")
    made.add(good)
    made.add(bad)
    made.settle()
    made.wait(good)
    for _ in range(2):
        with pytest.raises(StoreError, match="no"):
            made.wait(bad)
    made.close()


def test_after_an_interrupt_the_next_leader_commits_what_was_not_done(commit):
    made: Groups[GroupedWrite] = Groups(commit)
    one, two, three = (GroupedWrite() for _ in range(3))
    made.add(one)
    made.add(two)
    commit.interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        made.wait(two)
    assert one.done and not two.done and not two.bells
    made.do(three)
    assert commit.groups == [[one, two], [two, three]] and three.done
    made.close()


def test_who_finds_another_leading_sleeps_until_the_job_is_done(monkeypatch):
    monkeypatch.setattr(groups, "_LINGER_S", 3600)
    monkeypatch.setattr(groups, "_LOOK_UP_S", 3600)  # only a bell wakes it
    entered, go = threading.Event(), threading.Event()
    found: list[list[GroupedWrite]] = []

    def commit(jobs: Sequence[GroupedWrite]) -> None:
        found.append(list(jobs))
        if len(found) == 1:
            entered.set()
            assert go.wait(60)
        for job in jobs:
            job.done = True

    made: Groups[GroupedWrite] = Groups(commit)
    jobs = [GroupedWrite() for _ in range(4)]
    leader = threading.Thread(target=made.do, args=(jobs[0],))
    leader.start()
    assert entered.wait(60)
    others = [threading.Thread(target=made.do, args=(job,)) for job in jobs[1:]]
    for other in others:
        other.start()
    end = time.monotonic() + 60
    while not all(job.bells for job in jobs[1:]):
        assert time.monotonic() < end, "they never stood in line"
    assert made._lead() is False, "one leads at a time"
    go.set()
    for thread in (leader, *others):
        thread.join(60)
        assert not thread.is_alive()
    assert found[0] == [jobs[0]] and sorted(map(id, found[1])) == sorted(map(id, jobs[1:]))
    assert len(found) == 2 and not any(job.bells for job in jobs) and not made._queue
    made.close()


def test_what_nobody_waits_for_is_done_soon(monkeypatch):
    monkeypatch.setattr(groups, "_LINGER_S", 0.001)
    done = threading.Event()
    found: list[int] = []

    def commit(jobs: Sequence[GroupedWrite]) -> None:
        found.append(len(jobs))
        for job in jobs:
            job.done = True
        done.set()

    made: Groups[GroupedWrite] = Groups(commit)
    for _ in range(3):
        done.clear()
        made.add(GroupedWrite())
        assert done.wait(60)
    assert len(made._threads) == 1
    made.close()
    assert sum(found) == 3
