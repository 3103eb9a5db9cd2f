"""The diagrams of the docs, drawn from a few lines of text: `python docs/diagrams.py` writes them.

A diagram is rows of boxes and arrows between them. Each picture follows the reader's light or dark
theme by itself, and has a sentence for people who do not see it. A test holds the files against this source.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN, LINE = 190, 54, 60, 46, 16, 17

STYLE = """
  .box { fill: #f4f6f8; stroke: #5b6b7b; }
  .truth { fill: #dbeafe; stroke: #1d4ed8; }
  .danger { fill: #fde8e8; stroke: #b91c1c; }
  text { font: 13px system-ui, sans-serif; fill: #1a202c; text-anchor: middle; }
  .label { font-size: 11.5px; fill: #475569; }
  .arrow { stroke: #5b6b7b; fill: none; stroke-width: 1.4; marker-end: url(#tip); }
  #tip path { fill: #5b6b7b; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #1f2933; stroke: #94a3b8; }
    .truth { fill: #172554; stroke: #60a5fa; }
    .danger { fill: #450a0a; stroke: #f87171; }
    text { fill: #e2e8f0; } .label { fill: #cbd5e1; }
    .arrow { stroke: #94a3b8; } #tip path { fill: #94a3b8; }
  }
"""


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    text: str
    kind: str = "box"


@dataclass(frozen=True)
class Diagram:
    says: str
    boxes: dict[str, Box]
    arrows: list[tuple[str, str, str]] = field(default_factory=list)


def place(box: Box) -> tuple[float, float]:
    return MARGIN + box.x * (WIDTH + GAP_X), MARGIN + box.y * (HEIGHT + GAP_Y)


def draw_box(box: Box) -> str:
    left, top = place(box)
    lines = box.text.split("\n")
    first = top + HEIGHT / 2 + 4.5 - LINE * (len(lines) - 1) / 2
    texts = "".join(
        f'<text x="{left + WIDTH / 2:g}" y="{first + LINE * number:g}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    return f'<rect class="{box.kind}" x="{left:g}" y="{top:g}" {size} rx="6"/>{texts}'


def ends(start: Box, end: Box) -> tuple[float, float, float, float]:
    """Where an arrow leaves and arrives: at the sides of boxes of a row, else above and below."""
    (x1, y1), (x2, y2) = place(start), place(end)
    if start.y == end.y:
        right = x1 < x2
        return (x1 + WIDTH * right, y1 + HEIGHT / 2, x2 + WIDTH * (not right), y2 + HEIGHT / 2)
    down = y1 < y2
    return (x1 + WIDTH / 2, y1 + HEIGHT * down, x2 + WIDTH / 2, y2 + HEIGHT * (not down))


def draw_arrow(start: Box, end: Box, label: str) -> str:
    x1, y1, x2, y2 = ends(start, end)
    path = f'<path class="arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>'
    middle = (x1 + x2) / 2 + (0 if start.y == end.y or x1 != x2 else 6)
    anchor = "" if start.y == end.y or x1 != x2 else ' style="text-anchor:start"'
    y = (y1 + y2) / 2 + (-6 if start.y == end.y else 4)
    if start.y != end.y and x1 != x2:
        middle, y = x1 + (x2 - x1) * 0.72, y1 + (y2 - y1) * 0.42
    text = f'<text class="label" x="{middle:g}" y="{y:g}"{anchor}>{escape(label)}</text>'
    return path + (text if label else "")


def draw(diagram: Diagram) -> str:
    boxes = diagram.boxes
    across = max(place(box)[0] for box in boxes.values()) + WIDTH + MARGIN
    down = max(place(box)[1] for box in boxes.values()) + HEIGHT + MARGIN
    parts = [draw_arrow(boxes[a], boxes[b], label) for a, b, label in diagram.arrows]
    parts += [draw_box(box) for box in boxes.values()]
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    tip += ' orient="auto"><path d="M0 0L8 4L0 8z"/></marker>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down:g}" role="img"'
        f' width="{across:g}" aria-label="{escape(diagram.says)}">\n<style>{STYLE}</style>\n'
        f"<defs>{tip}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


DIAGRAMS = {
    "way-of-a-step": Diagram(
        "Your function calls a step; the journal decides; events go to the store; the state is the fold"
        " of the events, and views show it.",
        {
            "code": Box(0, 0, "your function"),
            "step": Box(1, 0, "task, step, tool\nwhat you touch"),
            "journal": Box(2, 0, "journal\ndecides"),
            "events": Box(3, 0, "events\nthe log", "truth"),
            "views": Box(0, 1, "views\ncommands, page, files"),
            "state": Box(1, 1, "state"),
            "fold": Box(2, 1, "fold"),
            "store": Box(3, 1, "store\nfiles, SQLite, PostgreSQL", "truth"),
        },
        [
            ("code", "step", ""),
            ("step", "journal", ""),
            ("journal", "events", ""),
            ("events", "store", "synced"),
            ("store", "fold", ""),
            ("fold", "state", ""),
            ("state", "views", ""),
        ],
    ),
    "in-doubt": Diagram(
        "The intent of a tool is on disk before its body starts. After a crash in between, the call is in"
        " doubt, and one declared policy applies: retry, check or ask.",
        {
            "intent": Box(0, 0, "intent\non disk", "truth"),
            "body": Box(1, 0, "the tool's body\ntouches the world"),
            "result": Box(2, 0, "result\non disk", "truth"),
            "doubt": Box(1, 1, "in doubt\ndid it happen?", "danger"),
            "retry": Box(0, 2, "retry\nsame key, again"),
            "check": Box(1, 2, "check\nask the receiver by key"),
            "ask": Box(2, 2, "ask\na person says"),
        },
        [
            ("intent", "body", ""),
            ("body", "result", ""),
            ("body", "doubt", "crash"),
            ("doubt", "retry", ""),
            ("doubt", "check", ""),
            ("doubt", "ask", ""),
        ],
    ),
    "fork": Diagram(
        "A fork shares the past of another task without a copy, goes another way from step 6 on, and is"
        " compared up to the first divergence.",
        {
            "past": Box(0, 0, "trip-42\nsteps 1 to 5", "truth"),
            "six": Box(1, 0, "step 6\nbooked the attic"),
            "rest": Box(2, 0, "steps 7 to 9"),
            "other": Box(1, 1, "step 6 of the fork\nanother result"),
            "other_rest": Box(2, 1, "its own steps"),
            "compare": Box(3, 0, "compare\nfirst divergence: 6"),
        },
        [
            ("past", "six", ""),
            ("six", "rest", ""),
            ("past", "other", "fork --at 6"),
            ("other", "other_rest", ""),
            ("rest", "compare", ""),
            ("other_rest", "compare", ""),
        ],
    ),
    "engines": Diagram(
        "The same task runs in your process, on several workers, on Temporal or on Restate. The log is in"
        " your store in every case, and a task under way can be moved.",
        {
            "task": Box(1, 0, "the same task"),
            "local": Box(0, 1, "this process,\nor workers"),
            "temporal": Box(1, 1, "Temporal\nstep = activity"),
            "restate": Box(2, 1, "Restate\nstep = run"),
            "log": Box(1, 2, "the log\nin your store", "truth"),
        },
        [
            ("task", "local", ""),
            ("task", "temporal", ""),
            ("task", "restate", ""),
            ("local", "log", ""),
            ("temporal", "log", ""),
            ("restate", "log", ""),
        ],
    ),
}


def main() -> None:
    for name, diagram in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw(diagram))


if __name__ == "__main__":
    sys.exit(main())
