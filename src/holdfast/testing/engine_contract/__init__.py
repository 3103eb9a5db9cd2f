"""The contract of an engine by theme: a class of tests each, which `EngineContract` joins."""

import pytest

# So that a failing test of an engine shows what it found, as tests in a test module do.
pytest.register_assert_rewrite(__name__)
