"""The audits and stats of the real examples: what they tell is what happened."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.support.agent import REQUESTS, converse, make_agent, work_for
from examples.support.script import script
from examples.support.shop import Shop
from examples.trip.client import ROOT, World, start_world
from holdfast import Holdfast
from holdfast.agent.adapters import OpenAIChat
from holdfast.testing.scripted import ScriptedModel
from holdfast.views.audit.pages import sheet, to_html, to_markdown

openai = pytest.importorskip("openai")


def test_the_trip_that_was_killed_is_told_with_who_drove_it_and_what_was_saved(
    tmp_path: Path,
) -> None:
    def drive(url: str, *options: str) -> int:
        command = [sys.executable, "-m", "examples.trip.agent", url, str(tmp_path / "trip")]
        return subprocess.run(
            [*command, *options], cwd=ROOT, capture_output=True, check=False
        ).returncode

    with start_world(tmp_path / "world.db") as (_, url):
        assert drive(url, "--die-after-invite") == -signal.SIGKILL
        assert drive(url) == 0
        payments = World(url).counts()["payments"]
    with Holdfast(tmp_path / "trip") as hf:
        found, numbers = hf.audit("trip-42"), hf.stats()
    assert found.verification.sound and found.status == "completed" and not found.open
    first, second = found.claims
    assert first.owner != second.owner and "never released it" in second.how
    calls = [e for e in found.entries if e.what == "called"]
    assert [e.name for e in calls if e.epoch == second.epoch] == [
        "send_mail",
        "write_itinerary",
        "summarize",
    ]
    assert sum(e.name == "pay" for e in calls) == payments == 1
    (settled,) = [e for e in found.entries if e.what == "doubt settled"]
    assert (settled.name, settled.who, settled.verdict) == ("send_invite", "check", "happened")
    weather = [e.what for e in found.entries if e.name == "check_weather"]
    assert weather.count("attempt failed") == 2
    hotel = next(e for e in found.entries if e.what == "decided" and e.name == "hotel")
    assert hotel.because == "the cheapest with a desk" and len(hotel.options) > 1
    for page in (to_html(sheet(found)), to_markdown(sheet(found))):
        assert "The log is as it was written" in page
        assert "send_invite" in page.replace("\\", "")

    (trip,) = numbers.types
    assert (trip.tasks, trip.failures, trip.saved.resumes) == (1, 2, 1)
    assert trip.saved.calls == 5  # those before the invite
    by_name = {call.name: call for call in numbers.calls}
    assert (by_name["check_weather"].retries, by_name["check_weather"].failures) == (2, 2)
    assert by_name["check_weather"].backoff_s >= 0.05
    assert by_name["send_invite"].durations.total_s == 0  # nobody knows how long it took
    wall_s = (found.entries[-1].at - found.entries[0].at).total_seconds()
    assert trip.durations.total_s == pytest.approx(wall_s, abs=1e-5)


def test_the_support_agent_is_told_with_its_tokens_and_who_answered(tmp_path: Path) -> None:
    with (
        start_world(tmp_path / "shop.db") as (_, url),
        ScriptedModel(script) as server,
        Holdfast(tmp_path / "agent") as hf,
    ):
        work_for(Shop(url))
        client = openai.OpenAI(api_key="none", base_url=server.url)
        agent = make_agent(OpenAIChat(client, "scripted"))
        used = [result.usage for _, result in converse(hf, agent, lambda question: "Yes.")]
        audits = [hf.audit(id) for id in REQUESTS]
        numbers = hf.stats(type="support", prices={"scripted": (1, 2)})
        client.close()
    assert all(each.verification.sound for each in audits)
    (answered,) = [e for e in audits[1].entries if e.what == "answered"]
    assert (answered.who, answered.output) == ("ada", "Yes.")
    assert numbers.tasks == 3 and not numbers.unreadable
    assert numbers.spent.input_tokens == sum(usage.input_tokens for usage in used)
    assert numbers.spent.output_tokens == sum(usage.output_tokens for usage in used)
    named, unnamed = sorted(numbers.models, key=lambda each: each.model, reverse=True)
    assert (named.model, unnamed.model) == ("scripted", "")  # a summary does not say of which
    spent = named.spent
    assert spent.cost == pytest.approx((spent.input_tokens + 2 * spent.output_tokens) / 1e6)
    assert numbers.spent.unpriced == unnamed.spent.model_calls == 1
    assert numbers.saved.resumes == 1 and numbers.saved.spent.model_calls >= 1
