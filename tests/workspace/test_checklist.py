"""plan.md: a plan comes back as it was printed, and what people write is understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadInput, PlanItem
from holdfast.core.plan import STATUSES, circle_in, numbered, ready
from holdfast.workspace.checklist import find_plan, parse, print_plan

AWKWARD = st.sampled_from([
    "", " ", "\\", "\\\\", "a\\", "\\ b", "\\d", "[x] a", "- [ ] a", "- a", "3. a", "2.1 a", "1) a",
    "# a", "```", "~~~ py", "<!-- a", "-->", "(after: 1)", "a (id: b)", "a (after: )", "a\r",
    "a\tb", "\ta", "  - [x] b", "  b", "---", "> a", "| a", "* [?] b", "é (AFTER: 2)", "1. [ ] a",
    "\x85", "a\x1c", "\u2028", "(after: 1)\\", "[1] a", "- [1] a", "===", "1.", "5",
])  # fmt: skip
TEXTS = st.one_of(st.lists(AWKWARD | st.text(max_size=6), max_size=5).map("\n".join), st.text())
IDS = st.one_of(
    st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}", fullmatch=True),
    st.from_regex(r"[ab](\.[0-9]{1,2}){0,2}", fullmatch=True),
    st.sampled_from(["a b", "a, b", '"', "()", "", "\n", " a", "after", "\\", "1.", "é"]),
    st.text(max_size=4),
)


@st.composite
def plans(draw):
    ids = draw(st.lists(IDS, min_size=1, max_size=8, unique=True))
    ids = [id for id in ids if id] or ["1"]
    order = draw(st.permutations(ids))  # an item comes only after those before it in this order
    items = []
    for id in ids:
        earlier = order[: order.index(id)]
        after = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        status = draw(st.sampled_from(STATUSES))
        items.append(PlanItem(draw(TEXTS), id, status, tuple(after)))
    return tuple(items)


@st.composite
def outlines(draw):
    """Plans that are nested as people nest them."""
    items = []
    for top in range(1, draw(st.integers(1, 4)) + 1):
        prefix = draw(st.sampled_from([f"{top}", f"part{top}"]))
        children = [f"{prefix}.{n}" for n in range(1, draw(st.integers(0, 3)) + 1)]
        shuffled = draw(st.permutations(children))
        items.append(PlanItem(draw(TEXTS), prefix, after=tuple(shuffled)))
        for child in children:
            inner = [f"{child}.{n}" for n in range(1, draw(st.integers(0, 2)) + 1)]
            items.append(PlanItem(draw(TEXTS), child, "done", tuple(inner)))
            items += [PlanItem(draw(TEXTS), id) for id in inner]
    return tuple(items)


@given(plans() | outlines())
def test_any_plan_comes_back_as_it_was_printed(plan):
    printed = print_plan(plan)
    assert parse(printed) == plan
    assert parse(printed.replace("\n", "\r\n")) == plan or "\r" in printed
    assert print_plan(parse(printed)) == printed


@given(st.text() | st.lists(AWKWARD, max_size=8).map("\n".join))
def test_whatever_is_in_the_file_it_is_a_sound_plan_or_refused_with_a_reason(text):
    try:
        plan = parse(text)
    except BadInput as error:
        assert "line" in str(error)
        return
    assert len({item.id for item in plan}) == len(plan)
    assert not circle_in(plan)
    assert parse(print_plan(plan)) == plan


def test_a_plan_looks_as_people_would_write_it():
    plan = (
        PlanItem("Find rooms", "1", "done"),
        PlanItem("Book one", "2", "doing", ("1", "2.1", "2.2")),
        PlanItem("Ask for a late arrival\n- by phone", "2.1", "failed"),
        PlanItem("Pay", "2.2", "skipped", ("2.1",)),
        PlanItem("Tell Ada", "tell", "pending", ("2",)),
    )
    assert print_plan(plan) == (
        "# Plan\n"
        "\n"
        "- [x] 1. Find rooms\n"
        "- [~] 2. Book one (after: 1)\n"
        "  - [!] 2.1. Ask for a late arrival\n"
        "    - by phone\n"
        "  - [-] 2.2. Pay (after: 2.1)\n"
        "- [ ] Tell Ada (id: tell) (after: 2)\n"
    )


def test_ordinary_markdown_is_understood():
    plan = parse(
        "Our trip\n========\n\nSome words first.\n\n"
        "* [X] look around   \n"
        "+ [ ] book (After: 1)\n"
        "    * [ ] call them,\n"
        "      twice if need be\n"
        "    * [x] pay\n"
        "\n"
        "## Later\n\n"
        "1. not an item, for it has no box and is in another list\n\n"
        "```\n- [ ] code, not a plan\n```\n"
        "<!-- - [ ] nor is this -->\n"
        "<!--\n- [ ] nor this\n-->\n"
        "\t- [~] tell Ada [see][1]\n"
        "\t- and Bob\n"
        "That is all.\n"
    )
    assert [(item.id, item.text, item.status, item.after) for item in plan] == [
        ("1", "look around", "done", ()),
        ("2", "book", "pending", ("1", "2.1", "2.2")),
        ("2.1", "call them,\ntwice if need be", "pending", ()),
        ("2.2", "pay", "done", ()),
        ("3", "tell Ada [see][1]", "doing", ()),
        ("4", "and Bob\nThat is all.", "pending", ()),
    ]


def test_a_parent_is_ready_when_what_is_nested_in_it_is_done():
    text = "- [ ] 1. book\n  - [ ] 1.1 look\n  - [ ] 1.2 pay\n"
    assert [item.id for item in ready(parse(text))] == ["1.1", "1.2"]
    assert [item.id for item in ready(parse(text.replace("- [ ] 1.", "- [x] 1.", 3)))] == []
    done = text.replace("  - [ ]", "  - [x]")
    assert [item.id for item in ready(parse(done))] == ["1"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1. [ ] a\n2. [ ] b", ["1", "2"]),
        ("1. [ ] a\n1. [ ] b\n1. [ ] c", ["1", "2", "3"]),
        ("- [ ] 1. a\n- [ ] new\n- [ ] 2. b", ["1", "3", "2"]),
        ("- [ ] 7) a\n- [ ] b", ["7", "2"]),
        ("- [ ] 2. a\n  - [ ] 1. x\n  - [ ] 2. y\n- [ ] b", ["2", "2.1", "2.2", "3"]),
        ("- [ ] a (id: auth)\n  - [ ] x\n  - [ ] 5. y", ["auth", "auth.1", "auth.5"]),
        ("- [ ] 1. a\n  - [ ] 1.2 x\n  - [ ] 1.5. y\n  - [ ] z", ["1", "1.2", "1.5", "1.3"]),
        ("- [ ] 1.5 litres of milk", ["1"]),
        ("- [ ] a (after: b) (id: a)\n- [ ] x (id: b)", ["a", "b"]),
    ],
)
def test_the_number_is_the_id_and_what_has_none_gets_one(text, ids):
    assert [item.id for item in parse(text)] == ids


def test_an_item_that_lost_its_number_is_known_by_its_text():
    before = numbered(["look", "book", "pack"])
    plan = parse("- [ ] pack\n- [ ] fly\n- [ ] look", before)
    assert [(item.id, item.text) for item in plan] == [("3", "pack"), ("4", "fly"), ("1", "look")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no checklist: an item is a line such as"),
        ("# Plan\n\n- call Ada\n- call Bob\n", "no checklist"),
        ("- [ ] 1. a\n\n- [ ] 1. b\n- [ ] 2. c", "line 3: item '1' is on line 1 already: give"),
        ("- [ ] a (id: 2)\n- [ ] b (id: 2)", "line 2: item '2' is on line 1 already"),
        ("\n- [ ] 1. a (after: 9)", "line 2: item '1' comes after '9', .* There are '1'"),
        ("- [ ] 1. a (after: 2)\n- [ ] 2. b (after: 1)", "line 1: items wait for .* '1' before"),
        ("- [ ] 1. a\n  - [ ] b (after: 1)", "line 1: .*what is nested comes before"),
        ("- [ ] a\n- [?] b", r"line 2: \[\?\] is no mark .* \[~\] doing"),
        ("- [ ] a\n```\n- [ ] b", "line 2: .* never closed: ``` is missing"),
        ("<!--\n- [ ] a", "line 1: .* never closed: --> is missing"),
        ("- [ ] a (id: b, c)", r'line 1: "\(id: b, c\)" must hold one id'),
        ('- [ ] a (after: "x" y)', "line 1: ids are given like"),
        ('- [ ] a (after: "\\q")', "line 1: .* is no text in double quotes"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_line_and_what_was_expected(text, told):
    with pytest.raises(BadInput, match=told):
        parse(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Sure! Here it is:\n\n- [ ] look\n- [ ] book\n\nTell me if it is fine.", ["look", "book"]),
        ("A draft:\n- [ ] 1. x\n\nBetter:\n- [ ] 1. look\n- [ ] 2. book\n", ["look", "book"]),
        ("Done.\n```markdown\n# Plan\n- [ ] look\n- [ ] book\n```\nBye", ["look", "book"]),
        ("## A\n- [ ] look\n\n## B\n- [ ] book\n", ["look", "book"]),
        (
            "My thoughts:\n1. hm\n\nThe plan:\n1. look\n2. book\n   by phone\n",
            ["look", "book\nby phone"],
        ),
        ("```\n1. look\n2. book\n```", ["look", "book"]),
        ("1) look\n2) book", ["look", "book"]),
        ("- [ ] 1. a (after: 7)\n", None),
        ("Nothing to do.", None),
        ("It costs\n3.50 or so", None),
        ("", None),
    ],
)
def test_a_plan_is_found_among_other_words(text, found):
    plan = find_plan(text)
    assert (None if plan is None else [item.text for item in plan]) == found


def test_a_long_plan_takes_no_long_time():
    items = numbered([f"item {n} (after: {'x ' * 50}" for n in range(2000)])
    assert parse(print_plan(items)) == items
