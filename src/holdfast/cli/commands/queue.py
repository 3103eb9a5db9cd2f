"""`holdfast queue`: what waits for a place, and the limits it waits for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

from holdfast.api.batches import MOST_COUNTED, QueueInfo
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import store_command
from holdfast.cli.output import console, print_json, print_lines, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, plain
from holdfast.core.limits import Limit
from holdfast.core.queues import Queue, rate_of
from holdfast.engines.limits import LimitInfo
from holdfast.errors import BadInput

COLUMNS = ("QUEUE", "RUNNING", "WAITING", "OLDEST", "LIMITS")


@click.group(short_help="What waits for a place: list, show, pause, change limits.")
def queue() -> None:
    """Queues: what their tasks wait for, and who has a place.

    \b
    Examples:
      holdfast queue ls
      holdfast queue show reports
      holdfast queue pause reports --because "the provider is down"
      holdfast queue set reports --concurrency 5 --rate 100/60
      holdfast queue limits
    """


@queue.command()
@store_command()
def ls(given: Given, as_json: bool) -> Exit:
    """List the queues: how many tasks run and wait, and the limits.

    \b
    Examples:
      holdfast queue ls
      holdfast queue ls --json | jq -r '.[] | select(.waiting > 100).name'
    """
    with opened(given) as hf:
        found = [each.info() for each in hf.queues()]
    if as_json:
        print_json([_shown(each) for each in found])
        return Exit.OK
    now = datetime.now(UTC)
    if found:
        print_table(console(), COLUMNS, [_row(each, now) for each in found], cut_last=True)
    else:
        console().print("no queues: declare one by hf.queue(Queue(…)), or holdfast queue set NAME")
    return Exit.OK


@queue.command()
@store_command()
def limits(given: Given, as_json: bool) -> Exit:
    """List the limits of steps and tools, and how long calls wait.

    Limits stand in the code, as @tool(limit=Limit(…)). They are listed once a call was made. Those
    that people changed, with holdfast queue set-limit, are marked as (set).

    \b
    Examples:
      holdfast queue limits
      holdfast queue limits --json | jq -r '.[] | select(.paused_until).name'
    """
    with opened(given) as hf:
        found = hf.limits()
    if as_json:
        print_json([msgspec.to_builtins(each) for each in found])
    elif found:
        now = datetime.now(UTC)
        rows = [_limit_row(each, now) for each in found]
        print_table(console(), ("LIMIT", "KEY", "CALLS", "NEXT", "ALLOWS"), rows, cut_last=True)
    else:
        console().print("no limits: a call of a step or tool with limit=Limit(…) makes them known")
    return Exit.OK


@queue.command("set-limit")
@click.argument("name")
@click.option("--per-second", help="How many calls begin in a second; none for no limit.")
@click.option("--per-minute", help="How many calls begin in a minute; none for no limit.")
@click.option("--tokens-per-minute", help="How many tokens they take; none for no limit.")
@click.option("--concurrency", help="How many calls are made at once; none for no limit.")
@click.option("--as-in-code", is_flag=True, help="Have what the code says hold again.")
@store_command()
def set_limit(
    given: Given, name: str, as_in_code: bool, as_json: bool, **numbers: str | None
) -> Exit:
    """Change a limit of steps and tools, for all workers. The others stay as they are.

    It holds in place of what the code says, also for workers that start later, until --as-in-code.

    \b
    Examples:
      holdfast queue set-limit openai --per-minute 50
      holdfast queue set-limit openai --as-in-code
    """
    changes = {key: _value(key, text) for key, text in numbers.items() if text is not None}
    if bool(changes) == as_in_code:
        raise BadInput("say what to change, as --per-minute 50, or --as-in-code")
    with opened(given) as hf:
        there = {each.name: each.limit for each in hf.limits()}
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            raise BadInput(f"no call was made under a limit {name!r:.60} (there: {known})")
        limit = hf.set_limit(name if as_in_code else replace(there[name], **changes))
    if as_json:
        print_json(msgspec.to_builtins(limit))
    elif limit is not None:
        print_lines(console(), f"{plain(name)} is: {_allowed(limit)}")
    return Exit.OK


@queue.command()
@store_command()
def batches(given: Given, as_json: bool) -> Exit:
    """List the batches: how many items they have, when they start.

    \b
    Examples:
      holdfast queue batches
    """
    with opened(given) as hf:
        found = hf.batches()
    if as_json:
        print_json([msgspec.to_builtins(each) for each in found])
    elif found:
        now = datetime.now(UTC)
        rows = [
            (
                *(plain(each.name), plain(each.task), f"{each.waiting:,} of {each.max:,}"),
                "" if each.starts_at is None else ago(each.starts_at, now),
            )
            for each in found
        ]
        print_table(console(), ("BATCH", "TASK", "ITEMS", "STARTS"), rows, cut_last=False)
    else:
        console().print("no batches: hf.batch(fn, max=100, wait_s=5).add(item) begins one")
    return Exit.OK


@queue.command()
@click.argument("name")
@store_command()
def show(given: Given, name: str, as_json: bool) -> Exit:
    """Show a queue: its limits, what runs, and what waits, by key.

    \b
    Examples:
      holdfast queue show reports
    """
    with opened(given) as hf:
        info = hf.queue(name).info()
    if as_json:
        print_json(_shown(info))
        return Exit.OK
    now, out = datetime.now(UTC), console()
    lines = [
        f"{plain(info.name)}: {info.running:,} running, {_count(info)} waiting",
        f"limits   {_limits(info.queue)}",
    ]
    if info.paused:
        lines.append(f"paused   by {plain(info.by)} {plain(info.because)}".rstrip())
    print_lines(out, "\n".join(lines))
    if info.places:
        rows = [(plain(each.task), plain(each.key), ago(each.since, now)) for each in info.places]
        print_table(out, ("TASK", "KEY", "SINCE"), rows, cut_last=False)
    if len(info.waiting_by_key) > 1:
        rows = [(plain(key), f"{n:,}", "") for key, n in sorted(info.waiting_by_key.items())]
        print_table(out, ("KEY", "WAITING", ""), rows, cut_last=False)
    return Exit.OK


@queue.command()
@click.argument("name")
@click.option("--because", default="", help="Why, for those who look.")
@store_command()
def pause(given: Given, name: str, because: str, as_json: bool) -> Exit:
    """Start no more tasks of a queue. Those under way go on.

    \b
    Examples:
      holdfast queue pause reports --because "the provider is down"
    """
    with opened(given) as hf:
        hf.queue(name).pause(because=because)
        return _tell(hf.queue(name).info(), as_json)


@queue.command()
@click.argument("name")
@store_command()
def resume(given: Given, name: str, as_json: bool) -> Exit:
    """Start the tasks of a paused queue again.

    \b
    Examples:
      holdfast queue resume reports
    """
    with opened(given) as hf:
        hf.queue(name).resume()
        return _tell(hf.queue(name).info(), as_json)


@queue.command("set")
@click.argument("name")
@click.option("--concurrency", help="How many tasks run at once; none for no limit.")
@click.option("--key-concurrency", help="How many tasks of one key; none for no limit.")
@click.option("--rate", help="How many start in a time: 100/60 is 100 a minute; none for no limit.")
@click.option("--key-rate", help="The same for each key.")
@click.option("--expires", "expires_s", help="Cancel what has waited for more seconds than that.")
@store_command()
def set_(given: Given, name: str, as_json: bool, **limits: str | None) -> Exit:
    """Change limits of a queue, or declare a new one. The others stay as they are.

    Code that declares the queue again, by hf.queue(Queue(…)), sets all its limits anew. So does a
    worker that starts where pyproject.toml declares it.

    \b
    Examples:
      holdfast queue set reports --concurrency 5
      holdfast queue set reports --rate none --key-rate 10/60
    """
    with opened(given, create=True) as hf:
        there = {each.name: each for each in hf.queues()}
        old = there[name].info().queue if name in there else Queue(name)
        changes = {key: _value(key, text) for key, text in limits.items() if text is not None}
        return _tell(hf.queue(replace(old, **changes)).info(), as_json)


def _value(name: str, text: str) -> Any:
    if text == "none":
        return None
    try:
        if name.endswith("concurrency"):
            return int(text)
        if name == "expires_s" or "per_" in name:
            return float(text)
        return rate_of(text)
    except ValueError:
        wanted = "100/60" if name.endswith("rate") else "a number"
        raise BadInput(
            f"--{name.replace('_', '-')} {text!r:.60} must be {wanted}, or none"
        ) from None


def _tell(info: QueueInfo, as_json: bool) -> Exit:
    if as_json:
        print_json(_shown(info))
    else:
        state = "paused" if info.paused else "open"
        print_lines(console(), f"{plain(info.name)} is {state}: {_limits(info.queue)}")
    return Exit.OK


def _limit_row(each: LimitInfo, now: datetime) -> tuple[Any, ...]:
    following = "now" if each.ready_at is None else ago(each.ready_at, now)
    if each.paused_until is not None:
        following += " (refused)"
    allows = _allowed(each.limit) + (" (set)" if each.is_set else "")
    return plain(each.name), plain(each.key), f"{each.held:,}", following, allows


def _allowed(limit: Limit) -> str:
    allows = list[str]()
    for count, what in (
        (limit.per_second, "a second"),
        (limit.per_minute, "a minute"),
        (limit.tokens_per_minute, "tokens a minute"),
        (limit.concurrency, "at once"),
    ):
        if count is not None:
            allows.append(f"{count:,g} {what}")
    return ", ".join(allows)


def _shown(info: QueueInfo) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(info)
    return shown


def _row(info: QueueInfo, now: datetime) -> tuple[Any, ...]:
    oldest = "" if info.oldest_at is None else ago(info.oldest_at, now)
    limits = Text(_limits(info.queue))
    if info.paused:
        limits = Text("paused ", "yellow") + limits
    return plain(info.name), f"{info.running:,}", _count(info), oldest, limits


def _count(info: QueueInfo) -> str:
    return f"{info.waiting:,}" + ("+" if info.waiting >= MOST_COUNTED else "")


def _limits(queue: Queue) -> str:
    said = []
    if queue.concurrency is not None:
        said.append(f"{queue.concurrency:,} at once")
    if queue.key_concurrency is not None:
        said.append(f"{queue.key_concurrency:,} of a key")
    for rate, of in ((queue.rate, ""), (queue.key_rate, " of a key")):
        if rate is not None:
            said.append(f"{rate.count:g} every {rate.per_s:g} s{of}")
    if queue.singleton:
        said.append(f"{queue.singleton} of a key wins")
    if queue.debounce_s:
        said.append(f"debounced {queue.debounce_s:g} s")
    if queue.expires_s:
        said.append(f"expires after {queue.expires_s:g} s")
    return ", ".join(said) or "none"
