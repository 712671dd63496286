"""How far one model is from another: whole and layer by layer."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from npuconv.arithmetic.encoding import quantize
from npuconv.errors import ModelError
from npuconv.evaluate.comparison import Comparison, Stats, summed_up
from npuconv.evaluate.matching import LayerPair, exact, numbers
from npuconv.executor import RuntimeRefusedError
from npuconv.samples import Samples
from support.builders import Net, images

X = (1, 4, 4, 4)


def samples(count=3):
    return Samples(lambda k: {"x": images(*X, seed=k)}, tuple(range(count)), "test")


def scaled(factor, outputs=("y",)):
    """y = x * factor; z = -x, always right."""
    net = Net(x=X)
    net.op("Mul", "x", net.constant(float(factor)), to="y").op("Neg", "x", to="z")
    return net.output(*outputs).model()


def compared(before, after, scales=None, some=None, *, held_out=False):
    found = Comparison(before, after, scales).measure(some or samples())
    return summed_up(found, held_out)


def per_layer(before, after, layers, x):
    both = Comparison(before, after, {}, layers)
    return both.layer_rows(both.measure([{"x": x}], layer_samples=1))


def test_equal_models():
    """No error: no number of decibels, and a cosine of 1."""
    found = compared(scaled(2), scaled(2), held_out=True)
    assert (found.sqnr_db, found.cosine) == (None, 1.0)
    assert (found.samples, found.held_out) == (3, True)


def test_layers_with_the_channels_last():
    """They are compared as what they are, not as they lie."""
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
    """A tenth too much is an error of 20 dB, in the same direction."""
    found = compared(scaled(1), scaled(1.1))
    assert found.sqnr_db == pytest.approx(20, abs=0.01)
    assert found.cosine == pytest.approx(1)
    assert not found.held_out


def test_outputs_are_told_apart():
    """Each output has its own numbers; the whole is that of all values together."""
    both = ("y", "z")
    found = compared(scaled(1, both), scaled(1.1, both))
    right = {o.name: o.sqnr_db for o in found.outputs}
    assert right["y"] == pytest.approx(20, abs=0.01)
    assert right["z"] is None
    assert found.sqnr_db == pytest.approx(20 + 10 * np.log10(2), abs=0.01)
    assert found.top1_agreement is None


def test_top_1():
    """How often the largest score is the same one, where there is one output of scores."""

    def scores(swap):
        net = Net(x=(1, 3))
        order = [1, 0, 2] if swap else [0, 1, 2]
        return net.op("Gather", "x", net.constant(np.asarray(order, np.int64)), axis=1).model()

    rows = np.asarray([[3, 1, 2], [1, 2, 3], [1, 3, 2], [2, 1, 3]], np.float32)
    some = Samples(lambda k: {"x": rows[k : k + 1]}, (0, 1, 2, 3), "test")
    assert compared(scores(False), scores(True), some=some).top1_agreement == 0.5
    assert compared(scores(False), scores(False), some=some).top1_agreement == 1.0


def test_int8_inputs_and_outputs():
    """Where a model takes and gives int8, values are converted by their scales."""
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
    """y = x, of which q is the int8 form."""
    net = Net(x=X)
    scale, zero = net.constant(float(step)), net.constant(np.asarray(0, np.int8))
    net.op("QuantizeLinear", "x", scale, zero, to="q").op("DequantizeLinear", "q", scale, zero)
    return net.op("Neg", "t1", to="y").model()


def test_per_layer():
    """The int8 tensor is compared with the float one it stands for."""
    step = 1 / 127
    layers = [LayerPair("first", "t0", "q", step, note="a note")]
    layers.append(LayerPair("gone", "t0", "not_there", step))
    float_model = Net(x=X).op("Identity", "x").op("Neg", "t0", to="y").model()
    x = images(*X)
    (row,) = per_layer(float_model, rounded(step), layers, x)
    assert (row.name, row.note) == ("first", "a note")
    exact = x.astype(np.float64)
    error = quantize(x, step) * step - exact
    wanted = 10 * np.log10(np.sum(exact**2) / np.sum(error**2))
    assert row.sqnr_db == pytest.approx(wanted, abs=0.05)
    assert row.cosine == pytest.approx(1, abs=1e-3)


def test_no_layers():
    """Nothing to look at, nothing run."""
    assert per_layer(scaled(1), scaled(1), [], images(*X)) == ()


def test_scales_and_zero_points_of_channels():
    """They run along the channels, also where those lie last in the converted model."""
    scales, zeros = np.asarray([0.01, 0.02, 0.1, 1.0]), np.asarray([0, 10, -128, 5])
    stored = np.random.default_rng(0).integers(-128, 128, X).astype(np.int8)
    wanted = (stored - zeros.reshape(-1, 1, 1)) * scales.reshape(-1, 1, 1)
    first, last = (LayerPair("a", "y", "q", scales, zeros, channels_last=x) for x in (False, True))
    np.testing.assert_allclose(numbers(first, stored), wanted, rtol=1e-6)
    np.testing.assert_allclose(numbers(last, np.moveaxis(stored, 1, -1)), wanted, rtol=1e-6)
    same = LayerPair("a", "y", "q", scales[:1], zeros[1])
    np.testing.assert_allclose(numbers(same, stored), (stored.astype(int) - 10) * 0.01, rtol=1e-6)


def test_channels_that_are_stored_several_times():
    """Their mean is compared with the one of the float model; what is not stored with nothing."""
    values = np.arange(2 * 4 * 3, dtype=np.int8).reshape(2, 4, 3)
    layer = LayerPair("a", "y", "q", 2.0, channels=(0, 2, 2, 0))
    wanted = np.stack([values[:, [0, 3]].mean(axis=1), values[:, [1, 2]].mean(axis=1)], axis=1)
    np.testing.assert_allclose(numbers(layer, values), 2 * wanted)
    np.testing.assert_array_equal(exact(layer, values), values[:, [0, 2]])
    whole = LayerPair("a", "y", "q", 2.0)
    np.testing.assert_array_equal(exact(whole, values), values)


def test_other_channels_than_are_noted():
    """The metadata are of another model."""
    more = LayerPair("a", "y", "q", 2.0, channels=(0, 4))
    deeper = LayerPair("a", "y", "q", 2.0, axis=9, channels=(0,))
    given = (numbers, np.zeros((1, 4, 2), np.int8)), (exact, np.zeros((1, 4, 2)))
    for layer, (use, values) in itertools.product((more, deeper), given):
        with pytest.raises(ModelError, match="layer 'a'") as caught:
            use(layer, values)
        assert "convert the model again" in caught.value.hint


def test_the_largest_error():
    """Of all samples; none before the first."""
    stats = Stats()
    assert stats.max_abs_error is None
    stats.update([1.0, 2.0], [1.5, 2.0])
    stats.update([[3.0]], [2.75])
    assert stats.max_abs_error == 0.5


def boxes(factor: float, *, stored: bool) -> onnx.ModelProto:
    """Three tensors in one output; the last may be an integer by the same name."""
    net = Net(x=X).op("Neg", "x", to="a")
    net.op("Mul", "x", net.constant(np.float32(factor)), to="b")
    if not stored:
        return net.op("Abs", "x", to="c").op("Concat", "a", "b", "c", axis=1, to="y").model()
    scale, zero = net.constant(np.float32(0.01)), net.constant(np.int8(0))
    net.op("Abs", "x", to="real").op("QuantizeLinear", "real", scale, zero, to="c")
    net.op("DequantizeLinear", "c", scale, zero, to="back")
    return net.op("Concat", "a", "b", "back", axis=1, to="y").model()


def test_parts_of_an_output():
    """Those that are real numbers in both models; integers by the same name stand for others."""
    (output,) = compared(boxes(1.0, stored=False), boxes(1.1, stored=True)).outputs
    assert [part.name for part in output.parts] == ["a", "b"]
    assert output.parts[0].sqnr_db is None
    assert output.parts[1].sqnr_db == pytest.approx(20, abs=0.01)


def test_a_difference_from_what_is_no_number():
    """It is without end, and does not vanish among others; what both have alike is none."""
    stats = Stats()
    stats.update([1.0, np.inf, np.nan], [1.5, np.inf, 2.0])
    assert stats.max_abs_error == np.inf
    stats = Stats()
    stats.update([1.0, np.inf], [1.25, np.inf])
    assert stats.max_abs_error == 0.25


def test_an_output_that_only_int8_makes_infinite():
    """It has no number, and is known by name."""
    net = Net(x=X)
    net.op("Mul", "x", net.constant(0.0)).op("Log", to="y").op("Abs", "x", to="z")
    broken = net.output("y", "z").model()
    net = Net(x=X).op("Abs", "x", to="y").op("Abs", "x", to="z").output("y", "z")
    measured = Comparison(net.model(), broken, {}).measure(samples())
    assert measured.broken == ("y",)
    found = summed_up(measured, held_out=False)
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
    """The metadata of a model may have been changed by anybody."""
    net = Net(x=X).op("Relu", "x", to="y").op("Neg", "x", to="z")
    scale, zero = net.constant(0.1), net.constant(np.asarray(0, np.int8))
    net.op("QuantizeLinear", "y", scale, zero, to="q")
    model = net.output("y").model()
    with pytest.raises(ModelError, match=r"layer 'odd'.*convert the model again"):
        Comparison(model, model, {}, [layer]).measure(samples(), layer_samples=2)


def test_an_output_that_is_a_layer():
    """Its integers are compared as those of a layer, and what they stand for as an output."""
    before = Net(x=X).op("Relu", "x", to="y").model()
    after = Net(x=X).op("Relu", "x", to="y").model()
    for info in (*after.graph.input, *after.graph.output):
        info.type.tensor_type.elem_type = 3  # int8
    both = Comparison(
        before, after, {"x": 1 / 127, "y": 1 / 127}, [LayerPair("a", "y", "y", 1 / 127)]
    )
    found = both.measure(samples(), layer_samples=3)
    assert found.layers[0].sqnr_db == pytest.approx(found.total.sqnr_db)
    assert 35 < found.total.sqnr_db < 60
