"""The outside world has to count right, or no crash test that trusts its count means anything."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from examples.trip.client import ROOT, Json, NoAnswer, World, WorldError, start_world


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_world(tmp_path_factory.mktemp("world") / "world.db") as (_, url):
        yield url


@pytest.fixture
def world(base_url: str) -> World:
    world = World(base_url)
    world.reset()
    return world


def raw_post(base_url: str, path: str, body: bytes, key: str | None = None) -> tuple[int, Json]:
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=30)
    connection.request("POST", path, body, {} if key is None else {"Idempotency-Key": key})
    response = connection.getresponse()
    reply = json.loads(response.read())
    connection.close()
    return response.status, reply


def test_searches_give_the_same_answer_twice_and_change_nothing(world: World) -> None:
    assert world.flights(to="Oslo") == world.flights(to="Oslo")
    assert world.hotels("Oslo") == world.hotels("Oslo")
    assert {offer["city"] for offer in world.hotels("Oslo")} == {"Oslo"}
    assert world.rows() == []


def test_weather_fails_as_often_as_asked_for_each_run(world: World) -> None:
    for run in ("a", "b"):
        for _ in range(3):
            with pytest.raises(WorldError, match="down") as error:
                world.weather("Oslo", run=run, failures=3)
            assert error.value.status == 503
        assert world.weather("Oslo", run=run, failures=3)["city"] == "Oslo"
    assert world.weather_calls() == {"a": 4, "b": 4}
    assert set(world.counts().values()) == {0}


def test_a_payment_with_a_known_key_gives_the_first_answer_and_does_nothing(world: World) -> None:
    first = world.pay(142, to="HF 305", reference="t", key="k")
    assert world.pay(142, to="HF 305", reference="t", key="k") == first
    assert world.counts()["payments"] == 1


def test_a_new_effect_answers_201_and_a_repeat_200(base_url: str, world: World) -> None:
    body = b'{"amount": 5, "to": "x"}'
    status, first = raw_post(base_url, "/payments", body, "k")
    assert status == 201
    assert raw_post(base_url, "/payments", b'{"to":"x","amount":5}', "k") == (200, first)
    assert world.find("payments", "none") == []


def test_a_known_key_with_another_body_is_refused(world: World) -> None:
    first = world.pay(142, to="HF 305", key="k")
    with pytest.raises(WorldError, match="another body") as error:
        world.pay(143, to="HF 305", key="k")
    assert error.value.status == 422
    assert world.rows() == [first]


def test_a_key_belongs_to_one_kind_of_effect(world: World) -> None:
    world.pay(142, to="HF 305", key="k")
    world.book("Grand", nights=1, key="k")
    assert world.counts()["payments"] == world.counts()["bookings"] == 1


def test_payments_without_a_key_are_made_again(world: World) -> None:
    world.pay(142, to="HF 305")
    world.pay(142, to="HF 305")
    assert world.counts()["payments"] == 2


def test_a_booking_is_cancelled_once(world: World) -> None:
    booking = world.book("Grand", nights=2, reference="t", key="k")
    first = world.cancel_booking(booking["id"])
    assert world.cancel_booking(booking["id"]) == first
    assert first["booking"] == booking["id"]
    assert world.counts()["cancellations"] == 1
    assert world.find("cancellations", "t") == [first]
    with pytest.raises(WorldError, match="no booking 999") as error:
        world.cancel_booking(999)
    assert error.value.status == 404


def test_invites_and_mails_ignore_keys_and_are_found_by_reference(
    base_url: str, world: World
) -> None:
    for path in ("/invites", "/mails"):
        body = b'{"title": "Trip", "to": "ada", "reference": "r"}'
        assert [raw_post(base_url, path, body, "k")[0] for _ in range(2)] == [201, 201]
        kind = path[1:]
        assert [found["reference"] for found in world.find(kind, "r")] == ["r", "r"]
        assert world.find(kind, "other") == []
    assert world.counts()["invites"] == world.counts()["mails"] == 2


def test_any_kind_of_effect_is_counted_and_found(world: World) -> None:
    for _ in range(2):
        world.effect("lamps/on", "r", honour_key=True, key="k")
        world.effect("rung", "r", honour_key=False, key="k")
    assert world.counts()["lamps/on"] == 1
    assert world.counts()["rung"] == 2
    assert len(world.find("lamps/on", "r")) == 1
    assert [row["kind"] for row in world.rows()] == ["lamps/on", "rung", "rung"]


def test_many_clients_at_once_get_one_effect_a_key(world: World) -> None:
    with ThreadPoolExecutor(64) as pool:
        calls = [
            pool.submit(world.effect, "e", f"{i % 50}", honour_key=True, key=f"k{i % 50}")
            for i in range(400)
        ]
        answers = {call.result()["id"] for call in calls}
    assert world.counts()["e"] == 50
    assert answers == {row["id"] for row in world.rows()}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/invites", b'{"title": "x"}', 400, "'reference' is missing"),
        ("/invites", b"{", 400, "not JSON"),
        ("/invites", b"[]", 400, "must be a JSON object"),
        ("/effects/e", b"{}", 400, "'reference' is missing"),
        ("/nothing", b"{}", 404, "no such endpoint: POST /nothing"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(
    base_url: str, world: World, path: str, body: bytes, status: int, message: str
) -> None:
    got, reply = raw_post(base_url, path, body)
    assert got == status
    assert message in reply["error"]
    assert world.rows() == []


def test_what_was_answered_survives_sigkill(tmp_path: Path) -> None:
    db_path = tmp_path / "world.db"
    with start_world(db_path) as (process, url):
        world = World(url)
        payment = world.pay(142, to="HF 305", reference="t", key="k")
        world.invite("Trip", "ada", reference="t")
        with pytest.raises(WorldError):
            world.weather("Oslo", run="t", failures=2)
        before = (world.counts(), world.rows(), world.weather_calls())
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(NoAnswer):
            world.counts()
    with start_world(db_path) as (_, url):
        world = World(url)
        assert (world.counts(), world.rows(), world.weather_calls()) == before
        assert world.pay(142, to="HF 305", reference="t", key="k") == payment
        assert world.counts() == before[0]


def test_a_kill_under_load_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    db_path = tmp_path / "world.db"
    answered: list[int] = []

    def post_until_it_dies(world: World) -> None:
        while True:
            try:
                answered.append(world.effect("e", "r")["id"])
            except NoAnswer:
                return
            if len(answered) >= 100:
                process.kill()

    with start_world(db_path) as (process, url), ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(post_until_it_dies, World(url)) for _ in range(8)]
        for client in clients:
            client.result()
    with start_world(db_path) as (_, url):
        ids = {row["id"] for row in World(url).rows()}
    assert len(answered) >= 100
    assert set(answered) <= ids
    # Each client may have had one call under way that happened without an answer.
    assert len(ids) - len(answered) <= 8


def test_the_world_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from examples.trip.client import start_world\n"
        "with start_world(sys.argv[1]) as (process, url):\n"
        "    print(url, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "world.db")]
    # The world inherits the pipe for stderr, so run() waits for the end of both processes.
    starter = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, timeout=60)
    assert starter.returncode == -signal.SIGKILL
    with pytest.raises(NoAnswer):
        World(starter.stdout.decode().strip()).counts()


def test_the_naive_agent_starts_over_and_sends_a_second_invite(base_url: str, world: World) -> None:
    def naive(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "examples.trip.naive", base_url, *options]
        return subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    killed = naive("--die-after-invite")
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.splitlines()[-1] == "step 6: send_invite"
    assert world.counts()["invites"] == 1

    again = naive()
    assert again.returncode == 0
    assert again.stdout.splitlines()[0] == "step 1: search_flights"
    assert "Harbour Inn" in again.stdout.splitlines()[-1]
    assert len(world.find("invites", "trip-42")) == 2
    assert world.counts()["mails"] == 1
