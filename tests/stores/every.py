"""Every store that comes with Holdfast, for tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["KINDS", "LASTING", "new_url", "postgres_server", "postgres_url"]

KINDS = ("files", "sqlite", "postgres", "memory")
LASTING = KINDS[:3]


@pytest.fixture
def new_url(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes the URL of a new store of a kind."""
    made: list[str] = []

    def new(kind: str) -> str:
        made.append(kind)
        if kind == "memory":
            return "memory://"
        if kind == "postgres":
            return str(request.getfixturevalue("postgres_server").new_database())
        place = tmp_path / f"{kind}-{len(made)}"
        return f"sqlite:///{place}.db" if kind == "sqlite" else str(place)

    return new
