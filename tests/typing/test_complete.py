"""The types of the package are complete: a user's type checker has to guess none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT


def unknown_types(package: str, source: Path) -> tuple[int, list[str]]:
    """How many names of a package pyright has looked at, and those whose type it has to guess."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(source),
    }
    asked = ["--verifytypes", package, "--ignoreexternal", "--outputjson"]
    ended = subprocess.run(
        [sys.executable, "-m", "pyright", *asked],
        check=False, capture_output=True, text=True, cwd=source, env=environment,
    )  # fmt: skip
    if ended.returncode not in (0, 1):
        give_up = pytest.fail if os.environ.get("HOLDFAST_NEED_ENGINES") else pytest.skip
        give_up(f"pyright does not run here (it needs Node): {ended.stderr[-300:]}")
    told = json.loads(ended.stdout)["typeCompleteness"]
    assert Path(told["packageRootDirectory"]).is_relative_to(source)
    guessed = [
        f"{name['name']}: {said['message']}"
        for name in told["symbols"]
        if name["isExported"] and (not name["isTypeKnown"] or name["isTypeAmbiguous"])
        for said in name["diagnostics"] or [{"message": "takes it from another name"}]
    ]
    return len(told["symbols"]), guessed


@pytest.mark.timeout(400)
def test_every_public_name_says_its_type():
    looked_at, guessed = unknown_types("holdfast", ROOT / "src")
    assert looked_at > 5000
    assert not guessed


def test_a_type_that_has_to_be_guessed_is_found(tmp_path):
    package = tmp_path / "vague"
    package.mkdir()
    (package / "py.typed").touch()
    (package / "__init__.py").write_text("def double(number):\n    return number * 2\n")
    _, guessed = unknown_types("vague", tmp_path)
    assert any(each.startswith("vague.double: ") for each in guessed)
