"""Quantization for a device without biases."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv import executor
from support.builders import Net

X = np.random.default_rng(5).normal(1, 1, size=(4, 4, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_a_device_without_biases_gets_none(form: str):
    """Zero points and corrections would be in them: inputs of one sign keep zero point 0."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3)).op("Relu")
    net.conv("", (4, 4, 3, 3), pads=[1] * 4)
    options = {"assume": ["bias=false"], "format": form, "max_extra_macs": 50}
    result = npuconv.convert(net.model(), calibration={"x": X}, **options)
    nodes = [n for n in result.model.graph.node if n.op_type in ("QLinearConv", "Conv")]
    assert [len(n.input) for n in nodes] == [8 if form == "qoperator" else 2] * 2
    assert result.report.accuracy is not None
    assert result.report.accuracy.sqnr_db > 30
    wanted = executor.Session(net.model()).run({"x": X[:1]})[net.last]
    found = next(iter(executor.Session(result.model).run({"x": X[:1]}).values()))
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
