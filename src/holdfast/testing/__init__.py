"""For tests of your own: an agent that survives a crash anywhere, a store that keeps its promises.

| name | |
|---|---|
| `Clock` | a clock that you advance, or that skips the time in which everything waits |
| `crash` | kills an agent everywhere, and compares |
| `StoreContract` | the tests that every store has to pass |
| `EngineContract` | the tests that every engine has to pass |
| `run_store_machine` | a store against the memory store, under random use and crashes |
| `StoreMachine` | the rules of that, to add to |
| `StoreProcesses` | stores in processes of their own, which can be killed |
| `ScriptedModel` | a model server that says what a script says, or fails as it says |
| `evaluate` | recorded runs, run anew with other prompts or models, and compared |
| `replay_recorded` | the code of a task over a recorded log: what `holdfast testcase` writes |

Loaded when asked for: the contracts need pytest and the machine Hypothesis, which come with
`pip install 'holdfast[testing]'`.

Public, by the names in `__all__`. It uses every room but `cli`. Read `contract` first for stores,
`engine_contract` for engines, `crash` for agents that are killed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.clock import Clock
    from holdfast.testing.engines import EngineContract
    from holdfast.testing.evaluating import (
        EvaluatedCase,
        EvaluatedRun,
        Evaluation,
        evaluate,
        replay_recorded,
    )
    from holdfast.testing.machine import StoreMachine, run_store_machine
    from holdfast.testing.processes import StoreProcesses
    from holdfast.testing.scripted import ScriptedModel
    from holdfast.testing.stores import StoreContract

__all__ = [
    "Clock",
    "EngineContract",
    "EvaluatedCase",
    "EvaluatedRun",
    "Evaluation",
    "ScriptedModel",
    "StoreContract",
    "StoreMachine",
    "StoreProcesses",
    "evaluate",
    "replay_recorded",
    "run_store_machine",
]

_HOMES = {
    "Clock": "clock",
    "EngineContract": "engines",
    "EvaluatedCase": "evaluating",
    "EvaluatedRun": "evaluating",
    "Evaluation": "evaluating",
    "ScriptedModel": "scripted",
    "StoreContract": "stores",
    "StoreMachine": "machine",
    "StoreProcesses": "processes",
    "evaluate": "evaluating",
    "replay_recorded": "evaluating",
    "run_store_machine": "machine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs {error.name}: pip install 'holdfast[testing]'",
            name=error.name,
        ) from error
