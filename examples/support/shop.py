"""The shop that the agent works for: a few orders, refunds, and emails.

What the agent does to it is counted by a server in a process of its own (that of the trip), which
does not crash with the agent.
"""

from __future__ import annotations

from typing import Any

from examples.trip.client import World

Json = dict[str, Any]

ORDERS: dict[int, Json] = {
    1042: {"item": "a blue kettle", "price": 49.0, "status": "delivered on 2 March"},
    1043: {"item": "a teapot", "price": 30.0, "status": "on its way"},
}


class Shop:
    """What the shop can be asked, and asked to do."""

    def __init__(self, base_url: str) -> None:
        self.world = World(base_url)

    def order(self, number: int) -> Json:
        """An order as it is now."""
        if number not in ORDERS:
            raise LookupError(f"there is no order {number}")
        refunded = bool(self.world.find("payments", f"order {number}"))
        return {"order": number, **ORDERS[number], "refunded": refunded}

    def refund(self, number: int, *, key: str) -> Json:
        """Pay an order back. The bank honours the key: a second call with it pays nothing."""
        if number not in ORDERS:
            raise LookupError(f"there is no order {number}")
        amount = ORDERS[number]["price"]
        self.world.pay(amount, to="the customer", reference=f"order {number}", key=key)
        return {"order": number, "refunded": amount}

    def email(self, to: str, subject: str, text: str, *, reference: str) -> Json:
        """Send an email. The mail service knows no keys: every call is another email."""
        self.world.mail(to, subject, text, reference=reference)
        return {"sent_to": to}

    def email_sent(self, reference: str) -> Json | None:
        """The email that was sent with this reference, if there is one."""
        found = self.world.find("mails", reference)
        return {"sent_to": found[0]["to"]} if found else None
