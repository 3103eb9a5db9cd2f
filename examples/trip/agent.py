"""The same nine steps as `naive.py`, on Holdfast: crash anywhere, run again, and it goes on.

python -m examples.trip.agent BASE_URL WORKSPACE --die-after-invite   # killed in step 6
python -m examples.trip.agent BASE_URL WORKSPACE                      # goes on at step 6
"""

import argparse
import os
import signal
from dataclasses import dataclass
from typing import Any

from holdfast import Happened, Holdfast, IdempotencyKey, Retry, current, decide, step, task, tool

from .client import World

Json = dict[str, Any]

TRIP, CITY, GUEST = "trip-42", "Oslo", "ada@example.com"
NO_KEY = IdempotencyKey()
PLAN = (
    "search_flights", "search_hotels", "check_weather", "book_hotel", "pay",
    "send_invite", "send_mail", "write_itinerary", "summarize",
)  # fmt: skip

world = World("http://127.0.0.1:0")  # where it really is, main() says
die_after_invite = False


@dataclass
class Flight:
    flight: str
    departs: str
    price: float


@dataclass
class Hotel:
    hotel: str
    price: float
    desk: bool


def say(text: str = "") -> None:
    """Only a body that really runs says anything: what the log answers stays silent."""
    print(f"step {current().path}: {current().name}{text}", flush=True)


@step
def search_flights(city: str) -> list[Flight]:
    say()
    return [Flight(f["flight"], f["departs"], f["price"]) for f in world.flights(to=city)]


@step
def search_hotels(city: str) -> list[Hotel]:
    say()
    return [Hotel(h["hotel"], h["price"], h["desk"]) for h in world.hotels(city)]


@step(retry=Retry(attempts=5, delay_s=0.05))
def check_weather(city: str) -> str:
    say(f", attempt {current().attempt}")
    weather: str = world.weather(city, run=current().task_id, failures=2)["weather"]
    return weather


# These two services take an idempotency key, so a call in doubt is simply made again.


@tool
def book_hotel(hotel: str, nights: int, *, key: IdempotencyKey = NO_KEY) -> Json:
    say()
    return world.book(hotel, nights, key=key)


@tool
def pay(amount: float, to: str, *, key: IdempotencyKey = NO_KEY) -> Json:
    say()
    return world.pay(amount, to, key=key)


# These two don't, but can be asked: did a call with this key go through?


def invite_by_key(key: str) -> Happened[Json] | None:
    found = world.find("invites", key)
    print(f"step {key.split(':')[1]}: in doubt, so the calendar is asked for {key}")
    print(f"        {'it is there: not sent again' if found else 'it is not there: sent now'}")
    return Happened(found[0]) if found else None


def mail_by_key(key: str) -> Happened[Json] | None:
    found = world.find("mails", key)
    return Happened(found[0]) if found else None


@tool(check=invite_by_key)
def send_invite(title: str, guest: str, *, key: IdempotencyKey = NO_KEY) -> Json:
    say()
    sent = world.invite(title, guest, reference=key)
    if die_after_invite:  # the worst moment: it happened, and nothing says so yet
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    return sent


@tool(check=mail_by_key)
def send_mail(to: str, subject: str, text: str, *, key: IdempotencyKey = NO_KEY) -> Json:
    say()
    return world.mail(to, subject, text, reference=key)


@step
def write_itinerary(flight: Flight, booking: Json, weather: str) -> str:
    say()
    return (
        f"{CITY}: fly {flight.flight} at {flight.departs}, "
        f"stay {booking['nights']} nights at {booking['hotel']}, expect {weather}."
    )


@step
def summarize(itinerary: str, *ids: int) -> str:
    say()
    return f"{itinerary} Payment {ids[0]}, invite {ids[1]}, mail {ids[2]}."


@task
def plan_trip(city: str, guest: str) -> str:
    current().plan(PLAN)
    flights = search_flights(city)
    hotels = search_hotels(city)
    weather = check_weather(city)
    flight = decide(
        "flight", min(flights, key=lambda f: f.price), options=flights, because="the cheapest"
    )
    hotel = decide(
        "hotel",
        min((h for h in hotels if h.desk), key=lambda h: h.price),
        options=hotels,
        because="the cheapest with a desk",
    )
    booking = book_hotel(hotel.hotel, 2)
    payment = pay(flight.price, flight.flight)
    invite = send_invite(f"Trip to {city}", guest)
    mail = send_mail(guest, f"Your trip to {city}", "It is booked.")
    itinerary = write_itinerary(flight, booking, weather)
    return summarize(itinerary, payment["id"], invite["id"], mail["id"])


def main() -> None:
    global world, die_after_invite
    parser = argparse.ArgumentParser(prog="agent", description="The trip, on Holdfast.")
    parser.add_argument("base_url", help="where the world listens: http://127.0.0.1:PORT")
    parser.add_argument("workspace", help="the folder that keeps the task")
    parser.add_argument(
        "--die-after-invite",
        action="store_true",
        help="SIGKILL this process when the invite is sent, before its result is recorded",
    )
    options = parser.parse_args()
    world, die_after_invite = World(options.base_url), options.die_after_invite
    with Holdfast(options.workspace) as hf:
        print(hf.run(plan_trip, CITY, GUEST, id=TRIP))


if __name__ == "__main__":
    main()
