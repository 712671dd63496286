"""Comparison: the error of outputs, their parts, and layers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.arithmetic.encoding import quantize
from npuconv.data import Samples
from npuconv.errors import ModelError
from npuconv.evaluate.comparison import (
    MAX_PARTS,
    Comparison,
    Stats,
    class_axes,
    parts_of,
    summarize,
)
from npuconv.evaluate.matching import LayerPair, numbers
from npuconv.executor import RuntimeRefusedError
from npuconv.quantize.fake_quant import index_outputs
from support.builders import Net, images

X = (1, 4, 4, 4)


def samples(count=3):
    return Samples(lambda k: {"x": images(*X, seed=k)}, tuple(range(count)), "test")


def scaled(factor, outputs=("y",)):
    """Return a model with y = x * factor and z = -x."""
    net = Net(x=X)
    net.op("Mul", "x", net.constant(float(factor)), to="y").op("Neg", "x", to="z")
    return net.output(*outputs).model()


def compared(before, after, scales=None, some=None, *, held_out=False):
    found = Comparison(before, after, scales).measure(some or samples())
    return summarize(found, held_out)


def per_layer(before, after, layers, x):
    both = Comparison(before, after, {}, layers, layer_samples=1)
    return both.measure([{"x": x}]).layers


def test_equal_models():
    """Equal models have no SQNR and a cosine of 1."""
    found = compared(scaled(2), scaled(2), held_out=True)
    assert (found.sqnr_db, found.cosine) == (None, 1.0)
    assert (found.samples, found.held_out) == (3, True)


def test_integers_count_from_their_zero_point():
    """An offset of all integers is no signal: the same steps have the same error."""

    def stepped(zero: int, factor: float) -> onnx.ModelProto:
        net = Net(x=X)
        last = net.op("Mul", "x", net.constant(factor)).last
        scale, point = net.constant(np.float32(0.03)), net.constant(np.int8(zero))
        return net.op("QuantizeLinear", last, scale, point, to="y").model()

    found = [compared(stepped(zero, 1.0), stepped(zero, 0.9)).sqnr_db for zero in (0, 20)]
    assert found[0] == found[1]
    assert 15 < found[0] < 25


def test_layers_with_the_channels_last():
    """Layers with the channels last are compared in the layout of the float model."""
    net = Net(x=X).op("Mul", "x", "x", to="y").op("Transpose", perm=[0, 2, 3, 1], to="l")
    scale, zero = net.constant(np.float32(0.01)), net.constant(np.int8(0))
    model = net.op("QuantizeLinear", "l", scale, zero, to="q").output("y").model()
    right, wrong = (
        LayerPair("a", "y", "q", 0.01, channels_last=True),
        LayerPair("b", "y", "q", 0.01),
    )
    found = per_layer(model, model, [right, wrong], images(*X))
    assert found[0].sqnr_db > 35
    assert found[1].sqnr_db < 10


def test_a_known_error():
    """Values 10 % too large have an SQNR of 20 dB and a cosine of 1."""
    found = compared(scaled(1), scaled(1.1))
    assert found.sqnr_db == pytest.approx(20, abs=0.01)
    assert found.cosine == pytest.approx(1)
    assert not found.held_out


def test_outputs_are_distinguished():
    """Each output has its own error; the total is over all values together."""
    both = ("y", "z")
    found = compared(scaled(1, both), scaled(1.1, both))
    right = {o.name: o.sqnr_db for o in found.outputs}
    assert right["y"] == pytest.approx(20, abs=0.01)
    assert right["z"] is None
    assert found.sqnr_db == pytest.approx(20 + 10 * np.log10(2), abs=0.01)
    assert found.top1_agreement is None


def test_top_1():
    """Top-1 agreement is reported where there is one output of scores."""

    def scores(swap):
        net = Net(x=(1, 3))
        order = [1, 0, 2] if swap else [0, 1, 2]
        return net.op("Gather", "x", net.constant(np.asarray(order, np.int64)), axis=1).model()

    rows = np.asarray([[3, 1, 2], [1, 2, 3], [1, 3, 2], [2, 1, 3]], np.float32)
    some = Samples(lambda k: {"x": rows[k : k + 1]}, (0, 1, 2, 3), "test")
    assert compared(scores(False), scores(True), some=some).top1_agreement == 0.5
    assert compared(scores(False), scores(False), some=some).top1_agreement == 1.0


def test_int8_inputs_and_outputs():
    """int8 inputs and outputs are converted by their scales."""
    float_model = Net(x=X).op("Relu", "x", to="y").model()
    int8_model = Net(x=X).op("Relu", "x", to="y").model()
    for info in (*int8_model.graph.input, *int8_model.graph.output):
        info.type.tensor_type.elem_type = 3  # int8
    found = compared(float_model, int8_model, {"x": 1 / 127, "y": 1 / 127})
    assert 35 < found.sqnr_db < 60


def test_a_model_that_does_not_run():
    """The runtime's refusal is passed on."""
    broken = Net(x=X).op("Thing", domain="com.example", to="y").model()
    with pytest.raises(RuntimeRefusedError):
        compared(scaled(1), broken)


