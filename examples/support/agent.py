"""A support agent on Holdfast: its tools, its instructions, and three requests of one user.

Everything that touches the shop is a tool or a read, so that a crash repeats nothing:

| | after a crash in the middle of it |
|---|---|
| `find_order` | is asked again: it only reads |
| `refund` | is made again with the same key, which the bank honours |
| `send_email` | the mail service is asked whether it went out |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from examples.support.shop import Shop
from holdfast import Happened, Holdfast, IdempotencyKey, Retry, TaskNotFound, Unanswered, tool
from holdfast.agent import AgentResult, Limits, Orchestrator, Session, external
from holdfast.agent.model import Model

Json = dict[str, Any]

USER, SESSION, ADDRESS = "ada", "support-ada", "ada@example.com"

REQUESTS = {
    "where-is-it": "Where is my order 1042?",
    "refund-it": "The kettle arrived broken. Please refund order 1042.",
    "confirm-it": f"Please confirm the refund by email, to {ADDRESS}.",
}
"""What the user asks for, one task each, by the id of the task."""

SYSTEM = """\
You are the support agent of a small shop. Be brief and kind. Look an order up before you speak of
it. Before you refund anything, ask the user (with ask_user) whether to; refund only what was paid,
once."""

NO_KEY = IdempotencyKey()
QUICK = Retry(attempts=4, delay_s=0.2)

shop = Shop("http://127.0.0.1:0")  # where it really is, the one who runs the agent says


def work_for(other: Shop) -> None:
    """Say which shop the tools work for."""
    global shop
    shop = other


@external(ttl_s=60, retry=QUICK)
def find_order(number: int) -> Json:
    """Look up an order by its number: what it was, what it cost, where it is."""
    return shop.order(number)


@tool(retry=QUICK, invalidates=[find_order])
def refund(number: int, *, key: IdempotencyKey = NO_KEY) -> Json:
    """Pay the price of an order back to the customer."""
    return shop.refund(number, key=key)


def email_by_key(key: str) -> Happened[Json] | None:
    sent = shop.email_sent(key)
    return Happened(sent) if sent else None


@tool(check=email_by_key)
def send_email(to: str, subject: str, text: str, *, key: IdempotencyKey = NO_KEY) -> Json:
    """Send an email to a customer."""
    return shop.email(to, subject, text, reference=key)


def make_agent(model: Model, *, budget_tokens: int = 1800) -> Orchestrator:
    """The agent, with any model. The budget is small, so that compaction shows."""
    return Orchestrator(
        "support",
        model,
        [find_order, refund, send_email],
        system=SYSTEM,
        limits=Limits(iterations=12, tokens=100_000),
        budget_tokens=budget_tokens,
        compact_at=0.05,
    )


Answer = Callable[[str], str]
"""How the user answers a question."""


def converse(
    hf: Holdfast, agent: Orchestrator, answer: Answer, requests: Mapping[str, str] = REQUESTS
) -> Iterator[tuple[str, AgentResult]]:
    """Attend to the requests one after the other, or go on where that stopped."""
    session = hf.session(SESSION, user=USER)
    for id, text in requests.items():
        if has_failed(hf, id):
            hf.retry(id, worker=True)  # it goes on below
        yield id, attend(hf, agent, session, text, id, answer)


def has_failed(hf: Holdfast, id: str) -> bool:
    """Whether a task has failed before."""
    try:
        return hf.task(id).status == "failed"
    except TaskNotFound:
        return False


def attend(
    hf: Holdfast, agent: Orchestrator, session: Session, text: str, id: str, answer: Answer
) -> AgentResult:
    """One request to its end. A question waits in the log, whoever is there to answer it."""
    while True:
        try:
            return agent.run(session, text, id=id)
        except Unanswered as asked:
            said = answer(asked.question)
            hf.answer(asked.task_id, said, question=asked.id, by=session.user)
