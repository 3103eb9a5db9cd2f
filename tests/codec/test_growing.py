"""Long lists in values are stored once, and nobody can tell from what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from holdfast import CodeChanged, Holdfast, checkpoint, gather, restore, step, task
from holdfast.codec import Growing, args_hash, naming, shape_of
from holdfast.core.events import ListGrew, Started, Stepped
from holdfast.core.lists import FEWEST_ITEMS, LISTED, for_hashing, without_lists
from tests.flavors import Crash

Chat = list[dict[str, Any]]
LONG = "x" * 100


def chat(turns: int) -> Chat:
    return [{"role": "user", "text": f"{turn} {LONG}"} for turn in range(turns)]


def events(hf: Holdfast, id: str) -> list[Any]:
    return list(hf.task(id).events())


def args_of(hf: Holdfast, path: str) -> Any:
    return next(each.input for each in hf.task("t").outputs if each.path == path)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@step
def grow_reply(said: Chat) -> str:
    return f"{len(said)} {LONG}"


@task
def grow_talk(turns: int) -> int:
    said: Chat = []
    for _ in range(turns):
        said.append({"role": "assistant", "text": grow_reply(said)})
    return len(said)


def test_a_conversation_handed_over_each_turn_costs_its_messages(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w", projections=False) as hf:
        hf.run(grow_talk, 400, id="t")
        messages = sum(len(msgspec.json.encode(said)) for said in chat(400))
        per_turn = 700  # of the three events of a turn
        waypoint = 64 * 1024  # after 1,024 events: a copy, which may be deleted
        assert size_of(tmp_path) < 2 * messages + 400 * per_turn + waypoint
        assert args_of(hf, "400") == {
            "said": [{"role": "assistant", "text": f"{n} {LONG}"} for n in range(399)]
        }


@step
def long_reply(said: Chat) -> str:
    return f"{len(said)} {LONG * 10}"


@step
def whole_message(said: Chat) -> dict[str, str]:
    return {"role": "assistant", "text": f"{len(said)} {LONG * 10}"}


@task
def long_talk(turns: int, whole: bool) -> Chat:
    said: Chat = []
    for _ in range(turns):
        if whole:
            said.append(whole_message(said))
        else:
            said.append({"role": "assistant", "text": long_reply(said)})
    return said


@pytest.mark.parametrize("whole", [False, True])
def test_what_an_item_has_from_the_result_of_a_call_is_in_the_log_once(
    tmp_path: Path, whole: bool
) -> None:
    with Holdfast(tmp_path / "w") as hf:
        said = hf.run(long_talk, 200, whole, id="t")
        assert size_of(tmp_path) < 2 * len(msgspec.json.encode(said))
        assert [each["text"].split()[0] for each in said] == [str(n) for n in range(200)]
        view = hf.task("t")
        assert view.result == said
        assert [each.input["said"] for each in view.outputs] == [said[:n] for n in range(200)]


def test_its_items_are_in_the_log_once(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w") as hf:
        hf.run(grow_talk, 100, id="t")
        grown = [event for event in events(hf, "t") if isinstance(event, ListGrew)]
        assert [event.length for event in grown] == list(range(FEWEST_ITEMS, 100))
        assert all(
            len(msgspec.json.decode(bytes(cast(Raw, event.items)))) == 1 for event in grown[1:]
        )


crashes: set[str] = set()


@step
def crashing_reply(said: Chat) -> str:
    if len(said) == 40 and "reply" not in crashes:
        crashes.add("reply")
        raise Crash
    return f"{len(said)} {LONG}"


@task
def crashing_talk() -> Chat:
    said: Chat = []
    for _ in range(60):
        said.append({"role": "assistant", "text": crashing_reply(said)})
    return said


def test_a_task_that_goes_on_after_a_crash_goes_on_with_its_lists(tmp_path: Path) -> None:
    crashes.clear()
    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(crashing_talk, id="t")
    with Holdfast(tmp_path / "w") as hf:
        said = hf.run(crashing_talk, id="t")
        assert [each["text"].split()[0] for each in said] == [str(n) for n in range(60)]
        grown = [event for event in events(hf, "t") if isinstance(event, ListGrew)]
        assert [event.length for event in grown] == list(range(FEWEST_ITEMS, 61))
        assert hf.task("t").result == said


@step
def checkpointed_reply(said: Chat) -> str:
    if len(said) in (30, 50) and str(len(said)) not in crashes:
        crashes.add(str(len(said)))
        raise Crash
    return f"{len(said)} {LONG}"


@task
def checkpointed_talk() -> int:
    said = restore(Chat())
    while len(said) < 80:
        said = checkpoint([*said, {"role": "assistant", "text": checkpointed_reply(said)}])
    return len(said)


def test_a_task_that_goes_on_from_a_checkpoint_goes_on_with_its_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes.clear()
    monkeypatch.setattr("holdfast.api.checkpoints.WHOLE_EVERY", 0)  # every one is whole
    for _ in range(2):
        with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
            hf.run(checkpointed_talk, id="t")
    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(checkpointed_talk, id="t") == 80
        started = [event for event in events(hf, "t") if isinstance(event, Started | Stepped)]
        grown = [event for event in events(hf, "t") if isinstance(event, ListGrew)]
        from_nothing = [event.length for event in grown if event.base == ""]
        assert from_nothing[0] == FEWEST_ITEMS
        args = [bytes(event.args) for event in started if isinstance(event.args, Raw)]
        assert sum(each.startswith(LISTED) for each in args) == 80 - FEWEST_ITEMS
        last = args_of(hf, started[-1].path)
        assert [each["text"].split()[0] for each in last["said"]] == [str(n) for n in range(79)]


@step
def meddle(said: Chat) -> int:
    said[3]["text"] = "changed"
    said.append({})
    return len(said)


@task
def meddled() -> list[Any]:
    said = chat(20)
    first = meddle(said)
    said.append({"role": "user", "text": "more"})
    second = meddle(said)
    return [first, second, len(said), said[3]["text"][:1]]


def test_a_step_gets_a_list_of_its_own() -> None:
    with Holdfast("memory://") as hf:
        assert hf.run(meddled, id="t") == [21, 22, 21, "3"]
        assert args_of(hf, "2")["said"][3]["text"] == f"3 {LONG}"


@task
def edited() -> list[int]:
    said = chat(20)
    results = [shown_first(said)]
    said[0]["text"] = "edited"
    results.append(shown_first(said))
    del said[5:]
    results.append(shown_first(said))
    return results


@step
def shown_first(said: Chat) -> int:
    return len(said[0]["text"])


def test_a_list_that_was_changed_in_place_is_another_list() -> None:
    with Holdfast("memory://") as hf:
        assert hf.run(edited, id="t") == [102, 6, 6]
        calls = [args_of(hf, path)["said"] for path in "123"]
        assert [len(each) for each in calls] == [20, 20, 5]
        assert [each[0]["text"][:6] for each in calls] == ["0 xxxx", "edited", "edited"]


@step
def add_one(said: Chat) -> Chat:
    return [*said, {"role": "user", "text": f"{len(said)} {LONG}"}]


@task
def passed_through(turns: int) -> Chat:
    said = chat(20)
    for _ in range(turns):
        said = add_one(said)
    if "end" not in crashes:
        crashes.add("end")
        raise Crash
    return said


def test_results_that_grow_are_stored_once_too(tmp_path: Path) -> None:
    crashes.clear()
    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(passed_through, 60, id="t")
    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(passed_through, 60, id="t") == chat(80)
        grown = [event.length for event in events(hf, "t") if isinstance(event, ListGrew)]
        assert grown == list(range(20, 81))


class Memory(msgspec.Struct):
    goal: str
    said: list[dict[str, str]]
    seen: dict[str, list[str]] = {}


@step
def think_over(memory: Memory) -> str:
    return f"{len(memory.said)} {LONG}"


@task
def thinker(turns: int) -> int:
    memory = Memory("win", [])
    for turn in range(turns):
        memory.said.append({"role": "assistant", "text": think_over(memory)})
        memory.seen.setdefault("pages", []).append(f"{turn} {LONG}")
    return len(memory.said)


def test_lists_inside_of_objects_are_stored_once_too(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w") as hf:
        hf.run(thinker, 200, id="t")
        assert size_of(tmp_path) < 200 * (2 * 2 * 130 + 1200) + 64 * 1024
        args = args_of(hf, "200")["memory"]
        assert len(args["said"]) == len(args["seen"]["pages"]) == 199
        assert args["said"][198]["text"] == f"198 {LONG}"
        assert args["goal"] == "win"


@step
def count_all(said: list[Any], more: tuple[Any, ...] = ()) -> int:
    return len(said) + len(more)


@task
def many_branches() -> list[int]:
    said = chat(20)
    return gather(*[lambda n=n: count_all([*said, {"n": n}], tuple(said)) for n in range(12)])


def test_branches_that_go_on_from_one_list_each_have_their_own() -> None:
    with Holdfast("memory://") as hf:
        assert hf.run(many_branches, id="t") == [41] * 12
        ends = sorted(each.input["said"][20]["n"] for each in hf.task("t").outputs)
        assert ends == list(range(12))


@step
def hand_back(value: dict[str, list[str]]) -> dict[str, list[str]]:
    return value


TRICKY = {"$lists": ["a"], "value": [f"{n} {LONG}" for n in range(40)]}


@task
def looks_like_a_reference() -> list[dict[str, list[str]]]:
    return [hand_back({"$lists": ["a"]}), hand_back(TRICKY), hand_back({"$blob": ["x"]})]


def test_a_value_that_looks_like_a_reference_is_itself(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w") as hf:
        expected = [{"$lists": ["a"]}, TRICKY, {"$blob": ["x"]}]
        assert hf.run(looks_like_a_reference, id="t") == expected
        view = hf.task("t")
        assert view.result == expected
        assert [each.output for each in view.outputs] == expected
        assert [each.input["value"] for each in view.outputs] == expected


changed = {"yes": False}


@task
def other_arguments() -> int:
    said = chat(30)
    if changed["yes"]:
        said[7]["text"] = said[7]["text"].upper()
    count_all(said)
    if not changed["yes"]:
        raise Crash
    return 0


def test_a_changed_item_is_noticed_on_a_replay() -> None:
    changed["yes"] = False
    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(other_arguments, id="t")
        changed["yes"] = True
        with pytest.raises(CodeChanged, match=r"30 items.*arguments differ"):
            hf.run(other_arguments, id="t")


# What is quick has to come to the same as what is plain

leaves: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 0.5])
    | st.text(max_size=3)
)
items = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)
PAD: list[Any] = [{"pad": "p" * 160}] * FEWEST_ITEMS


@given(st.lists(st.lists(items, max_size=3), max_size=5), st.data())
def test_the_quick_way_and_the_plain_one_agree(
    growth: list[list[Any]], data: st.DataObject
) -> None:
    shape, draw = shape_of(list[Any]), cast(Any, data.draw)
    growing = Growing(dict)
    value: list[Any] = msgspec.json.decode(msgspec.json.encode(PAD))
    for new in growth:
        value += new
        if value[FEWEST_ITEMS:] and draw(st.booleans()):
            at = draw(st.integers(FEWEST_ITEMS, len(value) - 1))
            value[at] = draw(items)
        known = growing.find(value, shape)
        plain, settled = shape.settle(value)
        assert known is not None
        assert repr(known.copies()) == repr(settled)
        named = naming(b'{"a":null}', {("a",): known})
        assert args_hash(named) == args_hash(b'{"a":%b}' % plain)


@given(st.recursive(leaves, lambda inner: st.lists(inner, max_size=40), max_leaves=60))
def test_what_is_short_is_left_alone(value: Any) -> None:
    data = msgspec.json.encode(value)
    if len(data) < 1024:
        assert without_lists(data) == (data, [])
        assert for_hashing(data) == data


def test_the_hash_knows_the_items_but_not_the_order_of_their_keys() -> None:
    def hashed(said: Chat) -> str:
        return args_hash(msgspec.json.encode({"said": said}))

    turned: Chat = [dict(reversed(each.items())) for each in chat(20)]
    assert hashed(chat(20)) == hashed(turned)
    assert hashed(chat(20)) != hashed(chat(21))
    assert hashed(chat(20)) != hashed([*chat(19), {"role": "user", "text": "19"}])


def test_equal_is_not_the_same() -> None:
    shape = shape_of(list[Any])
    for before, after in [(1, True), (1, 1.0), (0.0, -0.0), (False, 0)]:
        growing = Growing(dict)
        one = growing.find([*PAD, {"n": before}], shape)
        two = growing.find([*PAD, {"n": after}], shape)
        assert one is not None
        assert two is not None
        assert repr(two.copies()[-1]["n"]) == repr(after)


class Word(msgspec.Struct, frozen=True):
    text: str


class AnyWord(msgspec.Struct, frozen=True):
    """Equal to every other."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyWord)

    __hash__ = None  # type: ignore[assignment]


