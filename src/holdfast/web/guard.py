"""Lets requests in: everything a request has to show before it is answered.

A debugger shows what agents saw and does what people tell it, so other pages in the same browser
and other people in the same network must be kept out. Every request passes these, in this order:

1. its `Host` is one of ours, so that no foreign name that points here is let in (DNS rebinding);
2. its `Origin`, if it has one, is ours, and the browser does not call it cross-site (CSRF);
3. there are not too many of them; strangers are counted apart, so that they lock nobody out;
4. for `/api/`: it proves who it is, by the cookie that the token in the opened address was traded
   for, by the token as a bearer, by a password, or by the header of the proxy before us;
5. to change something: the server is not read-only, the body is JSON, and `Origin` is there.

The page itself holds no data, so anybody who can reach the port may load it. Each answer says that
nothing foreign is loaded, framed, guessed at or kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from holdfast.errors import BadInput

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_BODY_BYTES = 2 * 1024 * 1024
_REQUESTS_PER_S, _ACTIONS_PER_S, _FAILED_PER_S = 200, 20, 2

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class TurnedAway(Exception):
    """A request that is not let in, and how it is told."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status: int = status
        self.code: str = code
        self.message: str = message
        self.headers: dict[str, str] = headers


class WayIn(Struct, frozen=True, kw_only=True):
    """How one may come in. Made by `entry_for`, which refuses what is not safe."""

    host: str
    port: int
    hosts: frozenset[str]
    origins: frozenset[str]
    secure_host: str = ""
    """The name that is reached by https, if one is. Its cookie is never sent in the clear."""
    user: str
    """The name that actions are recorded with, where the request does not say who it is."""
    token: str = ""
    user_header: str = ""
    passwords: dict[str, tuple[bytes, bytes]] = {}
    read_only: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie: one for each port, so that two servers do not share it."""
        return f"holdfast-{self.port}"

    @property
    def address(self) -> str:
        """The address that the browser opens. The token in it is as good as a password."""
        host = "127.0.0.1" if self.host in ("", "localhost") else self.host
        query = f"?{urlencode({'token': self.token})}" if self.token else ""
        return f"http://{host}:{self.port}/{query}"


def entry_for(
    *,
    host: str,
    port: int,
    user: str,
    read_only: bool = False,
    public_url: str = "",
    user_header: str = "",
    password_file: Path | None = None,
) -> WayIn:
    """How one may come in at this address, or `BadInput` if that would let anybody in.

    >>> entry_for(host="0.0.0.0", port=8321, user="ada")
    Traceback (most recent call last):
    holdfast.errors.BadInput: 0.0.0.0 can be reached from other machines, ...
    """
    if not _is_loopback(host) and not (user_header or password_file):
        raise BadInput(
            f"{host} can be reached from other machines, and nothing would keep them out: say who "
            "may come in with --password-file FILE, or put a proxy before it that says who it is "
            "(--user-header NAME), or leave --host out"
        )
    if user_header and not public_url:
        raise BadInput("--user-header needs --public-url: the address that the proxy is reached by")
    if not _is_loopback(host) and not public_url:
        raise BadInput(f"--host {host} needs --public-url: the address that people will open")
    names, secure_host = {f"{name}:{port}" for name in (*LOOPBACK, host.lower()) if name}, ""
    origins = {f"http://{name}" for name in names}
    if public_url:
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.username:
            raise BadInput(f"--public-url {public_url!r:.80} must be like https://agents.example")
        names.add(parts.netloc.lower())
        secure_host = parts.netloc.lower() if parts.scheme == "https" else ""
        origins.add(f"{parts.scheme}://{parts.netloc}".lower())
    passwords = {} if password_file is None else read_passwords(password_file)
    return WayIn(
        host=host,
        port=port,
        hosts=frozenset(names),
        origins=frozenset(origins),
        secure_host=secure_host,
        user=user,
        token="" if user_header or passwords else secrets.token_urlsafe(24),
        user_header=user_header.lower(),
        passwords=passwords,
        read_only=read_only,
    )


def _is_loopback(host: str) -> bool:
    return host in ("", "localhost", "::1", "[::1]") or host.startswith("127.")


# Passwords: a file of lines `user:salt:hash`, which `holdfast ui --hash-password` makes.


def hashed(password: str, salt: bytes) -> bytes:
    """The stored form of a password."""
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1)


def password_line(user: str, password: str) -> str:
    """A line for the password file."""
    if not user or ":" in user or not user.isprintable():
        raise BadInput(f"a user's name is printable text without a colon, not {user!a:.40}")
    if len(password) < 8:
        raise BadInput("the password is too short: give 8 characters or more")
    salt = secrets.token_bytes(16)
    return f"{user}:{salt.hex()}:{hashed(password, salt).hex()}"


def read_passwords(path: Path) -> dict[str, tuple[bytes, bytes]]:
    """The salt and the hash of each user's password."""
    try:
        if path.stat().st_mode & 0o077:
            raise BadInput(f"{path} can be read by others: chmod 600 {path}")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the password file can't be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            user, salt, kept = line.strip().split(":")
            found[user] = (bytes.fromhex(salt), bytes.fromhex(kept))
        except ValueError:
            raise BadInput(
                f"{path}, line {number}: not of the form user:salt:hash. Make one with "
                "holdfast ui --hash-password USER"
            ) from None
    if not found:
        raise BadInput(f"{path} names nobody: add a line with holdfast ui --hash-password USER")
    return found


