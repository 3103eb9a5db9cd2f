"""`holdfast worker`: one process that drives many tasks, until it is told to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import click

from holdfast.api.app import Holdfast
from holdfast.api.settings import add_hooks, queues_of, retention_of
from holdfast.cli.exits import Exit
from holdfast.cli.opening import LEASE_S, load_app, opened, store_url
from holdfast.cli.options import (
    numbers,
    store_command,
)
from holdfast.cli.output import print_error, print_json_line
from holdfast.cli.settings import Given
from holdfast.cli.text import clock, count, to_json
from holdfast.core.crashes import MAX_CRASHES
from holdfast.core.spec import registry
from holdfast.core.words import without_password
from holdfast.engines.local.worker import Worker
from holdfast.engines.port import EngineWorker
from holdfast.engines.routing import LOCAL
from holdfast.engines.weather import Weather
from holdfast.errors import BadInput, CodeMissing, StorageFailed

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Say = Callable[[str], None]


@click.command(short_help="Drive tasks, many at a time.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    metavar="N",
    help="How many tasks are driven at a time; with --engine, how many steps are made.",
)
@click.option(
    "--limit",
    "limits",
    metavar="TYPE=N",
    multiple=True,
    callback=numbers,
    help="At most so many of one task function at a time; may be repeated.",
)
@click.option("--until-idle", is_flag=True, help="End when no task has anything to do now.")
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(min=0, min_open=True),
    default=LEASE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long it may hang before another one takes its tasks over.",
)
@click.option(
    "--max-crashes",
    type=click.IntRange(min=1),
    default=MAX_CRASHES,
    show_default=True,
    metavar="N",
    help="How many workers may die at one place of a task before it is set aside, as `stuck`.",
)
@click.option(
    "--serve",
    "served_at",
    metavar="[HOST]:PORT",
    help="Serve /healthz, /readyz and /metrics there; on loopback if no host is given.",
)
@click.option(
    "--otel", is_flag=True, help="Export traces by OpenTelemetry, to OTEL_EXPORTER_OTLP_ENDPOINT."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of what it does.")
@store_command("app", "redact", "secrets", "engine", engine=True)
def worker(
    given: Given,
    concurrency: int,
    limits: dict[str, int],
    until_idle: bool,
    lease_s: float,
    max_crashes: int,
    served_at: str | None,
    otel: bool,
    quiet: bool,
    as_json: bool,
) -> Exit:
    """Drive the tasks that have something to do, many at a time, until told to end.

    \b
    It takes up tasks of the functions in --app that are
      pending      made by `holdfast start` or hf.start, and never driven
      due          released while they slept or backed off; their time has come
      answered     released while they waited for a person or for a child task
      orphaned     left behind by a process that died or was told to end

    Tasks that are paused, or wait for an answer, are left alone, and cost nothing meanwhile: no
    thread, no memory. A task of a function that is not in --app is left to other workers.

    At most --concurrency tasks are driven at a time, and of one function at most its --limit:
    what is above waits its turn. Sync tasks run in threads, async ones on one event loop. Limits
    hold for this worker; with two workers there are twice as many.

    Any number of workers can share a store. Each task is driven by one of them, and a lease
    decides which: the tasks of a worker that dies are taken over at once, those of one that hangs
    when --lease has run out; then it can write nothing more of them. The store's folder is made if
    it is not there.

    A task whose drivers die --max-crashes times at one place is set aside: it is `stuck`, until
    somebody resumes it.

    With --engine it drives the tasks of a remote engine instead, which hands them out; then
    --concurrency counts steps, and --limit and --until-idle are for local workers only.

    To end it, send SIGTERM or SIGINT (Ctrl-C). The worker drains: it
    takes up no more tasks, finishes and records the current step of each task in hand, releases the
    task, and ends with exit code 0. The next driver goes on after that step. A second signal ends
    the worker at once, with exit code 130: nothing recorded is lost, and the steps in hand count as
    interrupted.

    As it starts, it declares the queues of [tool.holdfast.queues.NAME] in pyproject.toml. While it
    runs, it deletes old tasks as [tool.holdfast.retention] says, one worker at a time, and sends
    alerts to the receivers that [[tool.holdfast.alerts]] names.

    With --serve it answers HTTP while it runs: /healthz says that the process lives, /readyz
    whether the store answers and the worker takes up tasks (503 if not), /metrics what it did and
    how the tasks stand, for Prometheus. The pages have no password: keep them on loopback, or
    behind a firewall.

    The worker reports on standard error, one line with the time for each thing it does; the output
    of tasks goes there too. With --json these lines are JSON objects on standard output.

    \b
    Examples:
      holdfast worker --app agents
      holdfast worker --app agents --concurrency 50 --limit plan_trip=5 --limit triage=20
      holdfast worker --app agents --until-idle       for a cron job, or in a test
      holdfast worker --app agents --serve :9464      with health and metrics
      holdfast worker --app agents --engine temporal --address temporal:7233 --queue trips
    """
    if not load_app(given):
        raise BadInput("a worker needs the code of the tasks: name it with --app MODULE")
    for name in limits:
        _must_be_known(name)
    say = _sayer(quiet, as_json)
    ending = threading.Event()
    driving: list[Worker | EngineWorker] = []

    def stop() -> None:
        ending.set()
        for driver in driving:
            driver.stop()

    def store() -> AbstractContextManager[Holdfast]:
        return opened(given, create=True, lease_s=lease_s, max_crashes=max_crashes)

    with _told_to_end(stop, say), ExitStack() as opening:
        if until_idle:
            hf = opening.enter_context(store())
        elif (found := _when_it_is_there(opening, store, given, served_at, ending, say)) is None:
            say("ends")
            return Exit.OK
        else:
            hf = found
        hf.retention = retention_of(Path.cwd())
        add_hooks(hf, os.environ, Path.cwd(), print_error)
        driver = _driver(hf, concurrency, limits, until_idle, say)
        driving.append(driver)
        if ending.is_set():  # before there was a driver to stop
            driver.stop()
        # Standard output is for our lines alone, whatever the tasks print.
        with redirect_stdout(sys.stderr), ExitStack() as stack:
            say(_begins(hf, concurrency))
            if not isinstance(driver, Worker):  # a local one does so itself
                stack.enter_context(hf._beside(say))
            if otel:
                _export(stack, hf)
            if served_at is not None:
                say(f"serves {_serve(stack, hf, served_at, driver, ending)}")
            if until_idle and isinstance(driver, Worker):
                driver.run_until_idle()
            else:
                driver.run()
    say("ends")
    return Exit.OK


def _driver(
    hf: Holdfast, concurrency: int, limits: dict[str, int], until_idle: bool, say: Say
) -> Worker | EngineWorker:
    """The worker of the engine of the store. A local one declares the queues of pyproject.toml."""
    if hf.engine.name != LOCAL:
        if limits or until_idle:
            raise BadInput(f"--limit and --until-idle are not for a worker of {hf.engine.name}")
        return hf.engine.worker(hf, concurrency=concurrency, say=say)
    for queue in queues_of(Path.cwd()):
        hf.queue(queue)
    return Worker(hf, concurrency=concurrency, limits=limits, say=say)


def _when_it_is_there(
    opening: ExitStack,
    store: Callable[[], AbstractContextManager[Holdfast]],
    given: Given,
    served_at: str | None,
    ending: threading.Event,
    say: Say,
) -> Holdfast | None:
    """The store, as soon as it can be opened: a database may start after its workers. None if the
    worker is told to end first."""
    weather = Weather(say)
    with ExitStack() as meanwhile:
        while not ending.is_set():
            try:
                hf = opening.enter_context(store())
            except StorageFailed as error:
                was_fair = weather.is_fair
                wait_s = weather.fails(error)
                if was_fair and served_at is not None:
                    meanwhile.enter_context(_serve_health(given, served_at, weather))
                ending.wait(wait_s)
            else:
                weather.clears()
                return hf
    return None


def _serve_health(given: Given, served_at: str, weather: Weather) -> AbstractContextManager[None]:
    from holdfast.integrations.prometheus import waiting_for_store

    url = without_password(store_url(given))
    return waiting_for_store(served_at, url, lambda: weather.why)


def _export(stack: ExitStack, hf: Holdfast) -> None:
    try:
        from holdfast.integrations.otel import instrument
    except ModuleNotFoundError as error:
        raise BadInput(f"--otel: {error}") from None
    stack.enter_context(instrument(hf))


def _serve(
    stack: ExitStack,
    hf: Holdfast,
    address: str,
    driver: Worker | EngineWorker,
    ending: threading.Event,
) -> str:
    from holdfast.integrations.prometheus import Monitor

    monitor = Monitor(
        hf, address,
        active=partial(_count_active, driver) if isinstance(driver, Worker) else None,
        stopping=ending.is_set, hindered=partial(_hindered, driver),
    )  # fmt: skip
    return stack.enter_context(monitor).url


def _count_active(driver: Worker) -> int:
    return len(driver.active)


def _hindered(driver: Worker | EngineWorker) -> str:
    """Why a worker drives no tasks now. An engine of somebody else's may not tell."""
    if isinstance(driver, Worker):
        return driver.weather.why
    return str(getattr(driver, "hindered", ""))


