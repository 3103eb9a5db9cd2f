"""The harness: a plan first, then its items, one at a time, whoever does them."""

from __future__ import annotations

import re
import shutil

import pytest

from holdfast import BadInput, Holdfast, LogDamaged, TaskCancelled, TaskPaused
from holdfast.workspace.harness import Means, init, loop, next_item
from holdfast.workspace.projecting import task_folder

pytestmark = pytest.mark.holdfast("{tmp_path}/ws")

PLAN = """Here it is:

- [ ] 1. look
- [ ] 2. sweep (after: 1)
- [ ] 3. wash
"""


class Agent:
    """Writes the plan, and does items; remembers which. Raises where it is told to."""

    def __init__(self, plan: str = PLAN) -> None:
        self.plan = plan
        self.did: list[str] = []
        self.prompts: list[str] = []
        self.fails: set[str] = set()

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if "Write the plan for this mission" in prompt:
            self.did.append("plan")
            return self.plan
        found = re.search(r"^# Your item\n\n\S+\. (.*)$", prompt, re.MULTILINE)
        assert found is not None
        self.did.append(found[1])
        if found[1] in self.fails:
            raise RuntimeError("no broom")
        return f"{found[1]}: done"


@pytest.fixture
def agent():
    return Agent()


@pytest.fixture
def means(agent, tmp_path):
    return Means(agent, tmp_path, files=task_folder(tmp_path / "ws", "m"))


def statuses(hf, id="m"):
    return {item.id: item.status for item in hf.task(id).plan}


def test_the_plan_is_written_first_and_only_then_items_are_done(hf, agent, means):
    init(hf, "Tidy up", id="m")
    assert next_item(hf, "m", means).what == "planned"
    assert agent.did == ["plan"]
    assert statuses(hf) == {"1": "pending", "2": "pending", "3": "pending"}
    came = next_item(hf, "m", means)
    assert (came.what, came.item, came.left, came.said) == ("did", "1", 2, "look: done")
    assert loop(hf, "m", means).what == "done"
    assert agent.did == ["plan", "look", "sweep", "wash"]
    assert hf.task("m").status == "completed"
    assert next_item(hf, "m", means).what == "done"
    assert len(agent.did) == 4


def test_what_comes_after_something_waits_for_it(hf, means):
    plan = "- [ ] 1. last (after: 3)\n- [ ] 2. middle (after: 3)\n- [ ] 3. first"
    agent = Agent(plan)
    init(hf, "Tidy up", id="m")
    loop(hf, "m", Means(agent, means.folder))
    assert agent.did == ["plan", "first", "last", "middle"]


def test_one_who_does_an_item_is_told_what_came_of_those_before(hf, agent, means):
    init(hf, "Tidy up", id="m")
    loop(hf, "m", means)
    assert "> Tidy up" in agent.prompts[0]
    assert "> look: done" in agent.prompts[2]


