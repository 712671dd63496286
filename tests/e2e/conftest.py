"""Conversions that the tests of a run share."""

from __future__ import annotations

import os

import pytest

from support.real_models import Conversions


@pytest.fixture(scope="session")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """Conversions of samples and real models, shared by all processes of the run."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return Conversions(shared / "conversions")
