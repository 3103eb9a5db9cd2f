"""What a guide tells you to install brings all that its examples import."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PAGES = Path(__file__).parents[2] / "docs/how-to"
INSTALLS = {
    page.stem: [word for line in lines for word in shlex.split(line)]
    for page in sorted(PAGES.glob("*.md"))
    if (lines := re.findall(r"pip install ('holdfast\[[^`\n]*)", page.read_text()))
}


def installed_by(words: list[str]) -> set[str]:
    """The packages that pip installs for these, by what those that are here say of themselves."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(each), "") for each in words]
    while left:
        asked, extra = left.pop()
        if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", asked.name).lower()
        for wanted in {"", *asked.extras} - {extra for known, extra in found if known == name}:
            found.add((name, wanted))
            try:
                needed = metadata.requires(name) or ()
            except metadata.PackageNotFoundError:
                continue  # not for this platform, or not used here
            left += [(Requirement(each), wanted) for each in needed]
    return {name for name, _ in found}


def imports_of(page: str) -> set[str]:
    code = re.findall(r"^```python\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.M | re.S)
    names: set[str] = set()
    for node in (each for block in code for each in ast.walk(ast.parse(block))):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("page", INSTALLS)
def test_the_install_line_of_a_page_brings_what_its_code_imports(page):
    there = installed_by(INSTALLS[page])
    owners = metadata.packages_distributions()
    missing = {
        name
        for name in imports_of(page)
        if (by := {re.sub(r"[-_.]+", "-", each).lower() for each in owners.get(name, ())})
        and not by & there
    }
    assert not missing
