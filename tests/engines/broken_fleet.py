"""The tasks of a fleet whose build is broken on purpose: no task is ever set aside."""

from __future__ import annotations

from unittest.mock import patch

import tests.engines.fleet_tasks  # noqa: F401

patch("holdfast.engines.deaths.set_aside", lambda state, most: None).start()
