"""How Restate is asked: JSON over HTTP, with what Python has. Its SDK is for who serves tasks."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import BadInput, EngineError

PATIENCE_S = 10.0


class Reply(Struct, frozen=True):
    """What the server said."""

    status: int
    text: str

    def json(self) -> Any:
        """What it said, read; None if that is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def message(self) -> str:
        """What it says is wrong."""
        said = self.json()
        found = said.get("message") if isinstance(said, dict) else None
        return str(found or self.text or f"HTTP {self.status}")[:500]


class Address:
    """One of the addresses of a server."""

    def __init__(self, url: str, what: str, token: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"Restate({what}={url!r:.200}) must be like 'http://127.0.0.1:8080'")
        self.url = url.rstrip("/")
        self._what = what
        self._token = token
        self._is_safe = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a request; `EngineError` if nothing comes back."""
        said = {"accept": "application/json", **(headers or {})}
        if body is not None:
            said["content-type"] = "application/json"
        if self._token:
            said["authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"{self._path}{path}", data, said)
            response = connection.getresponse()
            return Reply(response.status, response.read().decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(
                f"Restate at {self.url} can't be reached ({error}): start its server, or correct "
                f"Restate({self._what}=…)"
            ) from error
        finally:
            connection.close()

    def trouble(self, reply: Reply, part: str) -> EngineError:
        """What is wrong, if the server did not do what it was asked for."""
        said = f"answered {reply.status} ({reply.message:.200})"
        if reply.status in (401, 403):
            return EngineError(f"Restate at {self.url} {said}: give Restate(token=…)")
        if reply.status >= 500:
            return EngineError(f"Restate at {self.url} {said}: it may do better in a moment")
        return EngineError(
            f"what listens at {self.url} {said}: is it Restate's {part}? "
            f"Restate({self._what}=…) says where that is"
        )

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_safe:
            return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=PATIENCE_S, context=ssl.create_default_context()
        )