def test_an_agent_that_raises_fails_its_item_and_retry_does_it_again(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    agent.fails = {"look"}
    came = next_item(hf, "m", means)
    assert (came.what, came.item) == ("failed", "1")
    assert "no broom" in came.said
    assert next_item(hf, "m", means).item == "3"
    blocked = next_item(hf, "m", means)
    assert (blocked.what, blocked.item, blocked.left) == ("blocked", "1", 2)
    assert agent.did == ["plan", "look", "wash"]
    agent.fails = set()
    assert next_item(hf, "m", means, retry=True).what == "did"
    assert loop(hf, "m", means).what == "done"


def test_a_loop_stops_at_its_limits(hf, agent, means):
    init(hf, "Tidy up", id="m")
    agent.fails = {"look"}
    assert loop(hf, "m", means, most_items=1).what == "failed"
    assert loop(hf, "m", means, most_s=0).what == "did"
    assert loop(hf, "m", means).what == "blocked"
    assert agent.did == ["plan", "look", "wash"]


def test_a_loop_tries_failed_items_again_as_often_as_it_may(hf, agent, means):
    init(hf, "Tidy up", id="m")
    agent.fails = {"look"}
    assert loop(hf, "m", means, retries=2).what == "blocked"
    assert agent.did.count("look") == 3


@pytest.mark.parametrize("said", ["", "I can't.", "\x00\x01", "- no\n- boxes here?\n# no"])
def test_an_agent_that_writes_no_plan_has_failed_and_is_asked_again(hf, means, said):
    agent = Agent(said)
    init(hf, "Tidy up", id="m")
    came = next_item(hf, "m", Means(agent, means.folder))
    if came.what == "planned":  # a list without boxes is a plan, too
        return
    assert (came.what, came.item) == ("failed", "plan")
    assert "checklist" in came.said
    agent.plan = PLAN
    assert next_item(hf, "m", Means(agent, means.folder)).what == "planned"


def test_a_plan_of_five_hundred_items_is_taken_whole(hf, means):
    agent = Agent("\n".join(f"- [ ] {n}. the thing with the number {n}" for n in range(1, 501)))
    init(hf, "Much", id="m")
    assert next_item(hf, "m", Means(agent, means.folder)).left == 500


def test_results_of_a_megabyte_neither_fill_the_log_nor_the_next_prompt(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    calls = []

    def talkative(prompt: str) -> str:
        calls.append(len(prompt))
        return "word " * 200_000

    while next_item(hf, "m", Means(talkative, means.folder, budget_tokens=2000)).what == "did":
        pass
    assert len(calls) == 3
    assert max(calls) < 2000 * 8


@pytest.mark.parametrize("text", ["", "  \n", "a\udc80b"])
def test_a_mission_without_words_is_refused(hf, text):
    with pytest.raises(BadInput):
        init(hf, text)
    assert list(hf.tasks()) == []


def test_a_mission_of_almost_a_megabyte_is_worked_off(hf, agent, means):
    init(hf, "Tidy up.\n" * 100_000, id="m")
    assert loop(hf, "m", means).what == "done"
    assert (means.files / "mission.md").stat().st_size > 900_000


def test_a_longer_mission_than_can_be_edited_is_refused_whole(hf):
    with pytest.raises(BadInput, match="too long"):
        init(hf, "å" * 600_000, id="m")
    assert list(hf.tasks()) == []


def test_odd_ids_of_items_make_tasks_all_the_same(hf, means):
    agent = Agent(f'- [ ] a (id: "x/../y")\n- [ ] b (id: {"l" * 300})\n- [ ] c (id: ../z)\n')
    init(hf, "Tidy up", id="m")
    assert loop(hf, "m", Means(agent, means.folder)).what == "done"
    assert len(agent.did) == 4


def test_the_id_of_a_mission_leaves_room_for_its_items(hf):
    with pytest.raises(BadInput, match="200"):
        init(hf, "Tidy up", id="m" * 201)


def test_a_mission_that_was_paused_or_cancelled_is_not_worked_on(hf, agent, means):
    init(hf, "Tidy up", id="m")
    hf.pause("m")
    with pytest.raises(TaskPaused):
        next_item(hf, "m", means)
    hf.unpause("m")
    assert next_item(hf, "m", means).what == "planned"
    hf.cancel("m", because="it rains")
    with pytest.raises(TaskCancelled, match="it rains"):
        next_item(hf, "m", means)
    assert agent.did == ["plan"]


# A person edits the plan


def edited(means, change):
    path = means.files / "plan.md"
    path.write_text(change(path.read_text()))


def test_items_that_a_person_adds_removes_and_rewords_count(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    assert next_item(hf, "m", means).text == "look"
    edited(
        means,
        lambda text: text.replace("- [ ] 3. wash", "- [ ] dry\n- [ ] polish").replace(
            "2. sweep", "2. sweep well"
        ),
    )
    assert loop(hf, "m", means).what == "done"
    assert sorted(agent.did) == ["dry", "look", "plan", "polish", "sweep well"]


def test_an_item_that_a_person_opens_again_is_done_again(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    next_item(hf, "m", means)
    edited(means, lambda text: text.replace("- [x] 1.", "- [ ] 1."))
    assert loop(hf, "m", means).what == "done"
    assert agent.did.count("look") == 2


def test_a_plan_that_a_person_broke_is_told_and_the_old_one_counts(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    edited(means, lambda text: text.replace("(after: 1)", "(after: 17)"))
    came = next_item(hf, "m", means)
    assert came.what == "did"
    assert "plan.md" in came.problems[0]
    assert "(after: 17)" in (means.files / "plan.md").read_text(), "what they wrote is theirs"
    assert loop(hf, "m", means).what == "done"


def test_an_edited_mission_is_what_the_next_one_is_told(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    path = means.files / "mission.md"
    path.write_text(path.read_text().replace("Tidy up", "Tidy up, but not the attic"))
    next_item(hf, "m", means)
    assert "> Tidy up, but not the attic" in agent.prompts[-1]


# Trouble


def test_a_workspace_that_was_copied_half_way_goes_on_elsewhere(hf, agent, means, tmp_path):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    next_item(hf, "m", means)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "ws", elsewhere)
    with Holdfast(elsewhere) as there:
        folder = task_folder(elsewhere, "m")
        assert loop(there, "m", Means(agent, tmp_path, files=folder)).what == "done"
        assert "- [x] 3. wash" in (folder / "plan.md").read_text()
        assert there.verify().sound
    assert agent.did == ["plan", "look", "sweep", "wash"]
    assert statuses(hf)["3"] == "pending"


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_other_stores_work_off_missions_too(agent, tmp_path, url):
    with Holdfast(f"sqlite:///{tmp_path}/s.db" if url == "sqlite" else url) as hf:
        init(hf, "Tidy up", id="m")
        assert loop(hf, "m", Means(agent, tmp_path)).what == "done"
        assert set(statuses(hf).values()) == {"done"}


def test_a_log_that_an_agent_wrote_into_is_noticed_and_left_as_it_is(hf, agent, means):
    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)
    log = means.files / "events.jsonl"

    def meddler(prompt: str) -> str:
        data = log.read_bytes()
        log.write_bytes(data.replace(b"look", b"LOOK"))
        return "all done"

    with pytest.raises(LogDamaged, match="m"):
        for _ in range(3):
            next_item(hf, "m", Means(meddler, means.folder, files=means.files))
    damaged = log.read_bytes()
    with Holdfast(means.files.parents[1]) as another, pytest.raises(LogDamaged):
        next_item(another, "m", means)
    assert log.read_bytes() == damaged
    assert agent.did == ["plan"]


def test_an_item_whose_harness_died_before_it_was_marked_is_not_done_again(hf, agent, means):
    from holdfast.workspace import harness

    init(hf, "Tidy up", id="m")
    next_item(hf, "m", means)

    class Died(BaseException): ...

    def die(*args: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr(harness, "_ended", die)
        next_item(hf, "m", means)
    assert statuses(hf)["1"] == "doing"
    assert next_item(hf, "m", means).text == "sweep", "what waits for it can be begun at once"
    assert agent.did == ["plan", "look", "sweep"]
