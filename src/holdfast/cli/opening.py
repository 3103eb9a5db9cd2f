"""Opening the store, and finding tasks in it, for commands that must not make either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.api import settings
from holdfast.api.app import Holdfast
from holdfast.api.settings import code_of, keys_in, load_named, options_of, url_of
from holdfast.cli.exits import print_error
from holdfast.cli.settings import Given
from holdfast.core.crashes import MAX_CRASHES
from holdfast.core.decoding import damage_in
from holdfast.core.words import checked_id
from holdfast.engines.routing import LOCAL
from holdfast.errors import BadInput, SessionNotFound, StoreError, TaskNotFound
from holdfast.log.reading import no_task, session_stream, stream_of
from holdfast.log.store_calls import streams_in
from holdfast.stores.port import Store
from holdfast.stores.sealed.keys import Keys
from holdfast.views.sessions import SessionView
from holdfast.views.task import TaskView, view_newest

if TYPE_CHECKING:
    from holdfast.agent.sessions import Session
    from holdfast.engines.port import Engine

LEASE_S = 30.0
"""How long a process may hang before another one takes its tasks over."""


class StoreNotFound(TaskNotFound):
    """There is no store, so there are no tasks either."""


def store_url(given: Given) -> str:
    """The URL of the store that the command is about."""
    return url_of(given, os.environ, Path.cwd())


def keys_of(given: Given, name: str = "key") -> Keys | None:
    """The key that the command was given, to encrypt (`key`) or to sign (`sign_key`) with."""
    return keys_in(given, os.environ, Path.cwd(), name)


def load_app(given: Given) -> tuple[str, ...]:
    """Import the modules of `--app`, so that the tasks in them are known. Returns their names."""
    load_named("app", given, print_error)
    return code_of("app", given, os.environ, Path.cwd()).names


def folder_of(url: str) -> Path | None:
    """The folder of a store that has one.

    >>> folder_of("state"), folder_of("memory://")
    (PosixPath('state'), None)
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return Path(url)
    return Path(rest) if scheme == "file" else None


@contextmanager
def opened(
    given: Given,
    *,
    create: bool = False,
    lease_s: float = LEASE_S,
    max_crashes: int = MAX_CRASHES,
) -> Iterator[Holdfast]:
    """The store, opened. Only with `create` is a folder made that is not there.

    A command that declares `engine` has tasks driven by, and messages told to, the one it is given.
    """
    url = store_url(given)
    if not create:
        must_exist(url)
    if "engine" in given.imports:
        _must_suit(given)
    hf = Holdfast(url, lease_s=lease_s, max_crashes=max_crashes, **options_of(given, print_error))
    try:
        with hf:
            yield hf
    finally:
        if hf.projections is not None and hf.projections.problem:
            print_error(f"warning: {hf.projections.problem}")


def engine_of(given: Given) -> Engine | None:
    """The engine that the command was given; None for the local one."""
    _must_suit(given)
    return settings.engine_of(given, print_error)


def _must_suit(given: Given) -> None:
    """Refuse an option of an engine that the command does not use.

    The environment and `pyproject.toml` may hold more than the engine needs; the command line may
    not.
    """
    name = settings.engine_settings(given, os.environ, Path.cwd())["name"]
    suits = settings.TAKES.get(name, ())
    for option in ("address", "namespace", "queue", "tls", "admin", "listen"):
        if getattr(given, option) and option not in suits:
            takers = (each for each, taken in settings.TAKES.items() if option in taken)
            engines = " or ".join(f"--engine {each}" for each in takers)
            raise BadInput(f"--{option} goes with {engines}, not with {name or LOCAL}")


def must_exist(url: str) -> None:
    """Raise `StoreNotFound` if the store's folder is not there."""
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path and not Path(path).exists():
        raise StoreNotFound(
            f"there is no database at {path} (the first task that runs makes it): "
            f"say where it is with --url or HOLDFAST_URL"
        )
    folder = folder_of(url)
    if folder is None or folder.is_dir():
        return
    if folder.exists():
        raise StoreNotFound(f"{folder} is not a folder: say where the store is with --url")
    raise StoreNotFound(
        f"there is no store at {folder} (the first task that runs makes it): "
        f"say where it is with --url or HOLDFAST_URL{_stores_beside(folder)}"
    )