class OwnWord(msgspec.Struct, frozen=True, eq=False):
    """Equal to itself alone."""

    text: str


class NewWord(msgspec.Struct):
    """May be changed, unlike the rest."""

    text: str


@pytest.mark.parametrize("kind", [Word, AnyWord, OwnWord, NewWord, str])
def test_a_list_of_any_items_is_known_by_what_they_hold(kind: Any) -> None:
    shape, growing = shape_of(list[kind]), Growing(dict)

    def found(*last: str) -> tuple[str, list[Any]]:
        known = growing.find([kind(text) for text in (*["p" * 160] * FEWEST_ITEMS, *last)], shape)
        assert known is not None
        copies = known.copies()
        assert [type(item) for item in copies] == [kind] * len(copies)
        return known.version.digest, [getattr(item, "text", item) for item in copies]

    one, two, three = found("a"), found("b"), found("b", "c")
    assert one[1][FEWEST_ITEMS:] == ["a"] and two[1][FEWEST_ITEMS:] == ["b"]
    assert three[1][FEWEST_ITEMS:] == ["b", "c"]
    assert len({one[0], two[0], three[0]}) == 3
    assert found("a") == one and found("b", "c") == three


def test_items_that_can_be_changed_are_handed_out_as_copies() -> None:
    shape, growing = shape_of(list[NewWord]), Growing(dict)
    given = [NewWord("p" * 160) for _ in range(FEWEST_ITEMS)]
    known = growing.find(given, shape)
    assert known is not None
    known.copies()[0].text = "changed by who got it"
    given[1].text = "changed by who gave it"
    assert [item.text for item in known.copies()] == ["p" * 160] * FEWEST_ITEMS


def test_items_come_out_as_the_codec_made_them_also_where_they_were_equal() -> None:
    shape, growing = shape_of(list[dict[str, float]]), Growing(dict)
    value: list[Any] = [{"padding" * 20: 0.5} for _ in range(FEWEST_ITEMS)]
    for new in (1, 2.0, 3):
        value.append({"n": new})
        known = growing.find(value, shape)
        assert known is not None
        kinds = {type(number) for item in known.copies() for number in item.values()}
        assert kinds == {float}, "that is what the annotation says"


def test_each_call_is_shown_with_the_list_it_got(tmp_path: Path) -> None:
    with Holdfast(tmp_path / "w") as hf:
        hf.run(grow_talk, 30, id="t")
        assert [len(each.input["said"]) for each in hf.task("t").outputs] == list(range(30))
