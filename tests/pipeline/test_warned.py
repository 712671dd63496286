"""What a user is told beside a converted model."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net, images

GOALS = {"min_sqnr": 30.0, "max_extra_macs": 10.0}
X = (1, 3, 8, 8)


def warnings(**options: object) -> tuple[str, ...]:
    model = Net(x=X).conv().model()
    return npuconv.convert(model, **options).report.summary.warnings


@pytest.mark.parametrize("form", ["weights", "float"])
def test_goals_that_nothing_is_measured_for(form):
    """--min-sqnr must not look as if it had been reached."""
    (warning,) = warnings(format=form, **GOALS)
    assert warning.startswith(f"--format {form} has float activations")
    assert warning.endswith("for --min-sqnr and --max-extra-macs")
    assert warnings(format=form) == ()


def test_samples_that_are_not_used():
    """Each of several things is said."""
    told = warnings(format="float", calibration={"x": images(4, *X[1:])}, min_sqnr=10.0)
    assert [text.partition(":")[0] for text in told] == [
        "--format float needs no samples",
        "--format float has float activations",
    ]


def test_goals_that_are_measured():
    """Nothing is said of them."""
    samples = np.random.default_rng(0).normal(size=(16, *X[1:])).astype(np.float32)
    assert not any("--min-sqnr" in text for text in warnings(calibration={"x": samples}, **GOALS))
