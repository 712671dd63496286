"""Layers and channels that are made several times, in integers."""

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
from npuconv.quantize.rounding import nearest, round_weights
from npuconv.quantize.state import QuantState
from support.asserts import read, same_numbers
from support.builders import Net
from support.outlier_nets import LOUD, inverted
from support.plans import Feeds, planned, quantized

CHANNELS = 8
INDEX = (*range(CHANNELS), LOUD, LOUD)  # the loud channel three times
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
        return oversample(self.graph, self.state, self.hessians, repeats, self.feeds)

    def noise(self, made: Oversampled | None = None) -> float:
        """Return the noise of all roundings."""
        graph, state = (made.graph, made.state) if made else (self.graph, self.state)
        error = FakeQuantComparison(self.proto, self.feeds)
        return sum(error.measure(quant_points(graph, state), graph.proto()).noise)


def case(proto: onnx.ModelProto, encodings: dict[str, Encoding] | None = None) -> Case:
    """Ranges as they are chosen, but for those that are given; weights rounded for them."""
    own = quantized(proto)
    state = replace(own.state, encodings={**own.state.encodings, **(encodings or {})})
    state = round_weights(own.graph, own.hessians, state)
    return Case(own.graph, state, own.hessians, own.feeds, own.graph.proto())


def chain() -> onnx.ModelProto:
    """A layer that reads what the host makes, one that reads the device, and one behind both."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), name="first").op("Relu", to="made")
    net.conv("made", (8, 8, 3, 3), name="second").op("Sigmoid")
    return net.conv("", (4, 8, 1, 1), name="third").model()


@pytest.fixture(scope="module")
def row() -> Case:
    return case(chain())


@pytest.fixture(scope="module")
def mobile() -> Case:
    """Steps between the layers are coarse, and those at both ends fine."""

    def alike(step: float) -> Encoding:
        scales, zeros = np.full(CHANNELS, step, np.float32), np.zeros(CHANNELS, np.int32)
        return Encoding(scales, zeros, np.float32(step), 1)

    proto = inverted(x=X)
    graph = planned(read(proto))
    names = [name for group in graph.plan.groups for name in group.tensors]
    inner = [name for name in names if name not in ("x", graph.model.graph.outputs[0].name)]
    first = graph.plan.convolutions[0].outputs[0].name
    return case(proto, {n: alike(0.2 if n in (first, "made") else 1.0) for n in inner})


def test_a_repeats_of_nothing(row: Case):
    """Graph and state are as they were."""
    made = row.made(Repeats())
    assert made.state is row.state
    assert (made.repeated, made.duplicated) == ((), ())
    assert made.graph.proto().graph.node == row.proto.graph.node
    assert not Repeats()
    assert Repeats({"a": 2})
    assert Repeats({}, {"t": (0, 1, 1)})


# Layers


def test_layers_that_run_several_times(row: Case):
    """The more often, the less noise."""
    names = ("first", "second", "third")
    twice, often = (row.made(Repeats(dict.fromkeys(names, count))) for count in (2, 4))
    for made in (twice, often):
        assert [one.node for one in made.repeated] == ["first", "second", "third"]
        assert set(made.state.encodings) > set(row.state.encodings)
    assert row.noise(twice) < 0.5 * row.noise()
    assert row.noise(often) < 0.5 * row.noise(twice)


def test_copies_are_stored_like_their_layer(row: Case):
    """Each copy reads an input that is moved by its share of a step."""
    made = row.made(Repeats({"first": 3}))
    (one,) = made.repeated
    scales = row.state.encodings["x"].scales.astype(np.float64)
    for shift, by in zip(one.shifts, offsets(3), strict=True):
        np.testing.assert_allclose(shift.values.reshape(-1), by * scales, rtol=1e-6)
    nodes = {node.name: node for node in made.graph.plan.convolutions}
    convs = [name for name, _, is_conv in one.copies if is_conv]
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
    made = own.made(Repeats({"first": 3}))
    source, result = own.state.encodings["x"], made.state.encodings["t0"]
    names = [name for name, _, is_conv in made.repeated[0].copies if is_conv]
    for name, by in zip(names, offsets(3), strict=True):
        rounded = made.state.weights[name]
        rows = real_weights(rounded, source, 1).sum(axis=(2, 3)) @ (by * source.scales)
        at = rounded.bias + rows + by * result.scales
        np.testing.assert_allclose(at, bias, atol=0.25 * np.abs(rows).max() + 1e-6)


def test_weights_of_copies_have_a_finer_mean(row: Case):
    """Copies make up for each other's rounding."""
    made = row.made(Repeats({"first": 3}))
    names = [name for name, _, is_conv in made.repeated[0].copies if is_conv]
    source = row.state.encodings["x"]
    weight = query.constant_input(row.graph.plan.convolutions[0], 1)
    values = [real_weights(made.state.weights[name], source, 1) for name in names]
    alone, mean = np.square(values[0] - weight).sum(), np.square(np.mean(values, 0) - weight).sum()
    assert mean < alone / 3


def test_an_input_that_the_device_makes_stays_where_it_is(row: Case):
    """Its integers are what they are; copies differ in weights and outputs."""
    (one,) = row.made(Repeats({"second": 2})).repeated
    assert one.shifts == []
    assert row.noise(row.made(Repeats({"second": 2}))) < row.noise()


# Channels


def mobile_first(mobile: Case) -> str:
    """Return the outputs of the first layer."""
    return str(mobile.graph.plan.convolutions[0].outputs[0].name)


def bought(mobile: Case, index: tuple[int, ...] = INDEX) -> Oversampled:
    return mobile.made(Repeats({}, {mobile_first(mobile): index}))


