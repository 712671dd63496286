"""Which layers make the noise of the outputs."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Net
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.gated import Gate, Rounding
from npuconv.tuning.noise.sensitivity import shares

SHAPE = (1, 3, 12, 12)


def test_the_coarser_layer_has_the_larger_share():
    """Steps ten times as large make a hundred times the noise."""
    net = Net(x=SHAPE).conv("x", (3, 3, 1, 1), name="a", to="t").conv("x", (3, 3, 1, 1), name="b")
    model = net.output("t", net.last).model()
    coarse = Rounding(Gate("a", "output", "t"), Encoding.plain(0.3))
    fine = Rounding(Gate("b", "output", net.last), Encoding.plain(0.03))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    found = shares(model, [coarse, fine], [{"x": x}])
    assert found["a"].noise == pytest.approx(0.99, abs=0.005)
    assert found["a"].noise + found["b"].noise == pytest.approx(1)
    assert found["b"].sqnr_db == pytest.approx((found["a"].sqnr_db or 0) + 20, abs=2)


def test_a_layer_that_loses_nothing_has_no_share():
    """Numbers that int8 holds exactly."""
    net = Net(x=SHAPE).conv("x", (3, 3, 1, 1), name="a", to="t")
    exact = Rounding(Gate("a", "output", "t"), Encoding.plain(1.0))
    found = shares(net.model(), [exact], [{"x": np.zeros(SHAPE, np.float32)}])
    assert found["a"].noise in (0.0, 1.0)