def rounded(step):
    """Return a model with y = x, and q, its int8 form."""
    net = Net(x=X)
    scale, zero = net.constant(float(step)), net.constant(np.asarray(0, np.int8))
    net.op("QuantizeLinear", "x", scale, zero, to="q").op("DequantizeLinear", "q", scale, zero)
    return net.op("Neg", "t1", to="y").model()


def test_per_layer():
    """The int8 tensor is compared with its float tensor."""
    step = 1 / 127
    layers = [LayerPair("first", "t0", "q", step)]
    layers.append(LayerPair("gone", "t0", "not_there", step))
    float_model = Net(x=X).op("Identity", "x").op("Neg", "t0", to="y").model()
    x = images(*X)
    (row,) = per_layer(float_model, rounded(step), layers, x)
    exact = x.astype(np.float64)
    error = quantize(x, step) * step - exact
    wanted = 10 * np.log10(np.sum(exact**2) / np.sum(error**2))
    assert row.sqnr_db == pytest.approx(wanted, abs=0.05)
    assert row.cosine == pytest.approx(1, abs=1e-3)


def test_no_layers():
    """No layers, no inner tensor computed."""
    assert per_layer(scaled(1), scaled(1), [], images(*X)) == []


def test_scales_and_zero_points_of_channels():
    """Scales run along the channels, also where these are last in the converted model."""
    scales, zeros = np.asarray([0.01, 0.02, 0.1, 1.0]), np.asarray([0, 10, -128, 5])
    stored = np.random.default_rng(0).integers(-128, 128, X).astype(np.int8)
    wanted = (stored - zeros.reshape(-1, 1, 1)) * scales.reshape(-1, 1, 1)
    first, last = (LayerPair("a", "y", "q", scales, zeros, channels_last=x) for x in (False, True))
    np.testing.assert_allclose(numbers(first, stored), wanted, rtol=1e-6)
    np.testing.assert_allclose(numbers(last, np.moveaxis(stored, 1, -1)), wanted, rtol=1e-6)
    same = LayerPair("a", "y", "q", scales[:1], zeros[1])
    np.testing.assert_allclose(numbers(same, stored), (stored.astype(int) - 10) * 0.01, rtol=1e-6)


def test_other_channels_than_are_noted():
    """Metadata of another model is an error."""
    more = LayerPair("a", "y", "q", np.full(5, 2.0))
    deeper = LayerPair("a", "y", "q", np.full(4, 2.0), axis=9)
    for layer in (more, deeper):
        with pytest.raises(ModelError, match="layer 'a'") as caught:
            numbers(layer, np.zeros((1, 4, 2), np.int8))
        assert "convert the model again" in caught.value.hint


def test_the_largest_error():
    """The largest error is over all samples; None before the first."""
    stats = Stats()
    assert stats.max_abs_error is None
    stats.observe([1.0, 2.0], [1.5, 2.0])
    stats.observe([[3.0]], [2.75])
    assert stats.max_abs_error == 0.5


