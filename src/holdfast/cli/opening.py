"""Opening the store, and finding tasks in it, for commands that must not make either."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.app import Holdfast
from holdfast.cli.code import load_named
from holdfast.cli.settings import Given, Setting, keys_in, url_of
from holdfast.cli.telling import print_error
from holdfast.decoding import damage_in
from holdfast.errors import SessionNotFound, StoreError, TaskNotFound
from holdfast.keys import Keys
from holdfast.reading import stream_of
from holdfast.state import FINISHED
from holdfast.store import Store
from holdfast.views import TaskView, view_task
from holdfast.words import checked_id

if TYPE_CHECKING:
    from holdfast.agent.sessions import Session

LEASE_S = 30.0
"""How long a process may hang before another one takes its tasks over."""
_REDACTION: tuple[Setting, ...] = ("redact", "secrets")
"""With these a command keeps the same secrets out of a log as the code does."""


class StoreNotFound(TaskNotFound):
    """There is no store, so there are no tasks either."""


def store_url(given: Given) -> str:
    """The URL of the store that the command is about."""
    return url_of(given, os.environ, Path.cwd())


def keys_of(given: Given, name: str = "key") -> Keys | None:
    """The key that the command was given, to encrypt (`key`) or to sign (`sign_key`) with."""
    return keys_in(given, os.environ, Path.cwd(), name)


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
) -> Iterator[Holdfast]:
    """The store, opened. Only with `create` is a folder made that is not there.

    A command that declares `engine` has tasks driven by, and messages told to, the one it is given.
    """
    url = store_url(given)
    if not create:
        must_exist(url)
    key, sign_key = keys_of(given), keys_of(given, "sign_key")
    # Secrets are kept out when something is written, so a command that reads needs no code for it.
    more: dict[str, Any] = {name: found for name in _REDACTION for found in load_named(name, given)}
    if "engine" in given.imports:
        from holdfast.cli.engines import engine_of

        more["engine"] = engine_of(given)
    hf = Holdfast(url, lease_s=lease_s, key=key, sign_key=sign_key, **more)
    try:
        with hf:
            yield hf
    finally:
        if hf.projections is not None and hf.projections.problem:
            print_error(f"warning: {hf.projections.problem}")


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
        f"say where it is with --url or HOLDFAST_URL"
    )


def task_ids(store: Store) -> list[str]:
    """The ids of all tasks, sorted."""
    return ids_of(store, "tasks/")


def ids_of(store: Store, prefix: str) -> list[str]:
    """The ids of all tasks, or of all sessions, sorted."""
    return sorted(stream.removeprefix(prefix) for stream in store.streams(prefix))


def find_task(hf: Holdfast, task_id: str) -> TaskView:
    """The task, or `TaskNotFound` that names those it may have been meant."""
    try:
        return read_task(hf.store, checked_id(task_id))
    except TaskNotFound:
        raise not_found(hf.store, task_id) from None


def read_task(store: Store, task_id: str) -> TaskView:
    """The task, or `TaskNotFound`, or what is wrong with its log."""
    with damage_in(stream_of(task_id)):
        return view_task(store, task_id)


def not_found(store: Store, task_id: str) -> TaskNotFound:
    """The error that names the ids that are nearly the one given."""
    meant = _meant(task_id, task_ids(store), "ls")
    return TaskNotFound(f"no task {checked_id(task_id)!r} in {store.url}{meant}")


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
    near = difflib.get_close_matches(given, [each for each in known if each != given], n=3)
    return f". Did you mean {' or '.join(near)}?" if near else f": see `holdfast {command}`"


def at_work(store: Store, view: TaskView) -> str | None:
    """Who is at work on an unfinished task right now, as far as can be told."""
    return None if view.status in FINISHED else store.holder(stream_of(view.id))


def is_there(store: Store, task_id: str) -> bool:
    """Whether the task has any event, damaged or not."""
    return next(store.read(stream_of(checked_id(task_id))), None) is not None


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
