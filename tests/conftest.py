"""What holds for every test: none of them fails because the machine is slow, or by chance."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.thorough import THOROUGH

# The examples are the same each time, so that a change is blamed for what it broke and for no more.
# `make thorough` draws new ones.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")
