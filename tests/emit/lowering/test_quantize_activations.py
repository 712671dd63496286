"""Tests of quantize-activations."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.arithmetic.encoding import Encoding
from npuconv.emit.emission import Emission
from npuconv.model import query, save
from npuconv.model.core import Model
from support.asserts import context, read, run, run_pass
from support.builders import Net
from support.plans import converted, quantize
from support.plans import prepare as prepare
from support.target_files import NUMBERS, chip

NAME = "quantize-activations"


def image() -> Net:
    return Net(x=(1, 3, 8, 8))


def block() -> Net:
    """Convolution, Relu, pool, convolution."""
    net = image().conv(pads=[1] * 4).op("Relu").op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    return net.conv(weight=(4, 4, 3, 3))


def twice() -> Net:
    """Two convolutions of one input."""
    return image().conv("x", to="a").conv("x", to="b").op("Add", "a", "b")


FIRES = [lambda: block().model(), lambda: twice().model(), lambda: image().conv().model()]
SILENT = [lambda: image().op("Relu").model(), lambda: Net(x=(1, 4)).op("Softmax").model()]


def host_between() -> Net:
    """An operator of the host between convolutions; its input has channels of several scales."""
    return image().conv(to="a").op("Sin", "a").conv(weight=(4, 4, 3, 3), pads=[1] * 4)


def pairs(net: Net) -> list[str]:
    """Operators after the pass."""
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    assert run_pass(NAME, model, ctx) > 0
    assert run_pass(NAME, model, ctx) == 0
    onnx.checker.check_model(save.to_proto(model))
    short = {"QuantizeLinear": "Q", "DequantizeLinear": "D"}
    return [short.get(n.op, n.op) for n in model.nodes()]


def test_a_pair_on_every_int8_tensor():
    """Input and output of convolutions, and what carries int8 on."""
    assert pairs(block()) == ["Q", "D", "Conv", "Q", "D", "Relu", "Q", "D", "MaxPool",
                              "Q", "D", "Conv", "Q", "D"]  # fmt: skip


@pytest.mark.parametrize("zero_points", [[0], {"range": [-128, 127]}])
@pytest.mark.parametrize("build", [block, twice, host_between])
def test_explicit_conversions_have_one_encoding_per_tensor(build, zero_points):
    """Each DequantizeLinear of a tensor repeats the scalars of its QuantizeLinear."""
    model, ctx = read(build().model()), context(format="qdq")
    ctx.target = chip(also={"activations": {**NUMBERS, "zero_point": zero_points}})
    quantize(model, ctx)
    quantizers = {n.outputs[0].name: n for n in model.nodes("QuantizeLinear")}
    for dequantizer in model.nodes("DequantizeLinear"):
        if query.is_constant(dequantizer.inputs[0]):
            continue
        quantizer = quantizers[dequantizer.inputs[0].name]
        for place in (1, 2):
            scalars = [n.inputs[place].values for n in (quantizer, dequantizer)]
            assert [a.shape for a in scalars] == [(), ()]
            assert scalars[0] == scalars[1]
    (old,), (new,) = run(build().model()), run(save.to_proto(model))
    assert np.abs(old - new).max() < 0.05 * np.abs(old).max()


def test_readers_of_one_tensor_share_its_conversion():
    """Two convolutions read one rounded input."""
    model, ctx = read(twice().model()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    one, two = model.nodes("Conv")
    assert one.inputs[0] is two.inputs[0]
    assert len(model.nodes("QuantizeLinear")) == 3


def conversions(model: Model, op: str) -> dict[str, tuple]:
    """Scale, zero point and axis of every conversion, by what it reads or makes in float."""
    nodes = model.nodes(op)
    ends = [n.inputs[0] if op == "QuantizeLinear" else n.outputs[0] for n in nodes]
    return {
        end.name: (n.inputs[1].values, n.inputs[2].values, n.attrs.get("axis"))
        for end, n in zip(ends, nodes, strict=True)
    }


def test_one_nominal_scale_for_a_group():
    """A group of passthrough operators has one nominal scale and zero point 0."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    made = [n for n in model.nodes("QuantizeLinear") if n.inputs[0].name != "x"]
    assert [n.inputs[0].name for n in made] == ["t0/float", "t1/float", "t2/float", "t3/float"]
    assert len({id(n.inputs[1]) for n in made}) == 2
    assert {(n.inputs[1].values.shape, int(n.inputs[2].values)) for n in made} == {((), 0)}
    wanted = [ctx.emission.encodings[name].nominal for name in ("t0", "t1", "t2", "t3")]
    assert [n.inputs[1].values for n in made] == wanted


