"""What a real Restate says of tasks, for tests."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.engines.restate import Restate


def last_failure(hf: Holdfast, id: str) -> str:
    """Why Restate has to try again, as it says itself."""
    assert isinstance(hf.engine, Restate)
    query = f"select last_failure from sys_invocation where target_service_key = '{id}'"
    rows = hf.engine.admin.ask("POST", "/query", {"query": query}).json()["rows"]
    return next((str(row["last_failure"]) for row in rows if row.get("last_failure")), "")
