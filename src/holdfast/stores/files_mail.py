"""Mail in a workspace: who leaves a message rings, and who holds streams looks where it rang.

So a process that drives thousands of tasks does not look into thousands of folders for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from holdfast.store import Post
from holdfast.stores import holders, locks
from holdfast.stores.files_held import HeldStreams
from holdfast.stores.handle import Handle
from holdfast.stores.workspace import way_to

_LOOK_ANYWAY_S = 10.0
"""How long a message may lie unnoticed whose sender died before it could say so."""


class Mail(HeldStreams):
    """The inboxes of a workspace, for those who hold its streams and those who do not."""

    def _begin(self) -> None:
        super()._begin()
        self._hearing = threading.Lock()

    def post(self, stream: str, name: str, data: bytes) -> bool:
        is_new = super().post(stream, name, data)
        with suppress(OSError):
            claim = locks.claim_on(self._disk, self._root, way_to(stream))
            if claim is not None:
                holders.ring(self._disk, self._root, claim)
        return is_new

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        self._hear()
        now = time.monotonic()
        unheld: list[str] = []
        looked: list[tuple[Handle, int]] = []
        for stream in streams:
            handle = self._held.get(stream)
            if handle is None:
                unheld.append(stream)
            elif handle.rung > handle.looked or now - handle.looked_at > _LOOK_ANYWAY_S:
                looked.append((handle, handle.rung))
        found = super().inbox([*(handle.lease.stream for handle, _ in looked), *unheld])
        full = {post.stream for post in found}
        for handle, rung in looked:
            if handle.lease.stream not in full:  # else it stays to be looked at
                handle.looked, handle.looked_at = rung, now
        return found

    def _hear(self) -> None:
        """Learn for which of our streams there may be mail."""
        with self._hearing:
            try:
                records = set(self._holder.mail())
            except OSError:
                return  # then it is looked for after a while
            if records:
                self._ring(records)

    def _ring(self, records: set[int]) -> None:
        for handle in list(self._held.values()):
            if handle.taken.claim.record in records:
                handle.rung += 1