def _begins(hf: Holdfast, concurrency: int) -> str:
    if hf.engine.name == LOCAL:
        return f"looks for tasks in {hf.store.url}, drives up to {count(concurrency, 'task')}"
    steps = count(concurrency, "step")
    return f"looks for tasks of {hf.engine.name} in {hf.store.url}, makes up to {steps} at a time"


def _must_be_known(name: str) -> None:
    try:
        registry.task(name)
    except CodeMissing:
        raise BadInput(f"--limit {name}=…: the code has no task {name!r}") from None


def _sayer(quiet: bool, as_json: bool) -> Say:
    out = sys.stdout

    def say_as_json(text: str) -> None:
        print_json_line(to_json({"at": datetime.now(UTC), "text": text}), out)
        out.flush()

    def say(text: str) -> None:
        print_error(f"{clock(datetime.now(UTC))}  {text}")

    if quiet:
        return lambda text: None
    return say_as_json if as_json else say


@contextmanager
def _told_to_end(stop: Callable[[], None], say: Say) -> Iterator[None]:
    """While it lasts, a first signal means `stop`, and a second one ends the process.

    A handler runs in the middle of anything, so it may not take a lock that what it interrupted
    may hold. This one only drops a word, and a thread that waits for it does the rest.
    """
    heard: SimpleQueue[int] = SimpleQueue()
    before: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if before:
            os.write(2, b"ended at once, by a second signal\n")
            os._exit(Exit.INTERRUPTED)
        before.append(number)
        heard.put(number)

    def wait() -> None:
        if number := heard.get():
            name = signal.Signals(number).name
            say(f"ends, by {name}: takes up no more tasks (again: ends at once)")
            stop()

    waiting = threading.Thread(target=wait, name="holdfast signals", daemon=True)
    waiting.start()
    handlers = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        heard.put(0)
        waiting.join()
