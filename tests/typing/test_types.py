"""Types hold: two type checkers agree with what is promised, and refuse what is wrong.

Both look at three things, in one process each: `typed_agents.py`, with lines that are wrong on
purpose; the examples; and the code of the pages, which people copy. The blocks of a page run in
sequence, so they are one module. Each block keeps its line on the page. A page may define a
function anew, to show changed code: that is no error here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_docs import BLOCK, PAGES, ROOT, name

SOURCE = Path(__file__).parent / "typed_agents.py"


def wrong_lines(source: str) -> set[int]:
    """The lines that must be errors. A decorator's mismatch is told at the decorator."""
    return {n for n, line in enumerate(source.splitlines(), 1) if line.endswith("  # wrong")}


def write_modules(folder: Path) -> dict[Path, str]:
    """Each page with code as a module in a folder; the page by the path of the module."""
    found = {}
    for page in PAGES:
        if code := code_of(page.read_text()):
            stem = re.sub(r"\W", "_", name(page))
            module = folder / f"page_{stem}.py"
            module.write_text(code)
            found[module] = name(page)
    return found


def code_of(page: str) -> str:
    """The Python of a page, each line where it stands on the page; '' if it has none."""
    lines = [""] * (page.count("\n") + 1)
    for block in BLOCK.finditer(page):
        if block[1] == "python":
            first = page.count("\n", 0, block.start(2))
            code = block[2].splitlines()
            lines[first : first + len(code)] = code
    if not any(lines):
        return ""
    # The title and an empty line stand there.
    lines[:2] = ["# pyright: reportRedeclaration=false", "# mypy: disable-error-code=no-redef"]
    return "\n".join(lines) + "\n"


Errors = list[tuple[Path, int, str]]


def by_mypy(paths: list[Path]) -> Errors:
    # With the settings and the cache of `make check`, which are strict, and looked at all else.
    options = ["--no-error-summary", "--show-absolute-path"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, paths)],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", ended.stdout, re.M)
    return [(Path(file), int(line), said) for file, line, said in found]


def by_pyright(paths: list[Path]) -> Errors:
    here = ["--pythonpath", sys.executable]
    ended = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *here, *map(str, paths)],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    if ended.returncode not in (0, 1):
        give_up = pytest.fail if os.environ.get("HOLDFAST_NEED_ENGINES") else pytest.skip
        give_up(f"pyright does not run here (it needs Node): {ended.stderr[-300:]}")
    told = json.loads(ended.stdout)
    assert told["summary"]["filesAnalyzed"] > len(paths)
    return [
        (Path(each["file"]), each["range"]["start"]["line"] + 1, each["message"])
        for each in told["generalDiagnostics"]
        if each["severity"] == "error"
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("checker", [by_mypy, by_pyright])
def test_a_type_checker_accepts_what_is_right_and_refuses_what_is_wrong(checker, tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    pages = write_modules(folder)
    assert len(pages) > 50
    expected = {(SOURCE, line) for line in wrong_lines(SOURCE.read_text())}
    assert len(expected) > 15
    found = checker([SOURCE, ROOT / "examples", *pages])
    surprises = [
        f"{pages.get(path, path)}:{line}: {said}"
        for path, line, said in found
        if (path, line) not in expected
    ]
    assert not surprises
    accepted = expected - {(path, line) for path, line, _ in found}
    assert not accepted, "these lines are wrong, and were accepted"


@pytest.mark.parametrize("page", [p for p in PAGES if code_of(p.read_text())][:3], ids=name)
def test_a_line_of_code_stands_where_it_is_on_its_page(page):
    text = page.read_text()
    pairs = zip(text.splitlines()[2:], code_of(text).splitlines()[2:], strict=False)
    assert all(code in ("", line) for line, code in pairs)