def test_the_host_has_the_scales_of_the_channels():
    """Scales and zero points stand along axis 1 at inputs and outputs of the host."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    for op, name in (("QuantizeLinear", "x"), ("DequantizeLinear", "t3")):
        scales, zeros, axis = conversions(model, op)[name]
        encoding = ctx.emission.encodings[name]
        assert axis == encoding.axis == 1
        assert np.array_equal(scales, encoding.scales)
        assert len(set(scales.tolist())) > 1
        assert np.array_equal(zeros, encoding.zeros)
        assert zeros.dtype == np.int8
    assert not conversions(model, "QuantizeLinear")["x"][1].any()  # the convolution is padded
    assert conversions(model, "DequantizeLinear")["t3"][1].any()


def test_the_device_reads_nominal_numbers_and_the_host_its_own():
    """The host multiplies the channels of the tensor that the device reads, and adds."""
    net = image().conv(to="a").conv("a", (4, 4, 3, 3), pads=[1] * 4, to="b").op("Sigmoid", "a")
    model, ctx = read(net.output("b").output(net.last).model()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    name, encoding = ctx.results["quantize-activations"]["a"], ctx.emission.encodings["a"]
    (way,) = (n for n in model.nodes("DequantizeLinear") if n.inputs[0].name == name)
    assert way.inputs[1].values == encoding.nominal
    assert {reader.op for reader in way.outputs[0].outputs} == {"Conv", "Mul"}
    (factor,) = (n.inputs[1].values for n in model.nodes("Mul"))
    assert factor.shape == (1, 4, 1, 1)  # with all axes: RKNN-Toolkit2 crashes on some others
    assert np.allclose(factor.ravel(), encoding.scales / encoding.nominal)


def test_what_has_one_scale_is_dequantized_once():
    """One scale looks the same to device and host."""
    net = image().conv(to="a").conv("a", (4, 4, 3, 3), to="b").op("Sigmoid", "a")
    model, ctx = read(net.output("b").output(net.last).model()), context()
    prepare(model, ctx, {"a": 0.1})
    run_pass(NAME, model, ctx)
    ways = [
        n
        for n in model.nodes("DequantizeLinear")
        if n.inputs[0].name == ctx.results["quantize-activations"]["a"]
    ]
    assert len(ways) == 1


def test_one_scale_that_is_not_nominal():
    """A tensor whose only scale is not its group's largest is written without an axis."""
    model, ctx = read(image().conv(to="a").model()), context()
    prepare(model, ctx)
    ctx.emission.encodings["a"] = Encoding(np.float32([0.1]), np.int32([7]), np.float32(0.3))
    run_pass(NAME, model, ctx)
    scale, zero, axis = conversions(model, "DequantizeLinear")["a"]
    assert (scale, zero, axis) == (np.float32(0.1), 7, None)


def test_the_outputs_of_the_model_keep_their_names():
    """The name of the convolution's result goes to the rounded tensor."""
    proto = block().model()
    model, _, explicit = converted(proto)
    assert [o.name for o in explicit.graph.output] == [o.name for o in proto.graph.output]
    assert model.nodes()[-1].op == "DequantizeLinear"


def test_every_conversion_has_the_origin_of_its_node():
    """A finding on a conversion is a finding on the user's node."""
    model, _, _ = converted(block().model())
    assert {o for n in model.nodes() for o in model.origin(n)} == {
        "conv0", "relu1", "maxpool2", "conv3"
    }  # fmt: skip


def test_without_encodings_nothing_happens():
    """Weights only needs none."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    ctx.emission = Emission(ctx.emission.plan)
    assert run_pass(NAME, model, ctx) == 0
