"""A store of each kind that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast


@pytest.fixture(params=["memory://", "files", "sqlite"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    urls = {"files": str(tmp_path / "w"), "sqlite": f"sqlite:///{tmp_path}/w.db"}
    with Holdfast(urls.get(request.param, request.param)) as opened:
        yield opened
