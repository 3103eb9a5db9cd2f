"""The root key of an encrypted store, and how its master key is changed.

    master key  (yours: a file, the environment, a callable)
      closes    the root key    one line, in the stream `keys/<number>` of the store
        closes  the data key    one for each log, in its first line
          closes  the lines

So a new master key means one new line: the root key, closed anew under the next number. Only when
that is durable and was read back is the older one removed; after a crash in between both are
there, and the higher number counts. Logs are not touched. It is an ordinary stream, so that every
store can keep it, and there is nothing in it that its reader must believe: it opens or it doesn't.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import msgspec
from msgspec import Struct

from holdfast.core.decoding import Illegible, decode
from holdfast.core.kinds import KINDS
from holdfast.errors import Conflict, LogDamaged, StoreError, TaskBusy, WrongKey
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, streams_in, sync_one
from holdfast.stores.port import Store
from holdfast.stores.sealed.boxes import Box
from holdfast.stores.sealed.keys import KEY_BYTES, KEYS, Keys

_OWNER, _LEASE_S = "who sets up the keys", 30.0
_WAIT_S, _POLL_S = 30.0, 0.02


class _Line(Struct):
    """The root key, closed with a master key."""

    seq: int
    id: str
    """That of the stream, as every first line has it."""
    master: str
    root: bytes


def open_root(store: Store, keys: Keys) -> bytes:
    """The root key of a store, made if the store is new."""
    give_up_at = time.monotonic() + _WAIT_S
    while True:
        _, root = _newest(store, keys)
        if root is not None:
            return root
        _must_be_new(store)
        try:
            _write(store, 1, keys, os.urandom(KEY_BYTES))
        except (TaskBusy, Conflict):  # another process is at it
            if time.monotonic() > give_up_at:
                raise
            time.sleep(_POLL_S)


def rotate(store: Store, keys: Keys) -> bool:
    """Close the root key with the first of the keys, and remove what the others closed.

    False if that is so already. Any number of processes may be at work meanwhile.
    """
    number, root = _newest(store, keys)
    if root is None:
        raise WrongKey(f"{store.url} is not encrypted: there is no key to be changed")
    new = _read(store, number)
    is_new = new is None or new.master != keys.ids[0]
    if is_new:
        number += 1
        _write(store, number, keys, root)
        if _newest(store, keys) != (number, root):
            raise LogDamaged(f"{KEYS}{number}", 1, "it is not the key that was just written")
    for stream in streams_in(store, KEYS):
        if _number(stream) < number:
            store.delete(acquire_one(store, stream, _OWNER, _LEASE_S))
    return is_new


def _newest(store: Store, keys: Keys) -> tuple[int, bytes | None]:
    """The root key, and under which number it was found; 0 and None if there is none."""
    before: list[int] | None = None
    while True:
        numbers = sorted(map(_number, streams_in(store, KEYS)), reverse=True)
        for number in numbers:
            line = _read(store, number)
            if line is not None:
                return number, _opened(store, line, keys)
        # Where there is a name and no line, somebody is about to write it, or died doing so; or
        # it was rotated away since we looked, and then there is another.
        if numbers == before or not numbers:
            return 0, None
        before = numbers


def _read(store: Store, number: int) -> _Line | None:
    stream = f"{KEYS}{number}"
    line = next(iter(store.read(stream)), None)
    if line is None:
        return None
    try:
        if chain.check(chain.ROOT, line) is not None:
            return decode(line, _Line)
    except Illegible:
        pass
    raise LogDamaged(stream, 1, "the key of the store is not what was written")


def _opened(store: Store, line: _Line, keys: Keys) -> bytes:
    closing = dict(zip(keys.ids, keys.derive(b"master"), strict=True)).get(line.master)
    if closing is None:
        given = " and ".join(keys.ids)
        raise WrongKey(
            f"{store.url} is encrypted with the key {line.master}, and the key given is {given}. "
            f"Nothing was read or changed: open it with the right key"
        )
    root = Box(closing).open(line.root, "root", line.master)
    if root is None:
        raise LogDamaged(f"{KEYS}{line.id}", 1, "the key of the store was changed")
    return root


def _must_be_new(store: Store) -> None:
    for prefix in (kind.prefix for kind in KINDS):
        stream = next(iter(streams_in(store, prefix)), None)
        if stream is not None and b'"box":"' in next(iter(store.read(stream)), b""):
            what = "it is encrypted, and the keys of the store are gone: restore them too"
            raise LogDamaged(stream, 1, what)
        if stream is not None:
            raise WrongKey(
                f"{store.url} was begun without a key, and holds logs that are not encrypted. "
                f"Nothing was changed: open it without a key, or copy it into a new store that is "
                f"opened with one"
            )


def _write(store: Store, number: int, keys: Keys, root: bytes) -> None:
    master, closing = keys.ids[0], keys.derive(b"master")[0]
    closed = Box(closing).close(root, "root", master)
    body = msgspec.json.encode(_Line(1, str(number), master, closed))
    lease = acquire_one(store, f"{KEYS}{number}", _OWNER, _LEASE_S)
    try:
        store.append(lease, 0, [chain.seal(chain.ROOT, body)[0]])
        sync_one(store, lease)
    finally:
        with suppress(StoreError):
            store.release([lease])


def _number(stream: str) -> int:
    number = stream.removeprefix(KEYS)
    if not number.isascii() or not number.isdigit():
        raise LogDamaged(stream, 1, "that is no number of a key")
    return int(number)
