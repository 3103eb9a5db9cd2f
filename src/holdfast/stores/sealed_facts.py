"""Facts in an encrypted store: digests that can be searched for, and a box with what they mean.

Users, sessions and labels are known to the store by their digests, and so is the session that
another one shares its past with. Tasks are known by their ids, and so is what a fork was made of.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.decoding import Illegible, decode
from holdfast.keys import derived
from holdfast.kinds import TASK, final_name, kind_of
from holdfast.store import Facts, Query
from holdfast.stores.boxes import Box, Digests

_SEALED = "sealed"
"""The label with the clear facts. All others are digests, so none is called that."""


class _Clear(Struct, omit_defaults=True):
    """What facts say in the clear."""

    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    origin: str = ""


class SealedFacts:
    """Closes and opens the facts of one store."""

    def __init__(self, digests: Digests, root: bytes) -> None:
        self._digests = digests
        self._root = root

    def asked(self, query: Query) -> Query:
        """A query as the store below understands it."""
        user, session, labels = self._hidden(query.user, query.session, query.labels)
        origin = self._hidden_origin(query.prefix, query.origin)
        return replace(query, user=user, session=session, labels=labels, origin=origin)

    def closed(self, stream: str, facts: Facts) -> Facts:
        """Facts as the store below is told."""
        origin = "" if kind_of(stream) is TASK else facts.origin
        clear = _encode(_Clear(facts.user, facts.session, facts.labels, origin))
        if clear == b"{}":
            return facts
        user, session, labels = self._hidden(facts.user, facts.session, facts.labels)
        stream = final_name(stream)
        labels[_SEALED] = b64encode(self._box(stream).close(clear, "facts", stream)).decode()
        hidden = self._hidden_origin(stream, facts.origin) or ""
        return replace(facts, user=user or "", session=session or "", labels=labels, origin=hidden)

    def opened(self, stream: str, facts: Facts) -> Facts | None:
        """What the store below was told. None, and so the log is read, where anything is wrong
        with it: facts are a copy."""
        if not (facts.user or facts.session or facts.labels):
            return facts
        try:
            stream = final_name(stream)
            box = b64decode(facts.labels.get(_SEALED, ""), validate=True)
            opened = self._box(stream).open(box, "facts", stream)
            clear = None if opened is None else decode(opened, _Clear)
        except (ValueError, Illegible):
            return None
        if clear is None:
            return None
        origin = facts.origin if kind_of(stream) is TASK else clear.origin
        return replace(
            facts, user=clear.user, session=clear.session, labels=clear.labels, origin=origin
        )

    def _box(self, stream: str) -> Box:
        return Box(derived(self._root, stream.encode()))

    def _hidden(
        self, user: str | None, session: str | None, labels: dict[str, str]
    ) -> tuple[str | None, str | None, dict[str, str]]:
        hidden = self._digests.of
        return (
            user and hidden("user", user),
            session and hidden("session", session),
            {hidden("label", name): hidden("label", name, value) for name, value in labels.items()},
        )

    def _hidden_origin(self, stream: str, origin: str | None) -> str | None:
        is_clear = not origin or kind_of(stream) is TASK
        return origin if is_clear else self._digests.of("origin", origin or "")


_encode = msgspec.json.Encoder().encode
