"""The task behind the web app: an order is packed, paid for, and sent.

Its one effect outside is a line in a ledger, which stands for a payment provider: a payment is made
by its key, and can be looked up by it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, Field

from holdfast import (
    Happened,
    IdempotencyKey,
    StepFailed,
    ask,
    note,
    progress,
    receive,
    step,
    task,
    tool,
)

LEDGER = Path(os.environ.get("WEBAPP_LEDGER", "webapp-ledger.txt"))
WORK_S = float(os.environ.get("WEBAPP_WORK_S", "0.2"))
PRICE = 30


class Order(BaseModel):
    """What a customer wants."""

    item: str = Field(min_length=1, max_length=80)
    count: int = Field(ge=1, le=50)


class Receipt(BaseModel):
    """What became of an order."""

    item: str
    count: int
    paid: int
    sent_to: str


def payment_by_key(key: str) -> Happened[int] | None:
    """Ask the provider whether a payment was made."""
    if not LEDGER.exists():
        return None
    for line in LEDGER.read_text().splitlines():
        paid, _, of = line.partition(" ")
        if of == key:
            return Happened(int(paid))
    return None


@tool(check=payment_by_key)
def charge(amount: int, *, key: IdempotencyKey = IdempotencyKey()) -> int:
    """Take the money. In one write, as a provider takes a request whole or not at all."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"{amount} {key}\n")
    return amount


@step
def pack(item: str, number: int) -> str:
    """Pack one of the items, which takes a while."""
    time.sleep(WORK_S)
    return f"{item} {number}"


@step
def write_note(item: str, count: int) -> Iterator[str]:
    """Write a note to the customer, word by word. A model would."""
    for word in f"Thank you for your order of {count} × {item}. It is on its way.".split():
        time.sleep(WORK_S / 4)
        yield f"{word} "


@task
def fulfil(order: Order) -> Receipt | None:
    """Fulfil an order: ask before a large one is paid, and send it to the address that comes."""
    for number in range(1, order.count + 1):
        pack(order.item, number)
        progress(f"packed {order.item}", done=number, total=order.count)
    total = PRICE * order.count
    if total > 100 and not ask(f"{total} for {order.count} × {order.item}: go on?", bool, id="pay"):
        return None
    paid = charge(total)
    try:
        address = receive("address", str, timeout_s=24 * 3600)
    except StepFailed:
        address = "kept at the shop"
    note("to the customer", "".join(write_note(order.item, order.count)))
    return Receipt(item=order.item, count=order.count, paid=paid, sent_to=address)
