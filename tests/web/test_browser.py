"""The debugger's page in a real browser: what a person sees, does, and is kept from."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from playwright.sync_api import Browser, Page, Route, expect

from holdfast import (
    Holdfast,
    InDoubt,
    Queue,
    TaskFailed,
    Unanswered,
    Worker,
    checkpoint,
    note,
    restore,
    sleep,
    step,
    task,
    tool,
)
from holdfast.agent import Media, Message, Session, compact
from holdfast.agent import session as current_session
from holdfast.workspace import files, next_item
from tests.flavors import Crash
from tests.thorough import THOROUGH
from tests.web.agents import (
    approval,
    asked_trip,
    doubtful,
    failed_task,
    finished_trip,
    go_on,
    mission,
    page_report,
    page_talks,
    page_writes,
)
from tests.web.browser import ROOT, Looking, give_up, launched, looking
from tests.web.serving import serving, until

HOSTILE = [
    "<script>document.title = 'owned'; alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "javascript:alert(3)",
    "\x1b[31mred\x1b[0m\x1b]0;owned\x07",
    "evil\u202egpj.exe\u2066",
    "a\u200bb\ufeffc",
]


@step
def answer(number: int) -> dict[str, int]:
    return {"number": number}


@task
def nine_steps() -> int:
    return sum(answer(number)["number"] for number in range(1, 10))


@step
def say(text: str) -> Any:
    deep: Any = text
    for _ in range(60):
        deep = {"in": deep}
    return {"text": text, text: [text], "deep": deep}


@task
def hostile(texts: list[str]) -> Any:
    return [say(text) for text in texts]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def look(browser: Browser, hf: Holdfast) -> Iterator[Looking]:
    with looking(browser, hf) as look:
        yield look


def test_a_question_is_answered_in_the_inbox_and_the_task_ends(hf: Holdfast, look: Looking) -> None:
    asked_trip(hf)
    page = look.open("/")
    need = page.locator("[data-need=question]")
    expect(need).to_contain_text("Book Oslo Inn?")
    expect(page.locator(".badge")).to_have_text("1")
    need.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("heading", name="Nothing needs you")).to_be_visible()
    page.goto(f"{look.client.url}/tasks/trip-1")
    expect(page.locator(".task > header")).to_contain_text("completed")
    [answered] = [e for e in hf.task("trip-1").events() if type(e).__name__ == "QuestionAnswered"]
    assert getattr(answered, "by") == "ada"  # noqa: B009


def test_an_approval_shows_the_exact_arguments(hf: Holdfast, look: Looking) -> None:
    approval(hf)
    page = look.open("/")
    need = page.locator("[data-need=approval]")
    expect(need).to_contain_text("amount: 70")
    need.get_by_role("button", name=re.compile("approve", re.I)).first.click()
    until(lambda: hf.task("spend-1").status == "completed")
    assert hf.task("spend-1").result == {"paid": 70}


def test_somebody_who_writes_no_code_answers_in_words_and_numbers(
    hf: Holdfast, look: Looking
) -> None:
    with pytest.raises(Unanswered):
        hf.run(page_writes, id="writes")
    page = look.open("/")
    said = page.get_by_placeholder("your answer")
    said.fill('Dear Ada,\nit is "done".')
    page.get_by_role("button", name="Answer").click()
    number = page.get_by_placeholder("a whole number")
    number.fill("some")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("alert")).to_contain_text("int")
    number.fill("3")
    page.get_by_role("button", name="Answer").click()
    until(lambda: hf.task("writes").status == "completed")
    assert hf.task("writes").result == 'Dear Ada,\nit is "done". x 3'


def test_a_doubt_is_settled_where_the_task_says_what_to_do(hf: Holdfast, look: Looking) -> None:
    doubtful(hf)
    page = look.open("/tasks/invite-1")
    todo = page.get_by_role("region", name="What to do")
    expect(todo).to_contain_text("send_page_invite")
    todo.get_by_role("button", name="It happened").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What it returned").fill('"invited by hand"')
    dialog.get_by_label("How you know").fill("the calendar has it")
    dialog.get_by_role("button", name="It happened").click()
    expect(page.locator(".task > header")).to_contain_text("completed")
    assert hf.task("invite-1").result == "invited by hand"


lost_notes: set[str] = set()


@tool(in_doubt="ask")
def leave_a_note(to: str) -> None:
    if to in lost_notes:
        lost_notes.discard(to)
        raise Crash


@task
def leaves_a_note(to: str) -> str:
    leave_a_note(to)
    return f"{to} has a note"


def test_a_doubt_about_a_call_that_returns_nothing_needs_no_result(
    hf: Holdfast, look: Looking
) -> None:
    lost_notes.add("ada")
    with suppress(Crash):
        hf.run(leaves_a_note, "ada", id="note")
    with pytest.raises(InDoubt):
        hf.resume("note")
    page = look.open("/")
    page.get_by_role("button", name="It happened").click()
    page.get_by_role("dialog").get_by_role("button", name="It happened").click()
    until(lambda: hf.task("note").status == "completed")
    assert hf.task("note").result == "ada has a note"


def test_the_slider_goes_to_step_6_and_shows_the_state_before_it(
    hf: Holdfast, look: Looking
) -> None:
    hf.run(nine_steps, id="nine")
    before = hf.task("nine").at(6, "before").seq
    page = look.open("/tasks/nine")
    expect(page.get_by_role("option")).to_have_count(9)
    look.press("Home", *["]"] * 6)
    expect(page).to_have_url(re.compile(rf"/tasks/nine@{before}\?call=6$"))
    state = page.get_by_role("group", name="State")
    expect(state).to_have_attribute("data-state-at", str(before))
    expect(page.get_by_role("heading", name="what it knew before 6 answer")).to_be_visible()
    expect(state).to_contain_text("{number: 5}")
    expect(state).not_to_contain_text("number: 6")
    look.press("b")
    expect(page.get_by_role("heading", name="what it knew after 6 answer")).to_be_visible()
    slider = page.get_by_role("slider", name="Event")
    slider.focus()
    look.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(f"event {before} of"))


def test_a_fork_with_another_result_lands_on_the_comparison(hf: Holdfast, look: Looking) -> None:
    hf.run(nine_steps, id="nine")
    page = look.open("/tasks/nine?call=4")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Give it another result").click()
    expect(dialog.get_by_role("button", name="Fork", exact=True)).to_be_disabled()
    dialog.locator("#fork-result").fill('{"number": 40}')
    dialog.get_by_role("radio", name=re.compile("^live")).check()
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/nine/"))
    first = page.get_by_role("region", name="First divergence")
    expect(first).to_have_attribute("data-first", "4")
    expect(first).to_contain_text("number: 40")
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert (hf.task(fork).result, hf.task("nine").result) == (45 - 4 + 40, 45)


def test_a_rewind_lists_what_was_done_since_and_needs_a_choice(hf: Holdfast, look: Looking) -> None:
    asked_trip(hf)
    page = look.open("/tasks/trip-1?call=1")
    expect(page.get_by_role("option").first).to_be_visible()
    look.press("r")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("done nothing to the outside world")
    expect(dialog.get_by_role("button", name="Rewind")).to_be_disabled()
    dialog.get_by_role("radio", name=re.compile("^reuse")).check()
    dialog.get_by_role("button", name="Rewind").click()
    expect(dialog).to_have_count(0)
    expect(page).to_have_url(re.compile("/tasks/trip-1$"))
    until(lambda: any(type(e).__name__ == "Rewound" for e in hf.task("trip-1").events()))


BIG = 2**53 + 1


@step
def weigh() -> dict[str, Any]:
    return {"grams": BIG, "litres": 2.0, "name": "attic"}


@task
def weighs() -> Any:
    return weigh()


def test_numbers_are_shown_and_edited_with_every_digit(hf: Holdfast, look: Looking) -> None:
    hf.run(weighs, id="weighs")
    page = look.open("/tasks/weighs?call=1")
    details = page.get_by_role("group", name="The call's details")
    expect(details).to_contain_text(f"grams: {BIG}")
    expect(details).to_contain_text("litres: 2.0")
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Give it another result").click()
    result = dialog.locator("#fork-result")
    result.fill(result.input_value().replace("attic", "cellar"))
    dialog.get_by_role("radio", name=re.compile("^reuse")).check()
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/weighs/"))
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert hf.task(fork).result == {"grams": BIG, "litres": 2.0, "name": "cellar"}
    assert isinstance(hf.task(fork).result["litres"], float)


@tool
def tells(to: str) -> str:
    return f"told {to}"


@task
def tells_it(to: str) -> str:
    return tells(to)


def test_a_fork_may_say_what_tools_return(hf: Holdfast, look: Looking) -> None:
    hf.run(tells_it, "ada", id="tells")
    page = look.open("/tasks/tells?call=1")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name=re.compile("^stub")).check()
    dialog.get_by_label("What tools return").fill('{"tells": "told nobody"}')
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/tells/"))
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert hf.task(fork).result == "told nobody"


def test_a_fork_may_call_a_tool_with_other_arguments(hf: Holdfast, look: Looking) -> None:
    hf.run(tells_it, "ada", id="tells")
    page = look.open("/tasks/tells?call=1")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Call tells with other arguments").click()
    expect(dialog.locator("#fork-arguments")).to_have_value(re.compile('"to": "ada"'))
    dialog.locator("#fork-arguments").fill('{"to": "bob"}')
    dialog.get_by_role("radio", name=re.compile("^live")).check()
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/tells/"))
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert (hf.task(fork).result, hf.task("tells").result) == ("told bob", "told ada")


@task
def counts_on() -> list[Any]:
    first: dict[str, Any] = {"since": date(2026, 11, 1), "seen": (0,)}
    state = restore(first)
    while len(state["seen"]) < 3:
        number = answer(len(state["seen"]))["number"]
        state = checkpoint({"since": state["since"], "seen": (*state["seen"], number)})
    return [state["since"], state["seen"], answer(0)["number"]]


def test_a_fork_may_go_on_from_an_edited_state(hf: Holdfast, look: Looking) -> None:
    assert hf.run(counts_on, id="counts") == [date(2026, 11, 1), (0, 1, 2), 0]
    page = look.open("/tasks/counts?call=@2.1")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Go on from another state").click()
    state = dialog.locator("#fork-state")
    expect(state).to_have_value(re.compile(r'"\$date": "2026-11-01"'))
    state.fill(state.input_value().replace("2026-11-01", "2026-11-30"))
    dialog.get_by_role("radio", name=re.compile("^reuse")).check()
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/counts/"))
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert hf.task(fork).result == ["2026-11-30", [0, 1, 2], 0]
    stored = hf.task(fork).state.result
    assert isinstance(stored, Raw) and b'{"$date":"2026-11-30"}' in bytes(stored)


@task
def goes_through(numbers: int) -> None:
    for number in range(numbers):
        note(f"number {number}")


def test_pages_that_were_scrolled_past_are_not_waited_for(hf: Holdfast, look: Looking) -> None:
    hf.run(goes_through, 3600, id="long")
    page, held = look.open("/tasks/long?tab=log"), list[Route]()
    box = page.get_by_role("grid", name="Events")
    expect(box).to_contain_text("number 3599")
    gone_on: list[Route] = []

    def hold(route: Route) -> None:
        (gone_on if gone_on else held).append(route)
        if gone_on:
            route.continue_()

    page.route("**/events?after=*", hold)
    for after in range(0, 3000, 300):
        box.evaluate(f"box => {{ box.scrollTop = {22 * after} }}")
        page.wait_for_timeout(50)
    assert len(held) == 2, "the others wait for these"
    for route in held:
        gone_on.append(route)
        route.continue_()
    expect(box).to_contain_text("number 2690")


@task
def nine_steps_doubled() -> int:
    return 2 * sum(answer(number)["number"] for number in range(1, 10))


def test_a_fork_may_go_on_with_another_task_function(hf: Holdfast, look: Looking) -> None:
    hf.run(nine_steps, id="nine")
    page = look.open("/tasks/nine?call=4")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run another task function").click()
    dialog.get_by_label("The task function that goes on").fill("nine_steps_doubled")
    dialog.get_by_role("radio", name=re.compile("^reuse")).check()
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).to_have_url(re.compile("/compare/nine/"))
    fork = page.url.rsplit("/", 1)[1]
    until(lambda: hf.task(fork).status == "completed")
    assert (hf.task(fork).type, hf.task(fork).result) == ("nine_steps_doubled", 90)


def test_a_replay_says_whether_the_code_does_the_same(hf: Holdfast, look: Looking) -> None:
    hf.run(nine_steps, id="nine")
    head = hf.task("nine").seq
    page = look.open("/tasks/nine?call=4")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    look.press("p")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    found = dialog.get_by_label("What the replay found")
    expect(found).to_contain_text("the code does what it did")
    expect(found).to_contain_text("The log answered 9 calls.")
    dialog.get_by_role("radio", name="to call 4").check()
    dialog.get_by_role("button", name="Replay", exact=True).click()
    expect(found).to_contain_text("The log answered 3 calls.")
    assert hf.task("nine").seq == head


def test_files_show_their_content_and_what_changed(hf: Holdfast, look: Looking) -> None:
    finished_trip(hf)
    page = look.open("/tasks/trip-2?tab=files")
    page.get_by_role("button", name="plan.md").click()
    expect(page.locator("pre")).to_contain_text("Booked.")
    page.get_by_role("button", name=re.compile("^event ")).last.click()
    expect(page.locator("ul.diff li")).to_contain_text(["@@ -1 +1,3 @@", "Trip", "", "Booked."])


DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAA"
    "AElFTkSuQmCC"
)


@task
def draws() -> None:
    files.write("dot.png", b64decode(DOT))
    files.write("page.png", b"<script>alert(1)</script>")


def test_an_image_is_shown_and_what_only_claims_to_be_one_is_not(
    hf: Holdfast, look: Looking
) -> None:
    hf.run(draws, id="drawn")
    page = look.open("/tasks/drawn?tab=files")
    for name, width in (("dot.png", 10), ("page.png", 0)):
        page.get_by_role("button", name=name).click()
        image = page.get_by_alt_text(name)
        expect(image).to_have_js_property("complete", True)
        assert image.evaluate("e => e.naturalWidth") == width


def test_many_tasks_are_stopped_at_once_and_refusals_are_told(hf: Holdfast, look: Looking) -> None:
    asked_trip(hf, "trip-1")
    asked_trip(hf, "trip-2")
    failed_task(hf)
    page = look.open("/tasks")
    for id in ("trip-1", "trip-2", "breaks-1"):
        page.get_by_label(f"Select {id}").check()
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("the trip is off")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("body")).to_contain_text("cancel: 2 tasks; 1 refused")
    until(lambda: hf.task("trip-1").status == hf.task("trip-2").status == "cancelled")
    assert hf.task("trip-1").state.because == "the trip is off"


def test_all_tasks_that_match_are_stopped_not_only_those_that_are_shown(
    hf: Holdfast, look: Looking
) -> None:
    for number in range(4):
        asked_trip(hf, f"trip-{number}")
    failed_task(hf)
    page = look.open("/tasks?status=awaiting_user")
    page.get_by_label("Select trip-2").check()
    page.get_by_role("button", name="select all 4 tasks that match").click()
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog", name="Cancel all 4 tasks that match?")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("body")).to_contain_text("cancel: 4 tasks")
    until(lambda: len(list(hf.tasks(status="cancelled"))) == 4)
    assert hf.task("breaks-1").status == "failed"


def test_tasks_that_are_picked_are_compared_as_a_grid(hf: Holdfast, look: Looking) -> None:
    for id in ("one", "two", "three"):
        hf.run(tells_it, id, id=id)
    page = look.open("/tasks")
    for id in ("one", "two", "three"):
        page.get_by_label(f"Select {id}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("/compare/one/two\\?and=three$"))
    grid = page.get_by_role("group", name="Figures")
    expect(grid.get_by_role("columnheader")).to_have_text(["", "one", "two", "three"])


def test_a_rare_text_is_searched_for_to_the_end_of_the_list(
    hf: Holdfast, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.tasks._MOST_S", -1.0)
    monkeypatch.setattr("holdfast.web.tasks._AT_ONCE", 1)
    for number in range(6):
        hf.run(tells_it, "x", id=f"{'rare' if number == 0 else 'task'}-{number}")
    page = look.page

    def few(route: Route) -> None:
        route.continue_(url=route.request.url.replace("limit=100", "limit=1"))

    page.route("**/api/tasks?*", few)
    look.open("/tasks?text=rare")
    expect(page.get_by_role("row")).to_have_count(1)
    expect(page.get_by_role("row")).to_contain_text("rare-0")


def test_logs_are_searched_from_everywhere(hf: Holdfast, look: Looking) -> None:
    finished_trip(hf)
    page = look.open("/fleet")
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    look.press("/")
    dialog = page.get_by_role("dialog", name="Find")
    dialog.get_by_label("look into the logs too").check()
    dialog.get_by_role("searchbox").fill("Lodge")
    dialog.get_by_role("link", name=re.compile("^trip-2@")).first.click()
    expect(page).to_have_url(re.compile("/tasks/trip-2@"))
    look.press("3")
    expect(page.get_by_role("row", selected=True)).to_be_visible()
    look.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Oslo Lodge")


def test_queues_say_what_waits_in_them(hf: Holdfast, look: Looking) -> None:
    hf.queue(Queue("reports", concurrency=2)).pause(because="the printer is out", by="ada")
    hf.options(id="waits", queue="reports").start(tells_it, "ada")
    hf.start(tells_it, "bob", id="loose")
    page = look.open("/fleet")
    row = page.get_by_role("row").filter(has_text="reports")
    expect(row).to_contain_text("paused by ada, because the printer is out")
    expect(row.get_by_role("cell").nth(2)).to_have_text("1")
    loose = page.get_by_role("row").filter(has_text="in no queue")
    expect(loose.get_by_role("cell").nth(2)).to_have_text("1")
    row.get_by_role("link", name="reports").click()
    expect(page.get_by_role("grid", name="Tasks").get_by_role("row")).to_have_count(1)


def test_a_failed_child_is_crossed_and_leads_to_its_own_timeline(
    hf: Holdfast, look: Looking
) -> None:
    with pytest.raises(TaskFailed):
        hf.run(page_report, "unicorns", id="report")
    page = look.open("/tasks/report")
    row = page.get_by_role("option").filter(has_text="report.1")
    expect(row.locator(".bar.failed")).to_have_count(1)
    expect(row.locator(".mark.bad")).to_have_count(1)
    look.press("j", "Enter")
    expect(page).to_have_url(re.compile(r"/tasks/report\.1$"))


def test_a_wait_goes_on_to_now_folded_and_says_until_when(hf: Holdfast, look: Looking) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=3)
    times = iter(long_ago + timedelta(milliseconds=10 * n) for n in range(10_000))
    with Holdfast(hf.store.url, clock=lambda: next(times)) as then:
        then.start(page_naps, id="naps")
        Worker(then, poll_s=0.01).run_until_idle()
    page = look.open("/tasks/naps")
    row = page.get_by_role("option").filter(has_text="sleep")
    expect(row).to_contain_text("waits until")
    expect(page.locator(".fold")).to_contain_text(re.compile("2 h 59 m|3 h"))
    expect(page.get_by_role("region", name="What to do")).to_contain_text("It goes on in")
    expect(page.locator(".task > header")).to_contain_text("waiting")


@task
def page_naps() -> None:
    answer(1)
    sleep(24 * 3600)


def test_a_missions_board_moves_by_itself(hf: Holdfast, look: Looking, tmp_path: Path) -> None:
    id, means = mission(hf, tmp_path)
    next_item(hf, id, means)
    page = look.open("/missions/attic")
    expect(page.get_by_role("region", name="To do")).to_contain_text("look around")
    next_item(hf, id, means)
    expect(page.get_by_role("region", name="Done")).to_contain_text("look around")
    expect(page.locator("main")).to_contain_text("found.md")


def test_a_live_tasks_timeline_grows_without_a_reload(hf: Holdfast, look: Looking) -> None:
    asked_trip(hf)
    page = look.open("/tasks/trip-1")
    rows = page.get_by_role("option")
    expect(rows.first).to_be_visible()
    expect(page.locator(".live.on")).to_contain_text("following")
    before = rows.count()
    page.evaluate("window.stayed = true")
    hf.answer("trip-1", True, question="book", by="bob")
    hf.resume("trip-1")
    expect(page.locator(".task > header")).to_contain_text("completed")
    expect(rows.filter(has_text="count_page_guests")).to_be_visible()
    assert rows.count() > before
    assert page.evaluate("window.stayed") is True


def test_a_step_that_streams_is_read_as_it_is_written(hf: Holdfast, look: Looking) -> None:
    go_on.clear()
    with ThreadPoolExecutor(1) as threads:
        talking = threads.submit(hf.run, page_talks, id="talks")
        try:
            page = look.open("/tasks/talks?call=1")
            stream = page.get_by_label("Stream of call 1")
            expect(stream).to_contain_text("The kettle <b>is</b>")
            expect(stream).to_contain_text("streams now")
        finally:
            go_on.set()
        assert talking.result(60) == "The kettle <b>is</b> on its way."
    details = page.get_by_role("group", name="The call's details")
    expect(details).to_contain_text("on its way.")
    expect(page.locator(".task > header")).to_contain_text("completed")


def test_a_conversation_shows_its_compaction(hf: Holdfast, look: Looking) -> None:
    session = hf.session("talk-1", user="ada")
    fill(session)
    page = look.open("/sessions/talk-1")
    told = page.get_by_label("Compaction up to message 4")
    expect(told).to_contain_text("Ada asked for her order twice.")
    expect(page.get_by_label("user, message 1")).to_contain_text("question 0")
    expect(page.get_by_label("user, message 5")).to_contain_text("question 2")
    assert page.locator(".turn.left-out").count() == 4


def test_images_of_a_conversation_are_shown_and_long_texts_can_be_had_whole(
    hf: Holdfast, look: Looking
) -> None:
    session = hf.session("talk-2", user="ada")
    session.say(
        Message("user", (Media(kind="image", media_type="image/png", data=b64decode(DOT)),))
    )
    session.say(Message("user", (Media(kind="image", media_type="image/png", data=b"<script>"),)))
    session.say("long " * 10_000)
    page = look.open("/sessions/talk-2")
    image = page.get_by_label("user, message 1").get_by_role("img")
    expect(image).to_have_js_property("naturalWidth", 10)
    second = page.get_by_label("user, message 2")
    expect(second).to_contain_text("image/png")
    expect(second.get_by_role("img")).to_have_count(0)
    with page.expect_download() as told:
        page.get_by_label("user, message 3").get_by_role("link", name="Download it").click()
    assert Path(told.value.path()).read_text() == "long " * 10_000


def in_short(messages: Sequence[Message]) -> str:
    return "Ada asked for her order twice."


@task
def tidy() -> None:
    compact(current_session(), in_short, keep_turns=2)


def fill(session: Session) -> None:
    """A conversation of six messages, of which four are summarized."""
    for number in range(3):
        session.say(f"question {number}, and a long story around it, {'on and on ' * 9}")
        session.say(Message("assistant", f"answer {number}, {'and so on ' * 9}"))
    session.run(tidy, id=f"tidy {session.id}")


def test_everything_can_be_reached_by_keyboard_alone(hf: Holdfast, look: Looking) -> None:
    asked_trip(hf)
    failed_task(hf)
    page = look.open("/")
    expect(page.locator(".need")).to_have_count(2)
    look.press("g", "t")
    expect(page).to_have_url(re.compile("/tasks$"))
    expect(page.get_by_role("row").first).to_be_visible()
    look.press("/")
    page.keyboard.type("trip")
    expect(page.get_by_role("row")).to_have_count(1)
    look.press("Tab")
    page.evaluate("document.activeElement.blur()")
    look.press("Enter")
    expect(page).to_have_url(re.compile("/tasks/trip-1"))
    expect(page.get_by_role("option").first).to_be_visible()
    look.press("j")
    expect(page.get_by_role("option", selected=True)).to_contain_text("find_page_rooms")
    expect(page.get_by_role("group", name="The call's details")).to_contain_text("hotels.example")
    look.press("3")
    expect(page.get_by_role("grid", name="Events")).to_be_visible()
    look.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    look.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()  # it hears keys until then
    look.press("g", "i")
    expect(page.locator(".need")).to_have_count(2)
    yes = page.get_by_role("button", name="Yes")
    for _ in range(60):
        look.press("Tab")
        if yes.evaluate("e => e === document.activeElement"):
            break
    outline = yes.evaluate("e => getComputedStyle(e).outlineStyle")
    assert outline == "solid", "the focus can't be seen"
    look.press("Enter")
    until(lambda: hf.task("trip-1").status == "completed")


AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PLACES = (
    "/",
    "/tasks",
    "/tasks/trip-2",
    "/tasks/trip-2@6?call=1",
    "/tasks/trip-2?tab=log",
    "/tasks/trip-2?tab=tree",
    "/tasks/trip-2?tab=plan",
    "/tasks/trip-2?tab=files",
    "/tasks/trip-2?tab=why",
    "/sessions",
    "/sessions/talk-1",
    "/missions",
    "/fleet",
    "/compare/trip-1/trip-2",
)


@pytest.mark.parametrize("scheme", ["light", "dark"] if THOROUGH else ["light"])
def test_axe_reports_no_serious_violation(hf: Holdfast, browser: Browser, scheme: Any) -> None:
    if not AXE.exists():
        give_up("axe-core is not installed; `make web` installs it")
    for make in (asked_trip, finished_trip, failed_task, doubtful, approval):
        make(hf)
    fill(hf.session("talk-1", user="ada"))
    found: dict[str, list[str]] = {}
    with looking(browser, hf, color_scheme=scheme) as look:
        for place in PLACES:
            page = look.open(place)
            page.locator("main :is(h1, [role=option], [role=row], .need, .turn)").first.wait_for()
            expect(page.locator(".loading")).to_have_count(0)
            found |= {place: faults} if (faults := serious(page)) else {}
        look.press("?")
        assert found == {} and serious(look.page) == []


def serious(page: Page) -> list[str]:
    """What axe finds. It is evaluated by the driver, outside the page's policy."""
    page.evaluate(f"() => {{ {AXE.read_text()}; }}")
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_a_hostile_log_is_shown_inert(hf: Holdfast, look: Looking) -> None:
    hf.run(hostile, HOSTILE, id="hostile <b>&'\"", user="<i>eve</i>", labels={"x": HOSTILE[0]})
    session = hf.session("talk <script>", user=HOSTILE[1])
    for text in HOSTILE:
        session.say(text)
    id = "hostile%20%3Cb%3E%26%27%22"
    for address in (
        f"/tasks/{id}?call=1",
        f"/tasks/{id}?call=4&tab=log",
        f"/tasks/{id}?tab=why",
        "/sessions/talk%20%3Cscript%3E",
        "/tasks?text=%3Cb%3E",
        f"/compare/{id}/{id}",
    ):
        page = look.open(address)
        expect(page.locator(".loading")).to_have_count(0)
        assert page.locator("main script, main img, main iframe, main b > script").count() == 0
        assert page.locator("a[href^='javascript:']").count() == 0
        text = page.locator("main").inner_text()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b\x07\u200b]", text), address
        assert "owned" not in page.title()
    page = look.open(f"/tasks/{id}?call=1")
    details = page.get_by_role("group", name="The call's details")
    expect(details).to_contain_text("<script>document.title = 'owned'; alert(1)</script>")
    expect(page.locator(".task > header h1")).to_have_text("hostile <b>&'\"")
    nested = details.locator("li", has=page.locator("bdi.key", has_text="deep")).last
    nested.locator("button.twist").first.click()


