"""A client for the outside world, and a way to start that world in a process of its own.

For example:

    with start_world("world.db") as (process, base_url):
        World(base_url).flights(to="Oslo")
"""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

Json = dict[str, Any]

PACKAGE = __package__ or "examples.trip"  # `holdfast demo` has it under another name
ROOT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]


class WorldError(Exception):
    """The world answered, and the answer is no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NoAnswer(Exception):
    """The world did not answer. What was asked for may have happened or not."""


class World:
    """The world's services as methods. One connection a call; safe to share between threads."""

    def __init__(self, base_url: str, timeout_s: float = 30) -> None:
        address = urlsplit(base_url)
        if address.scheme != "http" or address.hostname is None:
            raise ValueError(f"expected a URL such as http://127.0.0.1:8000, got {base_url!r}")
        self.base_url = base_url
        self._host, self._port, self._timeout_s = address.hostname, address.port, timeout_s

    def flights(self, to: str) -> list[Json]:
        return list(self._get("/flights", to=to)["flights"])

    def hotels(self, city: str) -> list[Json]:
        return list(self._get("/hotels", city=city)["hotels"])

    def weather(self, city: str, run: str = "", failures: int = 0) -> Json:
        """Fails with status 503 the first `failures` times it is called for this `run`."""
        return self._get("/weather", city=city, run=run, failures=str(failures))

    def pay(
        self, amount: float, to: str, reference: str | None = None, key: str | None = None
    ) -> Json:
        return self._post("/payments", key, amount=amount, to=to, reference=reference)

    def book(
        self, hotel: str, nights: int, reference: str | None = None, key: str | None = None
    ) -> Json:
        return self._post("/bookings", key, hotel=hotel, nights=nights, reference=reference)

    def cancel_booking(self, booking_id: int) -> Json:
        return self._request("DELETE", f"/bookings/{booking_id}")

    def invite(self, title: str, guest: str, reference: str) -> Json:
        return self._post("/invites", None, title=title, guest=guest, reference=reference)

    def mail(self, to: str, subject: str, text: str, reference: str) -> Json:
        return self._post("/mails", None, to=to, subject=subject, text=text, reference=reference)

    def effect(
        self, kind: str, reference: str, honour_key: bool = False, key: str | None = None
    ) -> Json:
        """Do an effect of any kind; the world honours the key only if told to."""
        path = f"/effects/{quote(kind, safe='')}"
        return self._post(path, key, reference=reference, honour_key=honour_key)

    def find(self, kind: str, reference: str) -> list[Json]:
        """The effects of this kind with this reference, oldest first."""
        path = f"/effects/{quote(kind, safe='')}"
        return list(self._get(path, reference=reference)["found"])

    def counts(self) -> dict[str, int]:
        """How often each kind of effect really happened."""
        return dict(self._get("/count")["counts"])

    def rows(self) -> list[Json]:
        """Every effect that really happened, oldest first."""
        return list(self._get("/count")["rows"])

    def weather_calls(self) -> dict[str, int]:
        return dict(self._get("/count")["weather_calls"])

    def reset(self) -> None:
        self._post("/reset", None)

    def _get(self, path: str, **query: str) -> Json:
        return self._request("GET", f"{path}?{urlencode(query)}" if query else path)

    def _post(self, path: str, key: str | None, **body: Any) -> Json:
        given = {name: value for name, value in body.items() if value is not None}
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._request("POST", path, json.dumps(given), headers)

    def _request(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        # http.client, because urllib would send loopback requests through a configured proxy.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, body, {"Connection": "close", **(headers or {})})
            response = connection.getresponse()
            status, text = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{method} {self.base_url}{path}: {error!r}") from error
        finally:
            connection.close()
        reply: Json = json.loads(text)
        if status >= 400:
            raise WorldError(status, f"{method} {path}: {status}: {reply['error']}")
        return reply


@contextmanager
def start_world(db_path: Path | str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the world in a process of its own; yield that process and the world's base URL.

    The process ends with the `with` block, or with the caller if that is killed.
    """
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            f"{PACKAGE}.world",
            str(Path(db_path).resolve()),
            "--port",
            str(port),
            "--until-stdin-closes",
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"the world did not start: {line!r}; see stderr for why")
            yield process, f"http://{line.split()[-1]}"
        finally:
            process.kill()
