"""The table of what survives a kill is made of real kills."""

from __future__ import annotations

import pytest

from examples.frameworks.all_killed import FRAMEWORKS, Row, killed, table
from tests.thorough import THOROUGH


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FRAMEWORKS if THOROUGH else ["Holdfast", "OpenAI Agents SDK"])
def test_each_effect_is_made_once_on_holdfast(name):
    row = killed(name, () if THOROUGH else (4,))
    *alone, (_, ours) = row.made
    assert ours == row.needed
    assert all(made >= row.needed for _, made in alone)


def test_the_table_says_who_and_how_often():
    row = Row("A framework", "1.2", 6, 18, (("its way", 22), ("ours", 18)))
    assert table([row]).splitlines()[-1] == (
        "| A framework | 1.2 | 6 moments | 18 effects | 22 (`its way`) | 18 (`ours`) |"
    )