def test_a_huge_value_is_shown_by_its_size(hf: Holdfast, look: Looking) -> None:
    hf.run(hostile, ["x" * 3_000_000], id="huge")
    page = look.open("/tasks/huge?call=1")
    details = page.get_by_role("group", name="The call's details")
    expect(details).to_contain_text("Download it")
    assert page.evaluate("document.querySelector('main').innerText.length") < 50_000


def cut_off(page: Page) -> list[str]:
    """What can be pressed or typed into, and reaches past the edge. Tabs may be scrolled."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("main :is(button, input, textarea, select)")]
          .filter((e) => !e.closest(".tabs") && e.getBoundingClientRect().right > innerWidth)
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    return found


def test_the_page_is_usable_on_a_phone(hf: Holdfast, browser: Browser) -> None:
    asked_trip(hf)
    doubtful(hf)
    with pytest.raises(Unanswered):
        hf.run(page_writes, id="writes")
    with pytest.raises(TaskFailed):
        hf.run(page_report, "kettles", id="report")
    places = ("/", "/tasks", "/tasks/trip-1", "/tasks/writes", "/tasks/report", "/fleet")
    with looking(browser, hf, viewport={"width": 390, "height": 844}) as look:
        for place in places:
            page = look.open(place)
            expect(page.locator(".loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, place
            assert cut_off(page) == [], place
        page = look.open("/tasks/report")
        expect(page.get_by_role("option").get_by_text("page_research")).to_be_visible()
        page = look.open("/tasks/invite-1")
        page.get_by_role("button", name="It happened").click()
        dialog = page.get_by_role("dialog")
        one = dialog.get_by_label("What it returned").bounding_box()
        other = dialog.get_by_label("How you know").bounding_box()
        assert one and other and one["width"] == other["width"], "it has a form of its own"
        page.goto("about:blank")
        page.set_content(look.client.http.get("/api/tasks/report/export").text)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the export"
        page = look.open("/")
        page.get_by_role("button", name="Yes").click()
        until(lambda: hf.task("trip-1").status == "completed")


def test_read_only_says_so_and_offers_nothing(hf: Holdfast, browser: Browser) -> None:
    asked_trip(hf)
    with serving(hf, read_only=True) as client:
        look = Looking(browser, client)
        page = look.open("/")
        expect(page.locator("main")).to_contain_text("read-only")
        expect(page.get_by_role("button", name="Yes")).to_be_disabled()
        page = look.open("/tasks/trip-1")
        expect(page.get_by_role("button", name="Fork")).to_be_disabled()
        look.press("r")
        expect(page.get_by_role("status").get_by_text("read-only")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        look.close()


def test_a_stale_token_is_told_in_words(hf: Holdfast, look: Looking) -> None:
    look.context.clear_cookies()
    page = look.open("/tasks")
    expect(page.get_by_role("alert").first).to_contain_text("token is no longer valid")


@task
def asks_often(times: int) -> int:
    return sum(answer(number)["number"] for number in range(times))


def test_an_address_may_name_a_call_far_down(hf: Holdfast, look: Looking) -> None:
    hf.run(asks_often, 2100, id="often")
    page = look.open("/tasks/often?call=2050")
    chosen = page.get_by_role("option", selected=True)
    expect(chosen).to_be_in_viewport()
    expect(chosen).to_contain_text("2050")


def test_the_address_keeps_the_place(hf: Holdfast, look: Looking) -> None:
    finished_trip(hf)
    page = look.open("/tasks/trip-2@5?call=1&tab=log")
    expect(page.get_by_role("tab", name="Log")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("row", selected=True)).to_have_attribute("aria-rowindex", "5")
    look.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"@6\?call=1&tab=log$"))
    assert json.loads(page.evaluate("JSON.stringify(history.length)")) <= 4
