"""The pictures of the debugger in README and docs: `make screenshots`.

They show the trip demo, killed in step 6 and started again, and the support agent, in a real
browser on real stores. Nothing in them is drawn by hand.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from examples.trip import agent
from examples.trip.client import World, start_world
from holdfast import Holdfast
from tests.web.browser import ROOT, Looking, launched
from tests.web.serving import serving

FOLDER = ROOT / "docs" / "pictures"
SIZE = {"width": 1280, "height": 780}
PHONE = {"width": 390, "height": 780}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder for the pictures")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    # From within, so that the page names the store as a reader's own would be named.
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch), launched() as browser:
        take_trip(browser, folder)
        take_support(browser, folder)


def run_example(*arguments: str) -> None:
    """Run a module in a process of its own, which may be killed by itself."""
    command = [sys.executable, "-m", *arguments]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


@contextmanager
def tab(browser: Browser, hf: Holdfast, **options: Any) -> Iterator[Looking]:
    with serving(hf, app=("agents",)) as client:
        look = Looking(browser, client, **{"viewport": SIZE, **options})
        try:
            yield look
        finally:
            look.close()


def settled(page: Page) -> None:
    expect(page.locator(".loading")).to_have_count(0)
    page.wait_for_load_state("load")
    page.evaluate("() => document.fonts.ready")


def take(look: Looking, address: str, path: Path, *keys: str) -> None:
    """One picture of a place, after some keys."""
    page = look.open(address)
    settled(page)
    for key in keys:
        page.keyboard.press(key)
    settled(page)
    page.screenshot(path=path)
    print(path.name)


def take_trip(browser: Browser, folder: Path) -> None:
    store = Path("workspace")
    with start_world("world.db") as (_, url):
        run_example("examples.trip.agent", url, str(store.resolve()), "--die-after-invite")
        run_example("examples.trip.agent", url, str(store.resolve()))
        agent.world = World(url)
        with Holdfast(store) as hf:
            hf.fork(
                agent.TRIP, at="3", when="after", results={"3": "sunny"}, effects="reuse",
                new_id="trip-42-sunny", because="what if the weather had been fine", by="ada",
            )  # fmt: skip
            hf.resume("trip-42-sunny")
            # Only now: its task has the same name as that of the trip.
            from tests.web.agents import approval, asked_trip, doubtful

            for make in (asked_trip, approval, doubtful):
                make(hf)
            for scheme in ("light", "dark"):
                with tab(browser, hf, color_scheme=scheme) as look:
                    take(look, "/tasks/trip-42?call=6", folder / f"task-{scheme}.png")
            with tab(browser, hf) as look:
                take(look, "/tasks/trip-42@19?call=6", folder / "as-of.png")
                take(look, "/", folder / "inbox.png")
                take(look, "/compare/trip-42/trip-42-sunny", folder / "compare.png")
            with tab(browser, hf, viewport=PHONE) as look:
                take(look, "/", folder / "phone.png")


def take_support(browser: Browser, folder: Path) -> None:
    shop = Path("support-workspace")
    run_example("examples.support", "--provider", "scripted", "--workspace", str(shop.resolve()))
    with Holdfast(shop / "agent") as hf, tab(browser, hf) as look:
        take(look, "/tasks/confirm-it?tab=conversation", folder / "conversation.png")
        take(look, "/tasks/refund-it?call=%402.1", folder / "model-call.png")


if __name__ == "__main__":
    main()
