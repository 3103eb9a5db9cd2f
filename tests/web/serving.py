"""The page's server on a port of this machine, and somebody who asks it over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from holdfast import Holdfast
from holdfast.cli.commands.ui import PageWords
from holdfast.cli.settings import Given
from holdfast.web.asked import Site
from holdfast.web.guard import WayIn, entry_for
from holdfast.web.server import bound, made_for

PATIENCE_S = 30.0


class Page:
    """A client of the server, with the token or without it."""

    def __init__(self, entry: WayIn) -> None:
        self.entry = entry
        self.url = f"http://127.0.0.1:{entry.port}"
        self.bare = httpx.Client(base_url=self.url, timeout=PATIENCE_S)
        headers = {"authorization": f"Bearer {entry.token}"}
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S, headers=headers)

    def get(self, *parts: str, expect: int = 200, **query: Any) -> Any:
        """What the API says, which must answer with this status."""
        path = "/api/" + "/".join(quote(part, safe="") for part in parts)
        answer = self.http.get(path, params=query)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def post(self, *parts: str, expect: int = 200, **body: Any) -> Any:
        path = "/api/" + "/".join(quote(part, safe="") for part in parts)
        answer = self.http.post(path, json=body, headers={"origin": self.url})
        assert answer.status_code == expect, answer.text
        return answer.json()


@contextmanager
def serving(hf: Holdfast, *, app: tuple[str, ...] = (), **entry: Any) -> Iterator[Page]:
    """The server for a store, while it runs."""
    with bound("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        way_in = entry_for(host="127.0.0.1", port=port, **{"user": "ada", **entry})
        words = PageWords(Given(url=hf.store.url, app=app))
        site = Site(hf=hf, hints=words, app=app, read_only=way_in.read_only, user=way_in.user)
        server = made_for(site, way_in)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        page = Page(way_in)
        try:
            until(lambda: server.started)
            yield page
        finally:
            page.bare.close()
            page.http.close()
            server.should_exit = True
            thread.join()


def until(holds: Any) -> Any:
    """Wait for a condition, and return what it said."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (said := holds()):
        assert time.monotonic() < ends_at, "it never came true"
        time.sleep(0.01)
    return said
