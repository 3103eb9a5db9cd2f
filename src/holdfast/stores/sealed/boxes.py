"""The work with keys inside an encrypted store: closing boxes, and hiding names.

A box is AES-256-GCM: a random nonce of 96 bits, then the ciphertext and its tag. Random nonces are
safe for 2^32 boxes of one key, which no task comes near to with a key of its own. The subject of a
box (the stream, the place) is its associated data: moved elsewhere, it does not open.
"""

from __future__ import annotations

import hmac
import os
import re

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from holdfast.errors import LogDamaged

_NONCE_BYTES = 12
_TAG_BYTES = 16
BOX_BYTES = _NONCE_BYTES + _TAG_BYTES
"""By how much a box is larger than what is in it."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Box:
    """Closes and opens bytes under one key."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def close(self, data: bytes, *about: str | int) -> bytes:
        """The bytes, encrypted; to be opened with the same `about` only."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, _joined(about))

    def open(self, box: bytes, *about: str | int) -> bytes | None:
        """The opened content; None if it was changed, or closed with another key or `about`."""
        if len(box) < BOX_BYTES:
            return None
        try:
            return self._cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], _joined(about))
        except InvalidTag:
            return None


class BlobNames:
    """Names of blobs that tell nothing of what is in them, and can be turned back.

    A blob is known by the sha256 of its content, by which a guess at the content could be
    confirmed. In the store its name is that digest, encrypted. Equal content has an equal name, so
    it is kept once. Block by block is right here: the blocks of a digest are as good as random, and
    no two digests have one in common.
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(AES256(key), ECB())

    def hidden(self, digest: str) -> str:
        """The name in the store of the blob whose content has this sha256."""
        if not _DIGEST.fullmatch(digest):
            raise LogDamaged(f"blobs/{digest:.80}", 0, "that is no name of a blob")
        return self._cipher.encryptor().update(bytes.fromhex(digest)).hex()

    def shown(self, name: str) -> str:
        """The sha256 of the content of the blob that has this name in the store."""
        return self._cipher.decryptor().update(bytes.fromhex(name)).hex()


class Digests:
    """Texts replaced by keyed digests: equal ones stay equal, and nobody else can tell which."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, *about: str) -> str:
        """The digest of a text and what it is about."""
        return hmac.digest(self._key, _joined(about), "sha256").hex()[:40]


def _joined(about: tuple[str | int, ...]) -> bytes:
    """Parts as bytes, so that no two lists of parts give the same."""
    parts = [str(part).encode("utf-8", "surrogatepass") for part in about]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
