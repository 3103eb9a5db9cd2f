"""A real browser: Debian's chromium, driven by Playwright.

Without it the tests are skipped and say so. With HOLDFAST_NEED_ENGINES=1 they fail instead, so that
no skipped test is taken for one that passed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from holdfast import Holdfast
from tests.web.serving import Page as Client
from tests.web.serving import serving

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
WIDE: ViewportSize = {"width": 1440, "height": 900}

expect.set_options(timeout=20_000)


def give_up(why: str) -> NoReturn:
    """Skip the test, or fail it where it must not be skipped."""
    (pytest.fail if os.environ.get("HOLDFAST_NEED_ENGINES") else pytest.skip)(why)


def chromium() -> str:
    """Where the browser is."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        give_up("there is no chromium here; as root .ci/tools installs it")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser, while it is used."""
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Looking:
    """One tab of the browser on a store's page. Errors in the page, requests to other hosts, and
    what the content security policy had to stop are faults."""

    def __init__(self, browser: Browser, client: Client, **options: Any) -> None:
        self.client = client
        self.context = browser.new_context(viewport=options.pop("viewport", WIDE), **options)
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("request", lambda request: self._request(request.url))
        self.page.goto(f"{client.url}/?token={client.entry.token}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, kind: str, text: str) -> None:
        if kind == "error" and "status of 4" not in text:  # a refusal of the API is no fault
            self.faults.append(f"console: {text}")

    def _request(self, url: str) -> None:
        if not url.startswith((self.client.url, "data:", "blob:")):
            self.faults.append(f"asked another host: {url}")

    def open(self, address: str) -> Page:
        self.page.goto(self.client.url + address)
        return self.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@contextmanager
def looking(
    browser: Browser, hf: Holdfast, *, app: tuple[str, ...] = ("tests.web.agents",), **options: Any
) -> Iterator[Looking]:
    """A tab on the page of a store, which is served meanwhile."""
    with serving(hf, app=app) as client:
        look = Looking(browser, client, **options)
        try:
            yield look
        finally:
            look.close()