class _Bucket:
    """So many a second, and as many at once.

    >>> now = iter([0.0, 0.0, 0.0, 0.0, 0.5])
    >>> rate = _Bucket(2, lambda: next(now))
    >>> rate.take(), rate.take(), rate.take(), rate.take()
    (True, True, False, True)
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = self._left = per_s
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Whether one more may be let in now."""
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Gate:
    """The application behind its checks. A request that it lets in carries
    `scope["holdfast.user"]`."""

    def __init__(self, app: Asgi, entry: WayIn) -> None:
        self._app = app
        self._entry = entry
        self._requests, self._actions = _Bucket(_REQUESTS_PER_S), _Bucket(_ACTIONS_PER_S)
        self._strangers = _Bucket(_REQUESTS_PER_S)
        self._failed = _Bucket(_FAILED_PER_S)
        self._seal = secrets.token_bytes(32)
        self._known: set[bytes] = set()
        """Passwords that were right, sealed: hashing one takes as long as it is meant to."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        raw = scope.get("raw_path") or scope["path"].encode()
        # Kept as it was sent: an id may hold a slash, which is one of its own and no end of it.
        scope["path"] = raw.partition(b"?")[0].decode("latin-1")
        send = _with_headers(send)
        try:
            came = self._checked(scope)
            if came is not None:
                cookie = self._set_cookie(_headers(scope)["host"].lower())
                await _answer(send, 303, b"", location=came, set_cookie=cookie)
                return
        except TurnedAway as refused:
            await _refuse(scope, send, refused)
            return
        await self._app(scope, _limited(receive), send)

    def _checked(self, scope: Message) -> str | None:
        """Raise `TurnedAway`; or tell where to go, to a request with the token."""
        entry, headers = self._entry, _headers(scope)
        if headers.get("host", "").lower() not in entry.hosts:
            raise TurnedAway(403, "foreign_host", "this server does not go by that name")
        origin = headers.get("origin", "")
        if origin and origin.lower() not in entry.origins:
            raise TurnedAway(403, "foreign_origin", "a page of another site can't ask this server")
        is_api = scope["path"].startswith("/api/")
        if is_api and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise TurnedAway(403, "foreign_origin", "a page of another site can't ask this server")
        counted = self._requests if self._is_known(scope, headers) else self._strangers
        if not counted.take():
            raise _too_many()
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise TurnedAway(405, "bad_input", "only GET, HEAD and POST are known here")
        if not is_api:
            return self._traded(scope)
        scope["holdfast.user"] = self._who(headers)
        if scope["method"] == "POST":
            self._may_change(headers, origin)
        return None

    def _may_change(self, headers: dict[str, str], origin: str) -> None:
        if self._entry.read_only:
            raise TurnedAway(
                403, "read_only", "this page was opened with --read-only: nothing can be changed"
            )
        if not origin and not headers.get("authorization", "").startswith("Bearer "):
            raise TurnedAway(403, "foreign_origin", "to change something, say where you come from")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise TurnedAway(415, "not_json", "send the body as application/json")
        size = headers.get("content-length", "0")
        if not size.isdigit() or int(size) > MOST_BODY_BYTES:
            raise TurnedAway(413, "too_large", f"send at most {MOST_BODY_BYTES:,} bytes")
        if not self._actions.take():
            raise _too_many()

    def _traded(self, scope: Message) -> str | None:
        """For a page that is opened with the token: its address without it."""
        query = _query(scope)
        given = [value for name, value in query if name == "token"]
        if not given or not self._entry.token or scope["path"].startswith("/static/"):
            return None
        if not self._is_token(given[0]):
            raise TurnedAway(401, "stale_token", _STALE)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # One slash: an address that begins with two would lead to another host.
        path: str = scope["path"].lstrip("/\\")
        return f"/{path}" + (f"?{rest}" if rest else "")

    def _set_cookie(self, host: str) -> str:
        entry = self._entry
        made = f"{entry.cookie}={self._cookie_value()}; HttpOnly; SameSite=Strict; Path=/"
        return f"{made}; Secure" if host == entry.secure_host else made

    def _cookie_value(self) -> str:
        return hmac.new(self._entry.token.encode(), b"cookie", "sha256").hexdigest()

    def _is_token(self, given: str) -> bool:
        token = self._entry.token
        return bool(token) and hmac.compare_digest(given.encode(), token.encode())

    def _is_known(self, scope: Message, headers: dict[str, str]) -> bool:
        """Whether it proves who it is, as far as that can be told without hashing a password."""
        if self._entry.passwords:
            try:
                return self._seal_of(*_basic(headers.get("authorization", ""))) in self._known
            except ValueError:
                return False
        if any(name == "token" and self._is_token(value) for name, value in _query(scope)):
            return True
        try:
            self._who(headers)
        except TurnedAway:
            return False
        return True

    def _seal_of(self, user: str, password: str) -> bytes:
        return hmac.new(self._seal, f"{user}\0{password}".encode(), "sha256").digest()

    def _who(self, headers: dict[str, str]) -> str:
        entry = self._entry
        if entry.user_header:
            user = headers.get(entry.user_header, "")
            if not user or not user.isprintable():
                raise TurnedAway(
                    401, "no_token", f"the proxy did not say who you are ({entry.user_header})"
                )
            return user[:200]
        if entry.passwords:
            return self._by_password(headers.get("authorization", ""))
        given = headers.get("authorization", "")
        if given.startswith("Bearer "):
            right = self._is_token(given[7:])
        else:
            cookie = _cookies(headers).get(entry.cookie)
            if cookie is None:
                raise TurnedAway(401, "no_token", _NO_TOKEN)
            right = hmac.compare_digest(cookie.encode(), self._cookie_value().encode())
        if not right:
            raise TurnedAway(401, "stale_token", _STALE)
        return entry.user

    def _by_password(self, given: str) -> str:
        if not given:
            raise _unknown("say who you are")
        try:
            user, password = _basic(given)
        except ValueError:
            raise _unknown("say who you are") from None
        sealed = self._seal_of(user, password)
        if sealed in self._known:
            return user
        if not self._failed.take():
            raise _too_many()
        salt, kept = self._entry.passwords.get(user, (b"nobody", b""))
        if not hmac.compare_digest(hashed(password, salt), kept):
            raise _unknown("that is not a name and password that this server knows")
        self._known.add(sealed)
        return user


_NO_TOKEN = "open the address that `holdfast ui` printed: it holds the token that lets you in"
_STALE = (
    "this token is not valid any more: the server was started anew. Open the address that "
    "`holdfast ui` printed"
)


def _too_many() -> TurnedAway:
    return TurnedAway(429, "too_many", "too many requests: wait a second", retry_after="1")


def _unknown(message: str) -> TurnedAway:
    how = 'Basic realm="Holdfast", charset="UTF-8"'
    return TurnedAway(401, "no_token", message, www_authenticate=how)


def _headers(scope: Message) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "origin", "authorization"):
            raise TurnedAway(400, "bad_input", f"the header {key} is there twice")
        found[key] = value.decode("latin-1")
    return found


def _query(scope: Message) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _basic(given: str) -> tuple[str, str]:
    """The user and the password of a header, or `ValueError`."""
    user, _, password = b64decode(given.removeprefix("Basic ")).decode().partition(":")
    return user, password


def _cookies(headers: dict[str, str]) -> dict[str, str]:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}


def _limited(receive: Receive) -> Receive:
    """The body, as long as it may be."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY_BYTES:
            return {"type": "http.disconnect"}
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            names = {name for name, _ in own}
            more = [*_HEADERS, (b"content-security-policy", POLICY.encode())]
            more += [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*own, *(h for h in more if h[0] not in names)]}
        await send(message)

    return sent


async def _refuse(scope: Message, send: Send, refused: TurnedAway) -> None:
    if scope["path"].startswith("/api/"):
        body = msgspec.json.encode(
            {"error": {"code": refused.code, "message": refused.message, "command": None}}
        )
        await _answer(send, refused.status, body, "application/json", **refused.headers)
        return
    page = f"<!doctype html><title>Holdfast</title><p>{refused.message}.</p>"
    await _answer(send, refused.status, page.encode(), "text/html; charset=utf-8")


async def _answer(
    send: Send, status: int, body: bytes, media_type: str = "text/plain", **headers: str
) -> None:
    given = {"content-type": media_type, "content-length": str(len(body))} | headers
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
