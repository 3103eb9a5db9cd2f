"""The agent everybody writes first: nine steps in a row, its state in local variables.

Nothing here is made worse than usual. It retries the flaky service, it sends idempotency
keys where the service takes them, and on a good day it is right. But a crash takes the
variables and the keys with it: start it again and it begins at step 1, books and pays under
fresh keys, and sends a second invite.

    python -m examples.trip.naive BASE_URL --die-after-invite   # killed in step 6
    python -m examples.trip.naive BASE_URL                      # "resumed"
"""

import argparse
import os
import signal
import time
from typing import Any
from uuid import uuid4

from .client import World, WorldError

Json = dict[str, Any]

TRIP, CITY, GUEST = "trip-42", "Oslo", "ada@example.com"


def check_weather(world: World, attempts: int = 5, delay_s: float = 0.05) -> Json:
    for attempt in range(attempts):
        try:
            return world.weather(CITY, run=TRIP, failures=2)
        except WorldError as error:
            if error.status != 503 or attempt == attempts - 1:
                raise
            print(f"        {error}; again")
            time.sleep(delay_s * 2**attempt)
    raise ValueError(f"attempts must be at least 1, not {attempts}")


def cheapest(offers: list[Json]) -> Json:
    return min(offers, key=lambda offer: offer["price"])


def itinerary(flight: Json, booking: Json, weather: Json) -> str:
    return (
        f"{CITY}: fly {flight['flight']} at {flight['departs']}, "
        f"stay {booking['nights']} nights at {booking['hotel']}, expect {weather['weather']}."
    )


def plan_trip(world: World, die_after_invite: bool = False) -> str:
    print("step 1: search_flights")
    flight = cheapest(world.flights(to=CITY))

    print("step 2: search_hotels")
    hotel = cheapest([offer for offer in world.hotels(CITY) if offer["desk"]])

    print("step 3: check_weather")
    weather = check_weather(world)

    print("step 4: book_hotel")
    booking = world.book(hotel["hotel"], nights=2, reference=TRIP, key=str(uuid4()))

    print("step 5: pay")
    payment = world.pay(flight["price"], to=flight["flight"], reference=TRIP, key=str(uuid4()))

    print("step 6: send_invite", flush=True)
    invite = world.invite(f"Trip to {CITY}", GUEST, reference=TRIP)
    if die_after_invite:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    print("step 7: send_mail")
    mail = world.mail(GUEST, f"Your trip to {CITY}", "It is booked.", reference=TRIP)

    print("step 8: write_itinerary")
    text = itinerary(flight, booking, weather)

    print("step 9: summarize")
    return f"{text} Payment {payment['id']}, invite {invite['id']}, mail {mail['id']}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="naive", description="An agent without state.")
    parser.add_argument("base_url", help="where the world listens: http://127.0.0.1:PORT")
    parser.add_argument(
        "--die-after-invite",
        action="store_true",
        help="SIGKILL this process when the invite is sent, before anything else happens",
    )
    options = parser.parse_args()
    print(plan_trip(World(options.base_url), options.die_after_invite))


if __name__ == "__main__":
    main()
