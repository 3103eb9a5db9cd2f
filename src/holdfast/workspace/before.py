"""What was there before a change, kept ahead of it.

A call that changes a file records what the file was, in the log and durably, before it touches it.
If it dies in between and is made again, it finds the record: what is there by then may be its own
doing. If somebody else changed the file in that time, a newer record is made.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Raw, Struct

from holdfast.artifacts import Artifact, kept, opened
from holdfast.decoding import decode
from holdfast.engines.run import Run
from holdfast.errors import BadInput
from holdfast.events import Observed
from holdfast.scope import inside, scope_var
from holdfast.workspace.placing import Seen, missing_folders


class Before(Struct, frozen=True):
    """What was there before a change."""

    digest: str = ""
    """The sha256 of it; '' if there was nothing."""
    content: Artifact | None = None
    """The content itself. Outside of a task nothing is kept."""
    mode: int | None = None
    missing: tuple[str, ...] = ()
    """The folders that had to be made."""

    def seen(self) -> Seen:
        """The same as it would be seen, to be put back inside of a task."""
        if not self.digest:
            return Seen()
        if self.content is None:
            raise BadInput("what was there before was not kept: it was no task that changed it")
        with opened(inside("undo").run.log.store, self.content) as file:
            return Seen(file.read(), self.mode)


def digest_of(seen: Seen) -> str:
    """The sha256 of what was seen; '' if there was nothing."""
    return "" if seen.data is None else sha256(seen.data).hexdigest()


class Records:
    """What the call that runs now has recorded of what was there before."""

    def __init__(self) -> None:
        self.newest: Before | None = None
        self._scope = scope_var.get()
        self._path = self._next()
        while (found := self._recorded()) is not None:
            self.newest = found
            self._path = self._next()

    def _next(self) -> str:
        return "" if self._scope is None else self._scope.named_path("before", "=")

    def _recorded(self) -> Before | None:
        if self._scope is None:
            return None
        run: Run = self._scope.run
        call = run.log.state.calls.get(self._path)
        if call is None:
            return None
        return decode(run.log.fetch(cast("Raw", call.result)), Before)

    def keep(self, seen: Seen, folder: Path, name: str) -> None:
        """Record what is there now, unless that is what was recorded last."""
        digest, newest = digest_of(seen), self.newest
        if newest is not None and newest.digest == digest:
            return
        missing = (*(newest.missing if newest is not None else ()), *missing_folders(folder))
        if self._scope is None:
            self.newest = Before(digest, None, seen.mode, missing)
            return
        run: Run = self._scope.run
        content = None if seen.data is None else kept(run.log.store, [seen.data], name)
        self.newest = Before(digest, content, seen.mode, missing)
        value = Raw(msgspec.json.encode(self.newest))
        run.append(Observed(path=self._path, name="before", value=value), self._scope)
        run.sync()  # before anything is touched
        self._path = self._next()
