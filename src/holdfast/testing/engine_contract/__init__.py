"""The contract of an engine by theme: a class of tests each, which `EngineContract` joins."""

import pytest

# So that a failing test of an engine shows what it found, as tests in a test module do.
_THEMES = ("calling", "ending", "families", "logs", "messages", "people", "starting", "working")
pytest.register_assert_rewrite(*(f"{__name__}.{theme}" for theme in _THEMES))
