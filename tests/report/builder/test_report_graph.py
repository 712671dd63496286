"""Nodes, tensors and weights in the report, as pages draw them."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.report.builder.quantization_rows import weight_row
from support.builders import digits


@pytest.fixture(scope="module")
def report() -> npuconv.Report:
    """Return the report of a small classifier."""
    return npuconv.convert(digits(1), method="minmax").report


def test_nodes_lead_to_each_other(report):
    """Every tensor that a node reads is an input of the model, or made by a node before it."""
    known = {one.name for one in report.model.inputs}
    for node in report.nodes:
        assert node.outputs
        assert set(node.inputs) <= known
        known |= set(node.outputs)
    assert {one.name for one in report.model.outputs} <= known


def test_nodes_say_what_they_are(report):
    """The operator with its kernel, and the shape of what it makes."""
    first = next(node for node in report.nodes if node.op == "Conv")
    assert first.form == "Conv 3x3"
    assert first.shape == (1, 4, 8, 8)
    assert npuconv.check(digits()).nodes[0].inputs == ("x",)


def test_what_int8_holds(report):
    """The share in range is 100 % if every value is in it."""
    for one in report.quantization.tensors:
        assert one.lowest < one.highest
        if one.clip_fraction == 0 and one.channels == 1:
            assert one.highest >= one.maximum * 0.99


def test_weights_of_layers(report):
    """Every layer tells the range of its weights."""
    for layer in report.quantization.layers:
        assert layer.weights.minimum < layer.weights.maximum
        assert layer.weights.smallest_reach <= max(-layer.weights.minimum, layer.weights.maximum)
        assert 0 <= layer.weights.clip_fraction < 0.5


def test_clipped_weights():
    """The share of weights too large for a tuned scale is reported."""
    weight = np.asarray([[1.0, 2.0], [4.0, 0.0]], np.float32)
    rounded = RoundedWeights(np.zeros((2, 2), np.int8), np.full(2, 0.01, np.float32), np.zeros(2))
    row = weight_row(weight, Encoding.plain(1.0), 1, rounded)
    assert (row.minimum, row.maximum, row.channels) == (0.0, 4.0, 2)
    assert (row.smallest_reach, row.clip_fraction) == (2.0, 0.5)
    assert weight_row(weight, Encoding.plain(1.0), 1, None).clip_fraction == 0


def test_what_a_relu_cuts_off_is_not_clipped(report):
    """Values that a Relu cuts off do not count; minmax cuts no others."""
    assert [one.name for one in report.quantization.tensors if one.clip_fraction] == []
