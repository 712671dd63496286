"""Tests of quantize-weights."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.device import float_factors, shifts
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.emit.emission import Emission
from npuconv.model import save
from npuconv.model.core import Node
from npuconv.target.description import Requantize
from support.asserts import Passes, context, read, run, run_pass
from support.builders import Net
from support.plans import converted, quantize
from support.plans import prepare as prepare

NAME = "quantize-weights"


def block(bias: bool = True) -> Net:
    """Convolution, Relu, convolution."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4, bias=bias, name="first").op("Relu")
    return net.conv(weight=(4, 4, 3, 3), bias=bias)


FIRES = [lambda: block().model(), lambda: block(bias=False).model()]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
    lambda: Net(x=(1, 4, 8, 8)).conv(op="ConvTranspose").model(),
]


def test_types_and_ranges():
    """int8 within -127..127, int32 bias, one scale per output channel."""
    model, _, _ = converted(block().model())
    for conv in model.nodes("Conv"):
        weight, bias = (t.inputs[0] for t in conv.inputs[1:])
        values, scales, zeros = (t.values for t in weight.inputs)
        assert (values.dtype, scales.shape, weight.attrs["axis"]) == (np.int8, (4,), 0)
        assert values.min() >= -127
        assert (np.abs(values).reshape(4, -1).max(axis=1) == 127).all()
        assert not zeros.any()
        assert bias.inputs[0].values.dtype == np.int32


def test_a_compiler_that_changes_symmetric_scales():
    """Its weights have zero point -1 in the form qdq, and the same values."""
    weights = []
    for is_changed, zero in ((False, 0), (True, -1)):
        model, ctx = read(block().model()), context(format="qdq")
        ctx.target = ctx.target.model_copy(update={"rescales_symmetric": is_changed})
        quantize(model, ctx)
        constants = [c.inputs[1].inputs[0].inputs for c in model.nodes("Conv")]
        weights.append([(values.values - zero, scales.values) for values, scales, _ in constants])
        assert all((zeros.values == zero).all() for *_, zeros in constants)
    for before, after in zip(*weights, strict=True):
        assert all(map(np.array_equal, before, after))


def test_the_bias_scale_is_input_times_weight():
    """The product is one of float32, as in a runtime; the input's scale is the nominal one."""
    model, ctx, _ = converted(block().model())
    conv = model.nodes("Conv")[0]
    weight, bias = (t.inputs[0].inputs[1].values for t in conv.inputs[1:])
    assert np.array_equal(bias, ctx.emission.encodings["x"].nominal * weight)


def stored(conv: Node) -> tuple[np.ndarray, np.ndarray]:
    """Integers and scales of the weights."""
    values, scales, _ = (t.values for t in conv.inputs[1].inputs[0].inputs)
    return values, scales


def test_scales_of_channels_move_into_the_weights():
    """Input scales multiply the weights, output scales divide the weights' scales."""
    model, ctx, _ = converted(block().model())
    float_model = read(block().model())
    for conv, before in zip(model.nodes("Conv"), float_model.nodes("Conv"), strict=True):
        source, result = ctx.emission.layer_encodings[conv.name]
        assert len(set(source.scales.tolist())) > 1
        values, scales = stored(conv)
        gains = (result.nominal / result.scales).reshape(-1, 1, 1, 1)
        ratios = (source.scales / source.nominal).reshape(1, -1, 1, 1)
        folded = before.inputs[1].values * ratios
        made = values * scales.reshape(-1, 1, 1, 1) / gains
        step = np.abs(folded).reshape(4, -1).max(axis=1).reshape(-1, 1, 1, 1) / 127
        assert np.all(np.abs(made - folded) <= step / 2 * 1.001)