def _stores_beside(folder: Path) -> str:
    """Which stores are where a store was looked for: `holdfast demo` makes one, for instance."""
    found: list[Path] = []
    with suppress(OSError):
        found = sorted(each.parent for each in folder.parent.glob("*/holders"))
        found = [each for each in found if (each / "tasks").is_dir()]
    return f"; here is {', '.join(map(str, found[:3]))}" if found else ""


def task_ids(store: Store) -> list[str]:
    """The ids of all tasks, sorted."""
    return ids_of(store, "tasks/")


def ids_of(store: Store, prefix: str) -> list[str]:
    """The ids of all tasks, or of all sessions, sorted."""
    return sorted(stream.removeprefix(prefix) for stream in streams_in(store, prefix))


def find_task(hf: Holdfast, task_id: str) -> TaskView:
    """The task, or `TaskNotFound` that names those it may have been meant."""
    try:
        return read_task(hf.store, checked_id(task_id))
    except TaskNotFound:
        raise not_found(hf.store, task_id) from None


def read_task(store: Store, task_id: str) -> TaskView:
    """The task, or `TaskNotFound`, or what is wrong with its log."""
    with damage_in(stream_of(task_id)):
        return view_newest(store, task_id)


def not_found(store: Store, task_id: str) -> TaskNotFound:
    """The error that names the ids that are nearly the one given."""
    if is_session(store, task_id):
        meant = f". There is a session of that id: see `holdfast session {task_id}`"
    else:
        meant = _meant(task_id, task_ids(store), "ls")
    return no_task(store, checked_id(task_id), meant)


def find_session(hf: Holdfast, session_id: str) -> Session:
    """The session, or `SessionNotFound` that names those it may have been meant."""
    from holdfast.agent.sessions import open_session

    try:
        return open_session(hf.store, session_id)
    except SessionNotFound:
        meant = _meant(session_id, ids_of(hf.store, "sessions/"), "sessions")
        raise SessionNotFound(f"no session {session_id!r} in {hf.store.url}{meant}") from None


def _meant(given: str, known: list[str], command: str) -> str:
    # The id itself is among them where there is a folder but no event in it.
    from difflib import get_close_matches

    near = get_close_matches(given, [each for each in known if each != given], n=3)
    return f". Did you mean {' or '.join(near)}?" if near else f": see `holdfast {command}`"


def is_there(store: Store, task_id: str) -> bool:
    """Whether the task has any event, damaged or not."""
    return next(store.read(stream_of(checked_id(task_id))), None) is not None


def is_session(store: Store, id: str) -> bool:
    """Whether there is a session of that id, and no task."""
    begun = next(store.read(session_stream(checked_id(id))), None) is not None
    return begun and not is_there(store, id)


def session_view(hf: Holdfast, id: str) -> SessionView:
    """A session, or a thread of LangGraph, as it is now."""
    found = find_session(hf, id)
    return SessionView(hf.store, found.state, found.messages())


def must_be_there(store: Store, *tasks: str) -> None:
    """`TaskNotFound` for the first of the tasks that has no event."""
    for task_id in tasks:
        if not is_there(store, task_id):
            raise not_found(store, task_id)


def are_sessions(store: Store, *ids: str) -> bool:
    """Whether all are sessions; they are compared with no task."""
    sessions = [id for id in ids if is_session(store, id)]
    tasks = [id for id in ids if id not in sessions]
    if sessions and tasks:
        must_be_there(store, *tasks)
        raise BadInput(
            f"{sessions[0]!r} is a session, and {tasks[0]!r} is a task: compare sessions with "
            f"sessions, and tasks with tasks (`holdfast session {sessions[0]}` names its tasks)"
        )
    return not tasks


def read_all(store: Store) -> tuple[list[TaskView], list[StoreError]]:
    """Every task, and what is wrong with those that can't be read.

    Not `Holdfast.tasks`: there one damaged log hides all the others.
    """
    views, unreadable = [], []
    for task_id in task_ids(store):
        try:
            views.append(read_task(store, task_id))
        except TaskNotFound:  # its folder was made, but nothing was ever written
            continue
        except StoreError as error:
            unreadable.append(error)
    return views, unreadable
