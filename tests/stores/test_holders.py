"""The files of holders, record by record: who has a ticket, who is alive, and who has mail."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.files import holders
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.holders import (
    HOLDERS,
    RECORD_BYTES,
    HolderClaim,
    HoldingStore,
    look,
    may_be_alive,
    ring,
    settle,
    this_process,
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def holder(root: int) -> Iterator[HoldingStore]:
    made = HoldingStore(Disk(), lambda: root)
    yield made
    made.close()


def content(tmp_path: Path, claim: HolderClaim) -> list[bytes]:
    data = (tmp_path / HOLDERS / claim.file).read_bytes()
    assert len(data) % RECORD_BYTES == 0
    lines = data.split(b"\n")
    assert lines.pop() == b"" and {len(line) for line in lines} == {RECORD_BYTES - 1}
    return lines


def test_each_claim_has_a_record_and_a_ticket_that_is_never_given_twice(tmp_path, holder):
    before = time.time()
    one, two = holder.claim(), holder.claim()
    assert [(c.record, c.ticket) for c in (one, two)] == [(1, 1), (2, 2)]
    assert one.file == two.file and f"-{os.getpid()}-" in one.file
    head, *records = content(tmp_path, one)
    assert head == (b"held by process %d" % os.getpid()).ljust(30) + b"-"
    assert [record[:12] for record in records] == [b"%012d" % 1, b"%012d" % 2]
    assert all(before - 0.001 <= float(record[13:29]) <= time.time() for record in records)
    assert all(record[12:13] == b" " and record[29:] == b" -" for record in records)
    holder.drop(one)
    assert content(tmp_path, two)[1][:12] == b"0" * 12
    again = holder.claim()
    assert (again.record, again.ticket) == (1, 3)
    assert holder.claim().record == 3


def test_others_see_whether_a_ticket_stands_and_who_made_it_is_alive(holder, root):
    disk, claim = Disk(), holder.claim()
    seen = look(disk, root, claim)
    assert seen is not None and (seen.is_held, seen.is_alive) == (True, True)
    assert abs(time.time() - seen.renewed_at) < 60
    other = HolderClaim(claim.file, claim.record, claim.ticket + 1)
    assert (look(disk, root, other) or seen).is_held is False
    holder.drop(claim)
    gone = look(disk, root, claim)
    assert gone is not None and (gone.is_held, gone.is_alive) == (False, True)
    holder.close()
    assert look(disk, root, claim) is None
    assert look(disk, root, HolderClaim("../tasks", 1, 1)) is None


def test_a_renewal_is_seen_and_silence_is_told_in_seconds(tmp_path, holder, root, monkeypatch):
    disk, claim, other = Disk(), holder.claim(), holder.claim()
    now = time.time()
    monkeypatch.setattr(holders.time, "time", lambda: now + 100)
    assert 95 < holder.silent_s(claim) < 105
    holder.renew(claim)
    assert abs(holder.silent_s(claim)) < 0.001 and 95 < holder.silent_s(other) < 105
    seen = look(disk, root, claim)
    assert seen is not None and seen.renewed_at == pytest.approx(now + 100, abs=0.001)
    assert holder.silent_s(HolderClaim("another", 1, 1)) == math.inf
    path = tmp_path / HOLDERS / claim.file
    data = bytearray(path.read_bytes())
    data[RECORD_BYTES + 13 : RECORD_BYTES + 29] = b"x" * 16
    path.write_bytes(data)
    assert holder.silent_s(claim) == now + 100, "what makes no sense is long ago"


def test_mail_is_told_once_for_each_record_it_came_for(tmp_path, holder, root):
    disk, claims = Disk(), [holder.claim() for _ in range(3)]
    assert HoldingStore(disk, lambda: root).mail() == [] == holder.mail()
    ring(disk, root, claims[2])
    ring(disk, root, claims[0])
    marks = [line[-1:] for line in content(tmp_path, claims[0])]
    assert marks == [b"+", b"+", b"-", b"+"]
    assert holder.mail() == [1, 3]
    assert [line[-1:] for line in content(tmp_path, claims[0])] == [b"-"] * 4
    assert holder.mail() == []
    assert all(look(disk, root, claim).is_held for claim in claims)
    ring(disk, root, HolderClaim("gone", 1, 1))  # which nobody hears


def test_a_dead_holder_holds_no_more_once_it_is_settled(tmp_path, holder, root):
    disk, one, two = Disk(), holder.claim(), holder.claim()
    settle(disk, root, one)
    assert [look(disk, root, claim).is_held for claim in (one, two)] == [False, True]
    settle(disk, root, HolderClaim("gone", 1, 1))
    assert content(tmp_path, one)[1].startswith(b"0" * 12 + b" ")


def test_a_file_that_was_removed_is_made_anew_and_the_old_claims_are_left_alone(tmp_path, holder):
    old = holder.claim()
    holder.claim()
    (tmp_path / HOLDERS / old.file).unlink()
    new = holder.claim()
    assert new.file != old.file and new.record == 1 and new.ticket == 3
    holder.renew(old)
    holder.drop(old)
    assert holder.silent_s(old) == math.inf
    assert content(tmp_path, new)[1][:12] == b"%012d" % 3
    assert holder.claim().record == 2, "the record of another file is not given again"


NOW = b"%016.5f -\n" % 1763263536.12345


@pytest.mark.parametrize(
    ("records", "age_s", "is_kept"),
    [
        ([], 0, False),
        ([b"%012d " % 0 + NOW], 0, False),
        ([b"%012d " % 7 + NOW], 0, True),
        ([b"%012d " % 0 + NOW, b"%012d " % 7 + NOW], 0, True),
        ([b"%012d " % 7 + NOW], 29 * 24 * 3600, True),
        ([b"%012d " % 7 + NOW], 31 * 24 * 3600, False),
    ],
)
def test_what_the_dead_left_is_removed_once_nobody_needs_it(
    tmp_path, holder, records, age_s, is_kept
):
    (tmp_path / HOLDERS).mkdir(mode=0o700)
    left = tmp_path / HOLDERS / "host-1-left"
    left.write_bytes(b"held by process 1".ljust(30) + b"-\n" + b"".join(records))
    os.utime(left, (time.time() - age_s,) * 2)
    holder.claim()
    assert left.exists() is is_kept


class DiskOfASlowSweep(Disk):
    """While a holder's file is read, another thread takes over a task of the process that died."""

    def __init__(self, root: int, claim: HolderClaim) -> None:
        self.root, self.claim = root, claim
        self.seen: list[bool | None] = []

    def read_all(self, fd: int, offset: int = 0) -> bytes:
        seen = look(Disk(), self.root, self.claim)
        self.seen.append(seen.is_alive if seen is not None else None)
        return super().read_all(fd, offset)


