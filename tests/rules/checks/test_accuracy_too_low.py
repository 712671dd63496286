"""Tests of accuracy-too-low."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.asserts import finding, findings
from support.builders import Net

CODE = "CAL005"


def small_rest(weight: float = 1.001):
    """Build a small difference of a convolution and its input, far below an int8 step."""
    net = Net(x=("N", 1, 8, 8))
    net.op("Conv", "x", net.constant(np.full((1, 1, 1, 1), weight)), name="conv")
    return net.op("Sub", net.last, "x").model()


def plain():
    return Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv").model()


def log_of_zero():
    """Build a logarithm of values near 0, which are 0 in int8."""
    net = Net(x=("N", 3, 8, 8)).conv("x", (8, 3, 3, 3), name="conv")
    return net.op("Abs").op("Log", to="y").model()


FIRES = [small_rest, log_of_zero]
SILENT = [plain, lambda: Net(x=("N", 1, 8, 8)).op("Relu").model()]


def test_poor_is_a_warning():
    """Poor accuracy is a warning if no goal was given."""
    found = finding(small_rest(), CODE)
    assert found.severity == "warning"
    assert found.message.endswith(
        "dB SQNR against the float model, on 2 samples; below 15 dB is poor"
    )
    assert found.limit == "at least 15 dB"


def test_a_goal_that_is_missed_is_an_error():
    """No extra multiplication makes up for what int8 cannot say."""
    found = finding(plain(), CODE, min_sqnr=200)
    assert (found.severity, found.limit) == ("error", "at least 200 dB")
    assert "--min-sqnr asks for 200 dB" in found.message


def test_a_goal_that_is_reached():
    """The rule is silent, and so it is about poor results that were to be no better."""
    assert not findings(plain(), CODE, min_sqnr=30)
    assert not findings(small_rest(), CODE, min_sqnr=-40)


def test_no_model_leaves_that_misses_its_goal():
    """The error carries the report with the numbers."""
    samples = {"x": np.random.default_rng(0).uniform(0, 1, (16, 3, 8, 8)).astype(np.float32)}
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(plain(), calibration=samples, min_sqnr=200)
    report = caught.value.report
    assert report.summary.verdict == "refused"
    assert report.quantization.budget.min_sqnr_db == 200
    assert report.quantization.budget.extra_percent <= 100


def test_an_output_of_zeros_says_nothing():
    """Unless a goal was set, which cannot be shown to be reached."""
    net = Net(x=("N", 4, 8, 8)).conv("x", (4, 4, 1, 1))
    model = net.op("Mul", net.last, net.constant(np.zeros(1, np.float32))).model()
    assert not findings(model, CODE)
    assert finding(model, CODE, min_sqnr=20).value == "no"


def test_an_output_that_only_int8_makes_infinite():
    """An infinite output has no SQNR, and must not pass for a good one."""
    found = finding(log_of_zero(), CODE)
    assert found.severity == "warning"
    assert found.message.endswith("samples; not finite, as the float model's are: 'y'")
    assert finding(log_of_zero(), CODE, min_sqnr=10).severity == "error"