def boxes(factor: float, *, stored: bool) -> onnx.ModelProto:
    """Return a model with three tensors in one output; the last may be an integer of that name."""
    net = Net(x=X).op("Neg", "x", to="a")
    net.op("Mul", "x", net.constant(np.float32(factor)), to="b")
    if not stored:
        return net.op("Abs", "x", to="c").op("Concat", "a", "b", "c", axis=1, to="y").model()
    scale, zero = net.constant(np.float32(0.01)), net.constant(np.int8(0))
    net.op("Abs", "x", to="real").op("QuantizeLinear", "real", scale, zero, to="c")
    net.op("DequantizeLinear", "c", scale, zero, to="back")
    return net.op("Concat", "a", "b", "back", axis=1, to="y").model()


def test_parts_of_an_output():
    """Only parts that are real numbers in both models are compared."""
    (output,) = compared(boxes(1.0, stored=False), boxes(1.1, stored=True)).outputs
    assert [part.name for part in output.parts] == ["a", "b"]
    assert output.parts[0].sqnr_db is None
    assert output.parts[1].sqnr_db == pytest.approx(20, abs=0.01)


def test_a_difference_from_what_is_no_number():
    """A NaN in one model is an infinite error; equal infinities are none."""
    stats = Stats()
    stats.observe([1.0, np.inf, np.nan], [1.5, np.inf, 2.0])
    assert stats.max_abs_error == np.inf
    stats = Stats()
    stats.observe([1.0, np.inf], [1.25, np.inf])
    assert stats.max_abs_error == 0.25


def test_the_worst_output_beside_an_exact_one():
    """A large output that is exact hides what another has lost."""
    before, after = scaled(1.0, ("y", "z")), scaled(1.1, ("y", "z"))
    found = compared(before, after)
    assert [one.sqnr_db for one in found.outputs] == [20.0, None]
    assert found.worst_output == "y"
    assert compared(before, before).worst_output is None
    assert compared(scaled(1.0), scaled(1.1)).worst_output is None  # there is no other


def test_an_output_that_only_int8_makes_infinite():
    """Such an output has no SQNR, and its name is in ``broken``."""
    net = Net(x=X)
    net.op("Mul", "x", net.constant(0.0)).op("Log", to="y").op("Abs", "x", to="z")
    broken = net.output("y", "z").model()
    net = Net(x=X).op("Abs", "x", to="y").op("Abs", "x", to="z").output("y", "z")
    measured = Comparison(net.model(), broken, {}).measure(samples())
    assert measured.broken == ("y",)
    found = summarize(measured, held_out=False)
    assert (found.sqnr_db, found.outputs[0].cosine) == (None, None)


@pytest.mark.parametrize(
    "layer",
    [
        LayerPair("odd", "y", "q", [0.1, 0.2, 0.3]),
        LayerPair("odd", "y", "q", 0.1, [1, 2, 3]),
        LayerPair("odd", "y", "q", [0.1] * 4, [1, 2]),
        LayerPair("odd", "y", "q", [0.1, 0.2], axis=7),
    ],
)
def test_scales_that_do_not_fit(layer):
    """Edited metadata is an error."""
    net = Net(x=X).op("Relu", "x", to="y").op("Neg", "x", to="z")
    scale, zero = net.constant(0.1), net.constant(np.asarray(0, np.int8))
    net.op("QuantizeLinear", "y", scale, zero, to="q")
    model = net.output("y").model()
    with pytest.raises(ModelError, match=r"layer 'odd'.*convert the model again"):
        Comparison(model, model, {}, [layer], layer_samples=2).measure(samples())


def test_an_output_that_is_a_layer():
    """An output that is a layer too is compared as both."""
    before = Net(x=X).op("Relu", "x", to="y").model()
    after = Net(x=X).op("Relu", "x", to="y").model()
    for info in (*after.graph.input, *after.graph.output):
        info.type.tensor_type.elem_type = 3  # int8
    scales, layers = {"x": 1 / 127, "y": 1 / 127}, [LayerPair("a", "y", "y", 1 / 127)]
    both = Comparison(before, after, scales, layers, layer_samples=3)
    found = both.measure(samples())
    assert found.layers[0].sqnr_db == pytest.approx(found.total.sqnr_db)
    assert 35 < found.total.sqnr_db < 60


