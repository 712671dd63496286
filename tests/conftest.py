"""Settings of all tests."""

from __future__ import annotations

import os

import numpy as np  # noqa: F401 brings the BLAS that is limited here
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# A time limit for each example, or for drawing it, fails beside another load, and finds nothing.
# Where CI is set, hypothesis has a profile that neither looks at the clock nor at chance.
DESK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("desk", DESK)
settings.register_profile("sweep", DESK, max_examples=1000)  # make sweep
if settings.get_current_profile_name() != "ci":
    settings.load_profile("desk")

# What somebody's shell says of its screen; processes of the tests inherit it, too.
for name in ("NO_COLOR", "COLUMNS", "NPUCONV_TRACEBACK"):
    os.environ.pop(name, None)

# Some tests import onnxruntime before npuconv, which turns its telemetry off.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# As a conversion does. Threads of BLAS that wait take the core of the other test process, and the
# last bit of a product depends on how many there are.
threadpool_limits(1, "blas")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that no process is left with one when all others are done."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