def test_the_model_computes_what_it_did(mobile: Case):
    """The float model computes the same, the int8 model with less noise."""
    made = bought(mobile)
    assert [one.index for one in made.duplicated] == [INDEX]
    assert mobile.noise(made) < 0.7 * mobile.noise()
    same_numbers(mobile.proto, made.graph.model)


def test_copies_lie_a_share_of_a_step_apart(mobile: Case):
    """The bias of what makes them says so, and the state, as it is no error."""
    made = bought(mobile)
    rows, rest = [LOUD, CHANNELS, CHANNELS + 1], [k for k in range(CHANNELS) if k != LOUD]
    moved = made.state.bias_offsets["first"]
    assert sorted(moved[rows]) == pytest.approx(0.2 * offsets(3), rel=1e-3)
    assert not moved[rest].any()
    for one in made.duplicated:
        for name in one.path.tensors:
            step = float(made.state.encodings[name].scales[0])
            lie = made.state.tensor_offsets[name]
            assert sorted(lie[rows]) == pytest.approx(step * offsets(3), rel=1e-3)
            assert not lie[rest].any()
    # Behind the depthwise layer the other way round: errors of two layers must not add up.
    (one,) = made.duplicated
    first, last = (
        made.state.tensor_offsets[name][rows] / made.state.encodings[name].scales[0]
        for name in (one.path.tensors[0], one.path.tensors[-1])
    )
    np.testing.assert_allclose(first, -last, rtol=1e-5)


def test_tensors_have_the_scales_of_their_channels(mobile: Case):
    """Copies as what they are copies of, and names as the graph has them."""
    made = bought(mobile)
    for conv in made.graph.plan.convolutions:
        for tensor in (conv.inputs[0], conv.outputs[0]):
            found = made.state.encodings[tensor.name]
            assert found.axis is None or len(found.scales) == query.shape(tensor)[1]


def test_weights_of_copied_rows_make_up_for_each_other(mobile: Case):
    """Their mean is nearer to the weights than one of them is."""
    made, weight = bought(mobile), query.constant_input(mobile.graph.plan.convolutions[0], 1)[LOUD]
    values = real_weights(made.state.weights["first"], mobile.state.encodings["x"], 1)
    alone, mean = values[LOUD], values[[LOUD, CHANNELS, CHANNELS + 1]].mean(axis=0)
    assert np.abs(mean - weight).max() < 0.7 * np.abs(alone - weight).max()


def test_rows_that_are_no_copies_stay(mobile: Case):
    """Other rows keep their integers and their bias."""
    weight, bias = (query.constant_input(mobile.graph.plan.convolutions[0], k) for k in (1, 2))
    nearest_to = nearest(weight, bias, mobile.state.encodings["x"], 1)
    own = mobile.state.weights.get("first", nearest_to)
    made, rest = bought(mobile).state.weights["first"], [k for k in range(CHANNELS) if k != LOUD]
    np.testing.assert_array_equal(made.weight[rest], own.weight[rest])
    np.testing.assert_array_equal(made.bias[rest], own.bias[rest])


def test_channels_that_the_host_makes(row: Case):
    """The host itself moves the copies."""
    name = row.graph.plan.convolutions[2].inputs[0].name
    made = row.made(Repeats({}, {name: (*range(8), 2, 5)}))
    (one,) = made.duplicated
    scales = row.state.encodings[name].scales.astype(np.float64)
    by = one.shift.values.reshape(-1)
    assert by[[2, 8]] == pytest.approx(np.asarray([-0.25, 0.25]) * scales[2])
    assert by[[5, 9]] == pytest.approx(np.asarray([-0.25, 0.25]) * scales[5])
    assert not by[[0, 1, 3, 4, 6, 7]].any()


def test_two_paths_that_meet_in_one_layer(row: Case):
    """The layer reads and makes more channels, and keeps the bias added by the first path."""
    other = row.graph.plan.convolutions[1].outputs[0].name
    index = (*range(8), 0)
    first = row.graph.plan.convolutions[0].outputs[0].name
    made = row.made(Repeats({}, {first: index, other: index}))
    assert len(made.duplicated) == 2
    moved = made.state.bias_offsets["second"]
    alone = row.made(Repeats({}, {first: index})).state.bias_offsets["second"]
    assert moved.shape == (9,)
    np.testing.assert_allclose(moved[1:8], alone[1:], atol=1e-6)
    step = float(row.state.encodings[other].scales[0])
    assert moved[8] - moved[0] == pytest.approx(step / 2, rel=1e-3)


def test_copies_of_a_layer_lie_between_copies_of_channels(row: Case):
    """A channel doubled half a step apart moves the layer by half as much."""
    name = row.graph.plan.convolutions[2].inputs[0].name
    made = row.made(Repeats({"third": 2}, {name: (*range(8), 2)}))
    (one,) = made.repeated
    scales = row.state.encodings[name].scales[[*range(8), 2]].astype(np.float64)
    share = np.asarray([1, 1, 0.5, 1, 1, 1, 1, 1, 0.5])
    for shift, by in zip(one.shifts, offsets(2), strict=True):
        np.testing.assert_allclose(shift.values.reshape(-1), by * share * scales, rtol=1e-6)


def test_layers_that_have_copies_of_channels_run_several_times(mobile: Case):
    """Both are less than either."""
    name = mobile_first(mobile)
    both = mobile.made(Repeats({"mixed": 2, "first": 2}, {name: INDEX}))
    assert [one.node for one in both.repeated] == ["first", "mixed"]
    assert [one.index for one in both.duplicated] == [INDEX]
    assert mobile.noise(both) < mobile.noise(bought(mobile))