@pytest.mark.parametrize(("given", "axis"), [({}, -1), ({"axis": 1}, 1)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_tells(op: str, given: dict[str, int], axis: int):
    """A Softmax tells the axis, also behind an Identity."""
    model = Net(x=(1, 3, 4, 4)).op(op, **given).op("Identity", to="y").model()
    assert class_axes(model) == {"y": axis}


def test_nothing_else_does():
    """Other outputs have none, nor has a sum with a Softmax in it."""
    net = Net(x=(1, 3, 4, 4)).op("Sigmoid", to="boxes").op("Softmax", "x", to="s")
    model = net.op("Mul", "s", "boxes", to="y").output("boxes", "y").model()
    assert class_axes(model) == {}


@pytest.mark.parametrize(
    ("shape", "given", "found"),
    [
        ((1, 10), {}, {"y": 1}),
        ((1, 40, 10), {"axis": 2}, {"y": 2}),
        ((1, 40, 10), {"axis": -1}, {"y": -1}),
        ((1, 40, 10), {}, {}),
    ],
)
def test_before_opset_13_only_the_last_axis_is_one(
    shape: tuple[int, ...], given: dict[str, int], found: dict[str, int]
):
    """Before opset 13 later axes are normalized together: only the last is one."""
    model = Net(opset=11, x=shape).op("Softmax", to="y", **given).model()
    assert class_axes(model) == found


def levels(count: int = 2):
    """Return boxes and scores of several levels, as detectors end."""
    net = Net(x=(1, 4, 4, 4))
    for k in range(count):
        net.op("Neg", "x", to=f"boxes{k}").op("Sigmoid", "x", to=f"scores{k}")
        net.op("Concat", f"boxes{k}", f"scores{k}", axis=1, to=f"level{k}")
        net.op("Reshape", f"level{k}", net.constant([1, 8, -1]), to=f"flat{k}")
    net.op("Concat", *(f"flat{k}" for k in range(count)), axis=2)
    return net.op("Transpose", perm=[0, 2, 1], to="y").model()


def test_through_all_that_only_moves_numbers():
    """Parts are found through operators that only move values, in the order of the output."""
    found = parts_of(levels(), levels())
    assert found == {"y": ("boxes0", "scores0", "boxes1", "scores1")}


def test_what_the_converted_model_does_not_have_is_left_out():
    """Names that the converted model lacks are left out."""
    other = levels()
    next(n for n in other.graph.node if "scores1" in n.output).output[0] = "renamed"
    assert parts_of(levels(), other) == {"y": ("boxes0", "scores0", "boxes1")}


def test_one_tensor_is_no_part():
    """One tensor is no part, nor is an input of the model."""
    whole = Net(x=(1, 4, 4, 4)).op("Neg", to="y").model()
    assert parts_of(whole, whole) == {}
    net = Net(x=(1, 4, 4, 4)).op("Neg", to="n").op("Concat", "n", "x", axis=1, to="y").model()
    assert parts_of(net, net) == {}


def test_very_many_parts_tell_nobody_anything():
    """Outputs of more than ``MAX_PARTS`` tensors have no parts."""
    assert parts_of(levels(MAX_PARTS), levels(MAX_PARTS)) == {}


def test_the_same_over_and_over():
    """Each tensor is visited once, however often it is joined to itself."""
    net = Net(x=(1, 1, 1, 1)).op("Neg", "x", to="a").op("Abs", "x", to="b")
    net.op("Concat", "a", "b", axis=1, to="c0")
    for k in range(60):
        net.op("Concat", f"c{k}", f"c{k}", axis=1, to=f"c{k + 1}")
    model = net.output("c60").model()
    assert parts_of(model, model) == {"c60": ("a", "b")}


def chooser(factor: float, *ops: str) -> onnx.ModelProto:
    """Return a model with y = x * factor, and what these operators choose of it."""
    net = Net(x=(1, 16)).op("Mul", "x", "f", to="y")
    net.constant(np.float32(factor), "f")
    for op in ops:
        if op == "TopK":
            net.op(op, "y", net.constant(np.asarray([3], np.int64)), outputs=2)
            net.output("y", net.nodes[-1].output[1])
        elif op == "Greater":
            net.op(op, "y", net.constant(0.25), to="mask").output("y", "mask")
        elif op == "classes":
            net.op("ArgMax", "y", axis=1)
            net.nodes.append(onnx.helper.make_node("Cast", [net.last], ["class"], to=1))
            net.output("y", "class")
        else:
            net.op(op, "y", axis=1, to="chosen").output("y", "chosen")
    return net.model()


ROWS = np.random.default_rng(5).uniform(0, 1, (6, 16)).astype(np.float32)
SOME = Samples(lambda k: {"x": ROWS[k : k + 1]}, tuple(range(6)), "test")


@pytest.mark.parametrize("op", ["ArgMax", "TopK", "Greater", "classes"])
def test_indices_are_compared_by_agreement(op: str) -> None:
    """Classes, places and truth values have no error that counts, also as floats."""
    found = compared(chooser(1.0, op), chooser(0.9, op), some=SOME)
    values, indices = found.outputs
    assert found.sqnr_db == values.sqnr_db == pytest.approx(20, abs=0.01)
    assert found.worst_output == "y"
    assert (values.holds_indices, indices.holds_indices) == (False, True)
    assert (indices.sqnr_db, indices.cosine, indices.top1_agreement) == (None, None, None)
    assert indices.agreement == 1.0 if op != "Greater" else 0.5 < indices.agreement < 1
    assert indices.positions == 6 * {"TopK": 3, "Greater": 16}.get(op, 1)


def test_pixels_and_quantized_integers_are_values() -> None:
    """Integers of 8 bits have a size, unless they are chosen."""
    net = Net(x=(1, 16)).op("Mul", "x", "f")
    net.constant(np.float32(255), "f")
    uint8 = onnx.TensorProto.UINT8
    net.nodes.append(onnx.helper.make_node("Cast", [net.last], ["pixels"], to=uint8))
    net.op("ArgMax", net.last)
    net.nodes.append(onnx.helper.make_node("Cast", [net.last], ["class"], to=uint8))
    assert index_outputs(net.output("pixels", "class").model()) == {"class"}


def test_a_model_of_indices_alone() -> None:
    """The SQNR is that before the choice; the interval and the worst sample are unknown."""

    def model(factor: float) -> onnx.ModelProto:
        net = Net(x=(1, 16)).op("Mul", "x", "f", to="y")
        net.constant(np.float32(factor), "f")
        return net.op("ArgMax", "y", axis=1, to="class").model()

    found = compared(model(1.0), model(0.9), some=SOME)
    assert (found.sqnr_db, found.cosine, found.interval_db, found.worst_sample) == (None,) * 4
    assert found.unsaturated_db == pytest.approx(20, abs=0.01)
    assert found.uncompared == found.samples == 6


def test_samples_of_another_size_are_counted() -> None:
    """Samples on which both models put out different numbers of values are left out, and named."""

    def model(threshold: float) -> onnx.ModelProto:
        net = Net(x=(1, 16)).op("Greater", "x", "t")
        net.constant(np.float32(threshold), "t")
        net.op("NonZero", net.last).op("Transpose", net.last, perm=[1, 0], to="places")
        return net.op("GatherND", "x", "places", to="values").output("places", "values").model()

    found = compared(model(0.5), model(0.55), some=SOME)
    same = [len(row[row > 0.5]) == len(row[row > 0.55]) for row in ROWS]
    left = same.count(False)
    assert 0 < left < len(ROWS)
    assert [one.uncompared for one in found.outputs] == [left, left]
    assert found.uncompared == left
    (note,) = [one for one in found.notes if "compared" in one]
    assert note.startswith(f"'places', 'values': compared on {len(ROWS) - left} of 6 samples")
