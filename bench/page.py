"""How the debugger's page holds up on a task of many events, in a real browser.

`python -m bench.page [EVENTS]` makes such a task, serves it by `holdfast ui` in a process of its
own, and prints as JSON: milliseconds to the first paint of the page and to the first rows of the
timeline, frames a second while the timeline and the log are scrolled from top to bottom, the page's
heap and nodes, and the server's memory. It needs chromium, and the environment of the tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from holdfast import Holdfast, step, task
from tests.web.browser import WIDE, launched

FRAMES = """async (selector) => {
  const box = document.querySelector(selector);
  const end = box.scrollHeight - box.clientHeight;
  const times = [];
  return await new Promise((done) => {
    let began = 0;
    const frame = (now) => {
      if (!began) began = now;
      times.push(now);
      const share = (now - began) / 3000;
      box.scrollTop = share * end;
      if (share < 1) return requestAnimationFrame(frame);
      const gaps = times.slice(1).map((at, i) => at - times[i]).sort((a, b) => a - b);
      done({ fps: (times.length - 1) / ((times.at(-1) - times[0]) / 1000),
             slowest_ms: gaps.at(-1), p95_ms: gaps[Math.floor(gaps.length * 0.95)] });
    };
    requestAnimationFrame(frame);
  });
}"""


@step
def look(number: int) -> dict[str, Any]:
    return {"number": number, "text": f"what was found at {number}"}


@task
def look_around(count: int) -> int:
    return sum(look(number)["number"] > 0 for number in range(count))


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/workspace"
        with Holdfast(url) as hf:
            hf.run(look_around, events // 2, id="long")
        command = [sys.executable, "-m", "holdfast", "ui", "--no-browser", "--port", "0", "--url"]
        with subprocess.Popen([*command, url], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                [address] = re.findall(r"http://\S+", server.stdout.readline())
                print(json.dumps({"events": events, **measure(address, server.pid)}, indent=2))
            finally:
                server.terminate()


def measure(address: str, server: int) -> dict[str, Any]:
    """All figures, of a page that is opened anew."""
    origin = address.split("/?")[0]
    with launched() as browser:
        page = browser.new_context(viewport=WIDE).new_page()
        page.goto(address)
        page.locator("h1").first.wait_for()
        cold = opened(page, f"{origin}/tasks/long")
        warm = opened(page, f"{origin}/tasks/long")
        timeline = page.evaluate(FRAMES, ".lanes")
        moved = time.perf_counter()
        page.keyboard.press("Home")
        page.locator("[data-state-at='1']").wait_for()
        moved_ms = (time.perf_counter() - moved) * 1000
        page.goto(f"{origin}/tasks/long?tab=log")
        page.locator("[role=row]").first.wait_for()
        log = page.evaluate(FRAMES, ".scroller")
        heap = page.evaluate("() => performance.memory?.usedJSHeapSize ?? 0")
        return {
            "first": cold, "again": warm, "scroll_timeline": timeline, "scroll_log": log,
            "to_event_1_ms": moved_ms, "page_heap_mb": heap / 1e6,
            "page_nodes": page.evaluate("() => document.querySelectorAll('*').length"),
            "server_rss_mb": resident_mb(server),
        }  # fmt: skip


def opened(page: Page, address: str) -> dict[str, float]:
    began = time.perf_counter()
    page.goto(address)
    page.locator("[role=option]").first.wait_for()
    rows_ms = (time.perf_counter() - began) * 1000
    paint = page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    )
    return {"first_paint_ms": paint, "rows_ms": rows_ms}


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kilobytes) / 1000


if __name__ == "__main__":
    main()
