"""The reference is complete: every public name, every method of `Holdfast`, and every parameter.

The pages under `reference/python` are made from docstrings by `make docs`. `reference/api.md` is
written by people, in the order in which readers need things, so it is compared with the code here.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = (DOCS / "reference/api.md").read_text()
SIGNATURES: dict[str, list[str]] = {}
for _name, _parameters in re.findall(r"`@?(?:Holdfast\.|hf\.)?(\w+)\(([^`]*)\)`", API):
    SIGNATURES.setdefault(_name, []).append(_parameters)

NAMES = [
    name
    for name in holdfast.__all__
    if not (isinstance(it := getattr(holdfast, name), type) and issubclass(it, BaseException))
]
METHODS = [
    name
    for name in dir(Holdfast)
    if not name.startswith("_")
    and callable(getattr(Holdfast, name))
    and not (name.startswith("a") and hasattr(Holdfast, name[1:]))  # the async form of another
]
NO_VALUE = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def parameters(of: object) -> list[str]:
    assert callable(of)
    found = inspect.signature(of).parameters.values()
    names = [p.name for p in found if p.kind not in NO_VALUE and not p.name.startswith("_")]
    return [name for name in names if name not in {"self", "cls", "fn"}]


def lacking(name: str, of: object) -> list[str]:
    """The parameters that no signature of this name in the page has; all, if it has none."""
    written = SIGNATURES.get(name, [""])
    missing = [[p for p in parameters(of) if not re.search(rf"\b{p}\b", w)] for w in written]
    return min(missing, key=len)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_explained(name):
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`", API), f"reference/api.md says nothing of {name}"


@pytest.mark.parametrize("name", [n for n in NAMES if n in {"task", "step", "tool", "Holdfast"}])
def test_the_options_of_decorators_and_of_the_app_are_listed(name):
    assert lacking(name, getattr(holdfast, name)) == []


@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_its_parameters_are_listed(name):
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`", API), f"reference/api.md says nothing of {name}"
    assert lacking(name, getattr(Holdfast, name)) == [], f"parameters of {name}"


def test_a_parameter_that_the_page_lacks_is_noticed():
    def gc(policy, *, sooner=False):
        pass

    assert lacking("gc", gc) == ["sooner"]


PUBLIC = re.findall(
    r"^\.\. automodule:: (\S+)$",
    "\n".join(page.read_text() for page in sorted((DOCS / "reference/python").glob("*.md"))),
    re.MULTILINE,
)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_a_generated_page_lists_is_public_and_has_a_docstring(name):
    module = importlib.import_module(name)
    if name in {"holdfast.errors", "holdfast.testing"}:
        return  # no list of its own; and a contract that is loaded here has plain asserts elsewhere
    for public in module.__all__:
        it = getattr(module, public)
        assert not callable(it) or inspect.getdoc(it), f"{name}.{public} has no docstring"


FOR_AUTHORS = {"frameworks", "journaled"}  # what integrations are made of


def test_every_integration_is_on_a_generated_page():
    folder = ROOT / "src/holdfast/integrations"
    files = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    public = {
        file.parent.name if file.name == "__init__.py" else file.stem
        for file in files
        if file.parent != folder or file.name != "__init__.py"
        if "\n__all__ = " in file.read_text()
    }
    listed = {
        name.removeprefix("holdfast.integrations.") for name in PUBLIC if ".integrations." in name
    }
    assert listed == public - FOR_AUTHORS


def test_every_page_of_the_how_tos_is_in_their_list():
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "how-to/README.md").read_text()))
    assert listed == {page.name for page in (DOCS / "how-to").glob("*.md")} - {"README.md"}


def test_every_decision_is_in_the_list():
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (DOCS / "decisions/README.md").read_text())
    assert listed == sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))


def test_the_diagrams_are_as_their_source_draws_them():
    spec = importlib.util.spec_from_file_location("diagrams", DOCS / "diagrams.py")
    assert spec and spec.loader
    diagrams = importlib.util.module_from_spec(spec)
    sys.modules["diagrams"] = diagrams
    spec.loader.exec_module(diagrams)
    for name, diagram in diagrams.DIAGRAMS.items():
        assert (DOCS / f"pictures/{name}.svg").read_text() == diagrams.draw(diagram), (
            "run `python docs/diagrams.py`"
        )
