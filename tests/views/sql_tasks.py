"""Tasks that leave something in every table."""

from __future__ import annotations

from contextlib import suppress

from holdfast import (
    Holdfast,
    HoldfastError,
    Retry,
    ask,
    checkpoint,
    current,
    decide,
    note,
    restore,
    step,
    task,
    tool,
)
from holdfast.agent import Reply, Usage, assistant, compact, session
from holdfast.agent.externals import external, fact
from holdfast.workspace import files

LARGE = "x" * 200_000


@step(retry=Retry(attempts=3, delay_s=0.0))
def sql_weigh(grams: int) -> dict[str, int]:
    if grams == 13 and current().attempt < 3:
        raise ConnectionError("the scale is away")
    return {"grams": grams}


@step
def sql_large(size: int) -> str:
    return LARGE[:size]


@step
def sql_model(prompt: str) -> Reply:
    return Reply(assistant("fine"), Usage(100, 20, cost=0.5), model="a-model")


@tool
def sql_send(to: str) -> str:
    return f"sent to {to}"


@external(ttl_s=60)
def sql_price(of: str) -> float:
    return 9.5


@task
def sql_everything(grams: int) -> str:
    current().plan(["weigh", "send"])
    sql_weigh(grams)
    sql_large(len(LARGE))
    sql_model("how?")
    decide("way", "post", options=["post", "van"], because="cheaper")
    note("the scale is slow", {"seconds": 3})
    files.write("label.txt", "Oslo")
    files.write("label.txt", "Bergen")
    fact("price", 19.0, of=sql_price.reading("tea"))
    name = ask("Who gets it?", str, id="who")
    return sql_send(name)


@task
def sql_breaks() -> None:
    raise LookupError("no such port")


def sql_in_short(messages: object) -> str:
    return "They spoke."


@task
def sql_talks() -> int:
    state = restore({"said": 0})
    chat = session()
    chat.say(assistant("Hello, Ada.", meta={"model": "a-model", "usage": {"input_tokens": 7}}))
    state["said"] += 1
    checkpoint(state)
    compact(chat, sql_in_short, keep_turns=1)
    return 1


def record(hf: Holdfast) -> None:
    """Run them all in a store."""
    with suppress(HoldfastError):
        hf.run(sql_everything, 13, id="all-1", user="ada", labels={"team": "post"})
    hf.answer("all-1", "Ada", by="bo")
    hf.resume("all-1")
    with suppress(HoldfastError):
        hf.run(sql_breaks, id="broken-1")
    chat = hf.session("chat-sql", user="ada")
    chat.say(*(f"A long story, part {n}, and so on, and so on" for n in range(4)))
    chat.pin(1)
    chat.run(sql_talks, id="talk-1")
    hf.memory.remember("Ada likes tea", user="ada", id="tea")
