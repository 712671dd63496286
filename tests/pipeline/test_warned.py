"""What a user is told beside a converted model."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.builders import Net, images

X = images(4, 3, 8, 8)


def warnings(x, **options):
    model = Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    samples = None if x is None else {"x": x}
    return npuconv.convert(model, calibration=samples, **options).report.summary.warnings


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (np.repeat(X[:1], 4, axis=0), "all 4 samples are the same"),
        (np.zeros_like(X), "nothing but zeros"),
        (np.zeros_like(X[:1]), "nothing but zeros"),
    ],
)
def test_samples_that_show_little(x, wanted):
    """It looks as if there were many; a wrong path or a broken loader makes such."""
    assert any(wanted in text for text in warnings(x))


@pytest.mark.parametrize("x", [X, X[:1], np.concatenate([np.zeros_like(X), X]), None])
def test_samples_that_differ(x):
    """One alone cannot, and is no repetition; made up ones are told of elsewhere."""
    assert not [text for text in warnings(x) if "the same" in text or "zeros" in text]


GOALS = {"min_sqnr": 30.0, "max_extra_macs": 10.0}


def plain(**options):
    """Without samples."""
    return warnings(None, **options)


@pytest.mark.parametrize("form", ["weights", "float"])
def test_goals_that_nothing_is_measured_for(form):
    """--min-sqnr must not look as if it had been reached."""
    (warning,) = plain(format=form, **GOALS)
    assert warning.startswith(f"--format {form} has float activations")
    assert warning.endswith("for --min-sqnr and --max-extra-macs")
    assert plain(format=form) == ()


def test_samples_that_are_not_used():
    """Each of several things is said."""
    told = warnings(X, format="float", min_sqnr=10.0)
    assert [text.partition(":")[0] for text in told] == [
        "--format float needs no samples",
        "--format float has float activations",
    ]


def test_goals_that_are_measured():
    """Nothing is said of them."""
    samples = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    assert not any("--min-sqnr" in text for text in warnings(samples, **GOALS))
