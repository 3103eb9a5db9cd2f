"""The contract of a store by theme: a class of tests each, which `StoreContract` joins."""

import pytest

# So that a failing test of a store shows what it found, as tests in a test module do.
_THEMES = ("appending", "blobs", "derived", "facts", "leases")
pytest.register_assert_rewrite(*(f"{__name__}.{theme}" for theme in _THEMES))
