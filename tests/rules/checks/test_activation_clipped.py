"""Tests of activation-clipped."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.statistics import Statistics
from npuconv.rules.checks.activation_clipped import clipped_share
from support.asserts import findings
from support.builders import Net
from support.quantized_nets import Quantized

CODE = "CAL002"


def heavy(exponent: float):
    """A convolution of powers of the input: the higher, the rarer are large values."""
    net = Net(x=("N", 1, 8, 8))
    net.op("Pow", "x", net.constant(np.float32(exponent)))
    net.op("Mul", net.last, net.constant(np.float32(9)), to="powers")
    return net.op("Conv", "powers", net.constant(np.ones((1, 1, 1, 1))), name="conv").model()


def seen(values: np.ndarray) -> Statistics:
    rows = values.astype(np.float32)
    ends = rows.min(axis=1), rows.max(axis=1)
    return Statistics(1, *ends, rows, 1, rows.shape[1], *ends)


def encoding(scales, zeros) -> Encoding:
    numbers = np.asarray(scales, np.float32)
    return Encoding(numbers, np.asarray(zeros, np.int32), numbers.max(), 1)


def clipping():
    """A range that ends where 98 of 100 values do."""
    return heavy(20.0)


FIRES = [clipping]
SILENT = [lambda: heavy(1.0), lambda: Net(x=("N", 1, 8, 8)).op("Relu").model()]


def test_both_ranges_are_named():
    """The message has the observed and the stored range."""
    found = findings(clipping(), CODE)[0]
    assert "values of 't2' are clipped: they lie in [0, 8.5" in found.message
    assert 0.5 < float(found.message.split("and int8 holds [0, ")[1].rstrip("]")) < 1.5
    assert found.limit == "at most 1 % clipped"
    assert found.value.endswith("%")


@pytest.mark.parametrize("zero", [0, -128])
def test_the_range_of_a_quantized_model_has_advice_of_its_own(zero):
    """Methods and samples do not change it, and dropping it does."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.001, zero)
    proto = net.qdq_conv((4, 3, 3, 3), 0.01, name="conv").fake(0.02).model()
    kept = findings(proto, CODE)
    assert kept
    assert findings(proto, CODE, method="minmax") == kept
    assert all("--requantize" in f.fix and "--method" not in f.fix for f in kept)
    assert not findings(proto, CODE, method="minmax", keep_scales=False)
    assert "--method minmax" in findings(clipping(), CODE)[0].fix


def test_the_share_is_of_values_beyond_half_a_step():
    """-128..127 times the scale; rounding to the last step is no clipping."""
    ramp = np.arange(-200, 200, dtype=np.float32)[None]
    assert clipped_share(seen(ramp), encoding([1.0], [0])) == (72 + 72) / 400
    assert clipped_share(seen(ramp[:, 72:328] - 0.5), encoding([1.0], [0])) == 0.0


def test_every_channel_has_its_own_range():
    """Every channel has its own zero point."""
    ramps = np.stack([np.arange(256), np.arange(256) * 2]).astype(np.float32)
    assert clipped_share(seen(ramps), encoding([1.0, 2.0], [-128, -128])) == 0.0
    assert clipped_share(seen(ramps), encoding([1.0, 1.0], [-128, -128])) == 0.25
    assert clipped_share(seen(ramps), encoding([1.0, 1.0, 1.0], [0, 0, 0])) == 0.0
