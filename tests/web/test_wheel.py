"""The wheel holds the built page, small enough, and serves it where there is no Node."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import zipfile
import zlib
from pathlib import Path

import pytest

from tests.web.serving import until

ROOT = Path(__file__).parents[2]
MOST_BYTES = 400_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (
        "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"  # needs no network
    )
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True)
    return next(folder.glob("holdfast-*.whl"))


def test_the_wheel_holds_the_built_page(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if name.startswith("holdfast/web/static/")]
        assert "holdfast/web/static/index.html" in names
        assert any(name.endswith(".js") for name in names)
        assert not [name for name in packed.namelist() if "node_modules" in name]
        size = sum(len(zlib.compress(packed.read(name), 9)) for name in names)
    assert size < MOST_BYTES


def test_the_page_is_served_from_the_wheel_without_node(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    environment = {
        "PATH": "/nowhere",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(wheel),  # Python imports from it as it is
        "PYTHONUNBUFFERED": "1",
    }
    where = [sys.executable, "-c", "import holdfast.web; print(holdfast.web.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert str(wheel) in found.stdout.decode()
    command = [sys.executable, "-m", "holdfast", "ui", "--url", "store", "--port", "0"]
    with subprocess.Popen(
        [*command, "--no-browser"],
        cwd=tmp_path,
        env=environment | {k: v for k, v in os.environ.items() if k == "LANG"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            base = address.partition("?")[0]
            page = until(lambda: _read(base))
            assert b"/static/" in page
            script = page.split(b'src="', 1)[1].split(b'"', 1)[0].decode()
            assert len(_read(base.rstrip("/") + script) or b"") > 1000
            assert _read(base + "api/me") is None
        finally:
            server.terminate()


def _read(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return bytes(answer.read())
    except OSError:
        return None
