"""The page is shipped built: what is shipped was made of the sources that are here."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.thorough import THOROUGH
from tests.web.browser import ROOT, give_up

WEB = ROOT / "web"
BUILT = ROOT / "src" / "holdfast" / "web" / "static"
MOST_BYTES = 400_000
LEFT_OUT = {"node_modules", ".vite"}


def sum_of(folder: Path) -> str:
    """The sum that `web/vite.config.js` writes: name, length and content of each file, in order."""
    paths = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts)
    ]
    made = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        made.update(f"{path.relative_to(folder).as_posix()}\n{len(content)}\n".encode())
        made.update(content)
    return made.hexdigest()


def test_the_built_page_is_not_stale() -> None:
    built_from = (BUILT / "sources.txt").read_text().strip()
    assert built_from == sum_of(WEB), "web/ changed since the page was built: run `make web`"


def test_a_changed_source_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_text("1")
    before = sum_of(tmp_path)
    (tmp_path / "a.ts").write_text("2")
    assert sum_of(tmp_path) != before


@pytest.mark.skipif(not THOROUGH, reason="`make thorough` rebuilds the page")
def test_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("npx") is None or not (WEB / "node_modules").exists():
        give_up("the tools of the page are not installed; `make web` installs them")
    command = ["npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir"]
    subprocess.run(command, cwd=WEB, check=True, capture_output=True)
    assert contents(tmp_path / "built") == contents(BUILT)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_page_is_small() -> None:
    fonts = (".woff2",)  # compressed already
    sizes = {
        name: len(content) if name.endswith(fonts) else len(gzip.compress(content))
        for name, content in contents(BUILT).items()
    }
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_the_page_asks_no_other_host_and_makes_no_markup_of_text() -> None:
    for path in [*sorted((WEB / "src").rglob("*.ts*")), WEB / "index.html", WEB / "src/style.css"]:
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert "dangerouslySetInnerHTML" not in text, path
        assert not re.search(r"""https?:(?!//www\.w3\.org/)//""", text), path


def test_the_lock_file_names_no_place_to_download_from() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all(package.get("integrity") for name, package in lock["packages"].items() if name)