def test_weights_that_were_rounded_before():
    """GPTQ-rounded weights are taken as they are, and so is their bias."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    run_pass("quantize-activations", model, ctx)
    source, _ = ctx.emission.layer_encodings["first"]
    steps = np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    steps[:, 0, 0, 0] = 127
    scales, bias = np.full(4, 0.01, np.float32), np.float32([9.0, 0.0, -9.0, 1.0])
    ctx.emission.rounded["first"] = RoundedWeights(steps, scales, bias)
    run_pass(NAME, model, ctx)
    conv = model.nodes("Conv")[0]
    assert np.array_equal(stored(conv)[0], steps)
    _, result = ctx.emission.layer_encodings["first"]
    assert np.allclose(stored(conv)[1], 0.01 * result.nominal / result.scales)
    sums, sizes, _ = (t.values for t in conv.inputs[2].inputs[0].inputs)
    moved = (steps * source.zeros.reshape(1, -1, 1, 1)).reshape(4, -1).sum(axis=1)
    ends = bias + result.scales * result.zeros
    wanted = ends * (result.nominal / result.scales) - moved * sizes
    assert np.allclose(sums * sizes, wanted, atol=float(sizes.max()))


def test_one_scale_for_all_weights():
    """A target with one weight scale has the output's scales moved into the weights."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    weights = ctx.target.weights.model_copy(update={"granularity": "tensor"})
    ctx.target = ctx.target.model_copy(update={"weights": weights})
    for name in ("drop-saturated", "quantize-activations", NAME):
        run_pass(name, model, ctx)
    for conv in model.nodes("Conv"):
        assert stored(conv)[1].shape == (4,)
        assert len(set(stored(conv)[1].tolist())) == 1
    old, new = run(block().model())[0], run(save.to_proto(model))[0]
    assert np.abs(old - new).max() < 0.1 * np.abs(old).max()


def test_weights_only():
    """Bias and activations stay float if there are no encodings."""
    proto = block().model()
    model, ctx = read(proto), context(format="weights")
    prepare(model, ctx)
    ctx.emission = Emission(ctx.emission.plan)
    assert run_pass(NAME, model, ctx) == 0, "no note"
    conv, second = model.nodes("Conv")
    assert second.inputs[1].inputs[0].op == "DequantizeLinear"
    assert conv.inputs[1].inputs[0].op == "DequantizeLinear"
    assert not conv.inputs[2].inputs
    old, new = run(proto)[0], run(save.to_proto(model))[0]
    assert np.abs(old - new).max() < 0.05 * np.abs(old).max()


def test_a_raised_scale_is_noted():
    """A channel of tiny weights under a large bias would overflow int32."""
    net = Net(x=(1, 1, 4, 4))
    weight = net.constant(np.array([1.0, 1e-9]).reshape(2, 1, 1, 1))
    net.op("Conv", "x", weight, net.constant([0.0, 100.0]), name="conv")
    _, ctx, _ = converted(net.model())
    assert ctx.results["quantize-weights"] == {
        "conv": "weight scale of 1 channel raised: int32 would overflow"
    }


@pytest.mark.parametrize("build", FIRES)
def test_the_numbers_stay_near(build):
    """int8 costs a few percent of the largest output on random weights."""
    proto = build()
    _, _, explicit = converted(proto)
    old, new = run(proto)[0], run(explicit)[0]
    assert np.abs(old - new).max() < 0.1 * np.abs(old).max()


def shifting(ctx: Passes, **how: object) -> None:
    """The target multiplies by integers and shifts."""
    made = Requantize.model_validate({"kind": "shift", **how})
    activations = ctx.target.activations.model_copy(update={"requantize": made})
    ctx.target = ctx.target.model_copy(update={"activations": activations})


@pytest.mark.parametrize("bits", [8, 16])
def test_a_device_that_shifts(bits):
    """Factors are what its integers can say, and the bias has their scale."""
    model, ctx = read(block().model()), context()
    shifting(ctx, multiplier_bits=bits)
    quantize(model, ctx)
    for conv in model.nodes("Conv"):
        (source, result), scales = ctx.emission.layer_encodings[conv.name], stored(conv)[1]
        factors = float_factors(source.nominal, scales, result.nominal)
        found = shifts(factors, bits=bits)
        said = np.ldexp(found.multiplier.astype(np.float64), -found.shift)
        np.testing.assert_allclose(factors, said, rtol=2.0**-23)
        bias = conv.inputs[2].inputs[0].inputs[1].values
        assert np.array_equal(bias, source.nominal * scales)
    old, new = run(block().model())[0], run(save.to_proto(model))[0]
    assert np.abs(old - new).max() < 0.1 * np.abs(old).max()


def test_factors_out_of_reach():
    """A device that hardly shifts tells only large weights from 0; biases stay."""
    model, ctx = read(block().model()), context()
    shifting(ctx, multiplier_bits=2, max_shift=0)
    quantize(model, ctx)
    for conv in model.nodes("Conv"):
        (source, result), scales = ctx.emission.layer_encodings[conv.name], stored(conv)[1]
        assert float_factors(source.nominal, scales, result.nominal).min() >= 1 - 1e-6
