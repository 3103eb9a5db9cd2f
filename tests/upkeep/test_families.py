"""What belongs together stays together: parents and children, forks and what they were made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.stores.port import Facts
from holdfast.upkeep.families import Told, choose, families, pasts_needed, wanted
from holdfast.upkeep.retention import Retention, candidates

AT = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def ended(day: int, status: str = "completed", parent: str = "", origin: str = "") -> Facts:
    at = AT + day * DAY
    return Facts("job", status, parent=parent, created_at=at, updated_at=at, origin=origin)


FACTS = {
    "fork-of-fork": ended(3, origin="fork"),
    "fork": ended(2, origin="first"),
    "child-of-fork": ended(2, parent="fork"),
    "alone": ended(1),
    "first": ended(0),
}


def test_a_task_needs_its_parent_and_what_it_was_forked_from():
    assert pasts_needed(Facts()) == frozenset()
    assert pasts_needed(Facts(parent="p")) == {"p"}
    assert pasts_needed(Facts(parent="p", origin="o")) == {"p", "o"}


def test_forks_their_children_and_their_originals_are_one_family_originals_first():
    found = [family.ids for family in families(FACTS)]
    assert found == [("first", "fork", "child-of-fork", "fork-of-fork"), ("alone",)]


def test_a_fork_whose_original_is_gone_is_a_family_of_its_own():
    assert [family.ids for family in families({"fork": FACTS["fork"]})] == [("fork",)]


def test_who_names_a_fork_gets_its_original_along():
    chosen, along = choose(Told(facts=dict(FACTS)), wanted("fork"), "memory://")
    assert [family.head for family in chosen] == ["first"]
    assert sorted(along) == ["child-of-fork", "first", "fork-of-fork"]


def test_an_original_is_as_young_as_its_youngest_fork():
    policy, now = Retention(older_than=2 * DAY), AT + 4 * DAY
    go, _ = candidates(policy, FACTS, families(FACTS), now)
    assert [each.family.head for each in go] == ["alone"]
    go, _ = candidates(policy, FACTS, families(FACTS), now + 2 * DAY)
    assert [each.family.head for each in go] == ["alone", "first"]


def test_an_original_stays_while_a_fork_of_it_has_not_ended():
    facts = FACTS | {"fork-of-fork": ended(3, "awaiting_user", origin="fork")}
    go, spare = candidates(Retention(older_than=DAY), facts, families(facts), AT + 100 * DAY)
    assert ([each.family.head for each in go], spare) == (["alone"], [])