def test_the_dead_do_not_look_alive_while_another_sweeps(tmp_path, root):
    (tmp_path / HOLDERS).mkdir(mode=0o700)
    left = tmp_path / HOLDERS / "host-1-left"
    left.write_bytes(b"held by process 1".ljust(30) + b"-\n" + b"%012d " % 7 + NOW)
    disk = DiskOfASlowSweep(root, HolderClaim(left.name, 1, 7))
    sweeping = HoldingStore(disk, lambda: root)
    sweeping.claim()
    sweeping.close()
    assert disk.seen and set(disk.seen) == {False}


def test_the_file_of_a_living_holder_is_never_removed(tmp_path, holder, root):
    other = HoldingStore(Disk(), lambda: root)
    claim = other.claim()
    other.drop(claim)
    holder.claim()
    assert (tmp_path / HOLDERS / claim.file).exists()
    other.close()
    assert not (tmp_path / HOLDERS / claim.file).exists()
    other.close()


def test_a_process_is_known_by_more_than_its_number():
    name = this_process()
    boot, namespace, pid, started = name.split(" ")
    assert pid == str(os.getpid()) and may_be_alive(name)
    assert not may_be_alive(f"{boot} {namespace} {pid} {int(started) + 1}")
    assert not may_be_alive(f"another {namespace} {pid} {started}")
    assert may_be_alive(f"{boot} another {pid} {int(started) + 1}")
    assert not may_be_alive(f"{boot} {namespace} {2**22 + 1} {started}")
    for odd in ("", "x", f"{boot} {namespace} x {started}", f"{name} more"):
        assert may_be_alive(odd)
