"""What a fleet is measured by"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast import Holdfast, Retry, Worker, ask, step, task
from holdfast.errors import LeaseLost
from holdfast.views import metrics as metering
from holdfast.views.metrics import OTHER, Histogram, WriteMeter, standing


@step
def reply_for_meter(prompt: str) -> dict[str, object]:
    return {"model": "m-1", "usage": {"input_tokens": 7, "output_tokens": 2, "cost": 0.5}}


@step
def asks_inside_for_meter(prompt: str) -> dict[str, object]:
    return reply_for_meter(prompt)


tries: list[int] = []


@step(retry=Retry(attempts=3, delay_s=0))
def flaky_for_meter() -> str:
    tries.append(1)
    if len(tries) % 2:
        raise RuntimeError("no")
    return "yes"


@task
def metered(n: int) -> int:
    asks_inside_for_meter("hi")
    flaky_for_meter()
    return n


@task
def metered_question() -> bool:
    return ask("Really?", bool, id="really")


def counted(hf: Holdfast, meter: WriteMeter) -> dict[str, dict[tuple[str, ...], object]]:
    return {
        family.name: {tuple(value for _, value in labels): n for labels, n in family.values.items()}
        for family in meter.metrics()
    }


def test_what_this_process_wrote_is_counted_once():
    with Holdfast("memory://") as hf:
        meter = hf._holding.watched = WriteMeter(hf.store)
        hf.run(metered, 1, id="m-1")
        hf.run(metered, 1, id="m-1")  # it has ended: nothing is written
        found = counted(hf, meter)
        assert found["holdfast_tasks_created_total"] == {("metered",): 1}
        assert found["holdfast_tasks_ended_total"] == {("metered", "completed"): 1}
        assert found["holdfast_calls_total"] == {
            ("reply_for_meter", "step", "completed"): 1,
            ("asks_inside_for_meter", "step", "completed"): 1,
            ("flaky_for_meter", "step", "failed"): 1,
            ("flaky_for_meter", "step", "completed"): 1,
        }
        assert found["holdfast_retries_total"] == {("flaky_for_meter",): 1}
        # The outer step returns what the model told inside of it, and asked nobody itself.
        assert found["holdfast_tokens_total"] == {
            ("m-1", "input"): 7,
            ("m-1", "output"): 2,
            ("m-1", "cached"): 0,
        }
        assert found["holdfast_cost_total"] == {("m-1",): 0.5}
        durations = found["holdfast_call_duration_seconds"]
        taken = durations["flaky_for_meter", "step"]
        assert isinstance(taken, Histogram) and taken.count == 2
        assert counted(hf, meter) == found


def test_a_lost_lease_is_counted_and_other_errors_by_their_type():
    with Holdfast("memory://") as hf:
        meter = WriteMeter(hf.store)
        with hf._holding.hold("t-1") as log:
            log.watched = meter
            log.refuse(LeaseLost("tasks/t-1 was taken over"))
            log.refuse(LeaseLost("told again"))
        found = counted(hf, meter)
        assert found["holdfast_lease_losses_total"] == {("",): 1}
        assert found["holdfast_store_errors_total"] == {}


def test_how_tasks_stand_is_told_by_the_index_of_the_store():
    with Holdfast("memory://") as hf:
        hf.run(metered, 1, id="m-1")
        hf.start(metered_question, id="q-1")
        hf.start(metered_question, id="q-2")
        later = datetime.now(UTC) + timedelta(seconds=60)
        counts, due, age = standing(hf.store, later)
        assert counts.values == {
            (("type", "metered"), ("status", "completed")): 1,
            (("type", "metered_question"), ("status", "pending")): 2,
        }
        assert due.values == {(): 2}
        assert 59 < float(age.values[()]) < 120
        Worker(hf).run_until_idle()
        counts, due, age = standing(hf.store, later)
        assert counts.values[("type", "metered_question"), ("status", "awaiting_user")] == 2
        assert (due.values, age.values) == ({(): 0}, {(): 0.0})


def test_names_made_of_data_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(metering, "_MOST_SERIES", 3)
    with Holdfast("memory://") as hf:
        meter = WriteMeter(hf.store)
        for n in range(10):
            meter._add("holdfast_claims_total", type=f"t{n}")
        found = counted(hf, meter)["holdfast_claims_total"]
    assert found == {("t0",): 1, ("t1",): 1, ("t2",): 1, (OTHER,): 7}
