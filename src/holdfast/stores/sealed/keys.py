"""Master keys: what a store is encrypted or signed with, and where they come from.

A key is 32 random bytes, written as `hfk_` and their base64. `Keys` holds one or several of them:
the first is used for what is new, the others still open what they once closed. That is all a
rotation needs: put the new key first, leave the old one below it until `holdfast keys rotate` was
run, then drop it. A key itself never stands in a message: there it goes by its id, which is a
one-way digest of it.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from holdfast.errors import BadInput

KEYS = "keys/"
"""Where an encrypted store has its keys: streams of that prefix."""

KEY_BYTES = 32
_PREFIX = "hfk_"
_KEY = re.compile(r"hfk_[A-Za-z0-9_-]{43}")


class Keys:
    """One master key, or several: the newest first.

    >>> key = Keys.new()
    >>> key.startswith("hfk_"), len(Keys(key).ids)
    (True, 1)
    >>> Keys("secret")
    Traceback (most recent call last):
    holdfast.errors.BadInput: that is no key: it should be hfk_ and 43 more characters, as
    `holdfast keys new` makes them
    """

    __slots__ = ("_keys",)

    def __init__(self, *keys: str | bytes) -> None:
        if not keys:
            raise BadInput("no key was given: make one with `holdfast keys new`")
        self._keys = tuple(dict.fromkeys(_bytes_of(key) for key in keys))

    @classmethod
    def from_text(cls, text: str) -> Keys:
        """The keys in a text, the newest first; what follows a # is left out.

        >>> len(Keys.from_text(f"{Keys.new()}  # since May\\n{Keys.new()}").ids)
        2
        """
        lines = (line.partition("#")[0] for line in text.splitlines())
        return cls(*(word for line in lines for word in line.replace(",", " ").split()))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Keys:
        """The keys in a file, as `holdfast keys new > file` makes it.

        >>> Keys.from_file("/nowhere/key")
        Traceback (most recent call last):
        holdfast.errors.BadInput: can't read the key file /nowhere/key: No such file or directory
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadInput(f"the key file {os.fspath(path)} holds no text") from None
        except OSError as error:
            what = error.strerror or type(error).__name__
            raise BadInput(f"can't read the key file {os.fspath(path)}: {what}") from None
        return cls.from_text(text)

    @classmethod
    def from_env(cls, name: str = "HOLDFAST_KEY") -> Keys:
        """The keys in a variable of the environment.

        >>> Keys.from_env("NO_SUCH_KEY")
        Traceback (most recent call last):
        holdfast.errors.BadInput: the environment has no NO_SUCH_KEY, which should hold the key
        """
        text = os.environ.get(name)
        if not text:
            raise BadInput(f"the environment has no {name}, which should hold the key")
        return cls.from_text(text)

    @classmethod
    def of(cls, given: KeySource) -> Keys:
        """Keys from whatever names them: themselves, their text, a file, or what returns those.

        >>> Keys.of(lambda: Keys.new().encode())
        Keys('...')
        """
        if callable(given):
            given = given()
        if isinstance(given, Keys):
            return given
        if isinstance(given, bytes):
            return cls(given) if len(given) == KEY_BYTES else cls.from_text(_text_of(given))
        if isinstance(given, str):
            return cls.from_text(given)
        try:
            path = os.fspath(given)
        except TypeError:
            kind = type(given).__name__
            what = f"a {kind} is no key: give Keys, a key's text, or the Path of its file"
            raise BadInput(what) from None
        return cls.from_file(path)

    @staticmethod
    def new() -> str:
        """A new key, as text.

        >>> Keys.new() == Keys.new()
        False
        """
        from base64 import urlsafe_b64encode  # slow to import, and most stores have no key

        return _PREFIX + urlsafe_b64encode(os.urandom(KEY_BYTES)).decode().rstrip("=")

    @property
    def ids(self) -> tuple[str, ...]:
        """By what each key is called in messages and in the store.

        >>> Keys(bytes(32)).ids
        ('7ade13bd',)
        """
        return tuple(derived(key, b"id").hex()[:8] for key in self._keys)

    def derive(self, purpose: bytes) -> tuple[bytes, ...]:
        """For each master key, the one that follows from it for a purpose.

        >>> [len(key) for key in Keys(bytes(32)).derive(b"example")]
        [32]
        """
        return tuple(derived(key, purpose) for key in self._keys)

    def __add__(self, older: Keys) -> Keys:
        return Keys(*self._keys, *older._keys)

    def __repr__(self) -> str:
        return f"Keys({', '.join(map(repr, self.ids))})"


KeySource: TypeAlias = (
    "Keys | str | bytes | os.PathLike[str] | Callable[[], Keys | str | bytes | os.PathLike[str]]"
)
"""Keys, or where they come from."""


def derived(key: bytes, purpose: bytes) -> bytes:
    """The key that follows from a random key for a purpose: HKDF-Expand (RFC 5869), one block."""
    return hmac.digest(key, b"holdfast 1 " + purpose + b"\x01", "sha256")


def _bytes_of(key: str | bytes) -> bytes:
    if isinstance(key, bytes) and len(key) == KEY_BYTES:
        return key
    text = key if isinstance(key, str) else _text_of(key)
    from base64 import urlsafe_b64decode

    try:
        if _KEY.fullmatch(text):
            found = urlsafe_b64decode(text.removeprefix(_PREFIX) + "=")
            if len(found) == KEY_BYTES:
                return found
    except ValueError:
        pass
    raise BadInput(
        "that is no key: it should be hfk_ and 43 more characters, as `holdfast keys new` makes "
        "them"
    )


def _text_of(data: bytes) -> str:
    return data.decode("ascii", errors="replace")
