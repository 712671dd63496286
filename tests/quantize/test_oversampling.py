"""Layers that run several times, in integers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest

from npuconv.arithmetic.encoding import Encoding
from npuconv.legalize.legal import LegalModel
from npuconv.model import query
from npuconv.quantize.fake_quant import FakeQuantComparison, quant_points
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.oversampling import Oversampled, Repeats, offsets, oversample, real_weights
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.state import QuantState
from support.builders import Net
from support.plans import Feeds, quantized

X = (1, 3, 12, 12)


@dataclass
class Case:
    """A quantized graph, and what a repeats is made with."""

    graph: LegalModel
    state: QuantState
    hessians: dict[str, Hessian]
    feeds: Feeds
    proto: onnx.ModelProto

    def made(self, repeats: Repeats) -> Oversampled:
        """Return the changed copy of the model."""
        return oversample(self.graph, self.state, self.hessians, repeats)

    def noise(self, made: Oversampled | None = None) -> float:
        """Return the noise of all roundings."""
        graph, state = (made.graph, made.state) if made else (self.graph, self.state)
        error = FakeQuantComparison(self.proto, self.feeds)
        return sum(error.measure(quant_points(graph, state), graph.proto).noise)


def case(proto: onnx.ModelProto, encodings: dict[str, Encoding] | None = None) -> Case:
    """Ranges as they are chosen, but for those that are given; weights rounded for them."""
    own = quantized(proto)
    state = replace(own.state, encodings={**own.state.encodings, **(encodings or {})})
    state = round_weights(own.graph, own.hessians, state)
    return Case(own.graph, state, own.hessians, own.feeds, own.graph.proto)


def chain() -> onnx.ModelProto:
    """A layer that reads what the host makes, one that reads the device, and one behind both."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), name="first").op("Relu", to="made")
    net.conv("made", (8, 8, 3, 3), name="second").op("Sigmoid")
    return net.conv("", (4, 8, 1, 1), name="third").model()


@pytest.fixture(scope="module")
def row() -> Case:
    return case(chain())


def test_a_repeats_of_nothing(row: Case):
    """Graph and state are as they were."""
    made = row.made({})
    assert made.state is row.state
    assert made.repeated == ()
    assert made.graph.proto.graph.node == row.proto.graph.node


# Layers


def test_layers_that_run_several_times(row: Case):
    """The more often, the less noise."""
    names = ("first", "second", "third")
    twice, often = (row.made(dict.fromkeys(names, count)) for count in (2, 4))
    for made in (twice, often):
        assert [one.node for one in made.repeated] == ["first", "second", "third"]
        assert set(made.state.encodings) > set(row.state.encodings)
    assert row.noise(twice) < 0.5 * row.noise()
    assert row.noise(often) < 0.5 * row.noise(twice)


def test_copies_are_stored_like_their_layer(row: Case):
    """Each copy reads an input that is moved by its share of a step."""
    made = row.made({"first": 3})
    (one,) = made.repeated
    scales = row.state.encodings["x"].scales.astype(np.float64)
    for shift, by in zip(one.shifts, offsets(3), strict=True):
        np.testing.assert_allclose(shift.values.reshape(-1), by * scales, rtol=1e-6)
    nodes = {node.name: node for node in made.graph.plan.convolutions}
    convs = [conv.name for conv in one.convs]
    assert len(convs) == 3
    for name in convs:
        source, result = nodes[name].inputs[0].name, nodes[name].outputs[0].name
        assert made.state.encodings[source] is row.state.encodings["x"]
        assert made.state.encodings[result] is row.state.encodings[one.output]


def test_what_moves_a_copy_is_taken_back():
    """Its bias makes up for the input that it reads; its output is moved by its share."""
    net, rng = Net(x=X), np.random.default_rng(0)
    weight, bias = rng.uniform(0.2, 1, (4, 3, 3, 3)), rng.normal(size=4)
    net.op("Conv", "x", net.constant(weight), net.constant(bias), name="first").op("Sigmoid")
    own = case(net.model())
    made = own.made({"first": 3})
    source, result = own.state.encodings["x"], made.state.encodings["t0"]
    names = [conv.name for conv in made.repeated[0].convs]
    for name, by in zip(names, offsets(3), strict=True):
        rounded = made.state.weights[name]
        rows = real_weights(rounded, source, 1).sum(axis=(2, 3)) @ (by * source.scales)
        at = rounded.bias + rows + by * result.scales
        # The correction of the bias is a small part of a step of the output.
        np.testing.assert_allclose(
            at, bias, atol=0.25 * np.abs(rows).max() + 0.1 * result.scales.max()
        )


def test_weights_of_copies_have_a_finer_mean(row: Case):
    """Copies make up for each other's rounding."""
    made = row.made({"first": 3})
    names = [conv.name for conv in made.repeated[0].convs]
    source = row.state.encodings["x"]
    weight = query.constant_input(row.graph.plan.convolutions[0], 1)
    values = [real_weights(made.state.weights[name], source, 1) for name in names]
    alone, mean = np.square(values[0] - weight).sum(), np.square(np.mean(values, 0) - weight).sum()
    assert mean < alone / 3


def test_an_input_that_the_device_makes_stays_where_it_is(row: Case):
    """Its integers are what they are; copies differ in weights and outputs."""
    (one,) = row.made({"second": 2}).repeated
    assert one.shifts == []
    assert row.noise(row.made({"second": 2})) < row.noise()
