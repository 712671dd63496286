"""Tests of quantize-activations."""

from __future__ import annotations

import onnx

from asserts import context, read, run_pass
from builders import Net
from npuconv.model import save
from plans import converted
from plans import prepare as prepare

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


def pairs(net: Net, **options: object) -> list[str]:
    """Operators after the pass."""
    model, ctx = read(net.model()), context(**options)
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


def test_with_explicit_conversions_the_activation_comes_first():
    """Rounding after the Relu is the same, with one pair less."""
    ops = pairs(block(), format="qdq")
    assert ops[2:4] == ["Conv", "Relu"]


def test_readers_of_one_tensor_share_its_conversion():
    """Two convolutions read one rounded input."""
    model, ctx = read(twice().model()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    one, two = model.nodes("Conv")
    assert one.inputs[0] is two.inputs[0]
    assert len(model.nodes("QuantizeLinear")) == 3


def test_one_scale_for_a_group():
    """What carried operators join shares one scale constant; the zero point is 0."""
    model, _, _ = converted(block().model())
    scales = [n.inputs[1] for n in model.nodes("QuantizeLinear")]
    assert len({id(s) for s in scales}) == 3
    assert {int(n.inputs[2].values) for n in model.nodes("QuantizeLinear")} == {0}


def test_the_outputs_of_the_model_keep_their_names():
    """What was the convolution's result is now the rounded one."""
    proto = block().model()
    model, _, explicit = converted(proto)
    assert [o.name for o in explicit.graph.output] == [o.name for o in proto.graph.output]
    assert model.nodes()[-1].op == "DequantizeLinear"


def test_every_conversion_has_the_origin_of_its_node():
    """So that a finding on it is a finding on the user's node."""
    model, _, _ = converted(block().model())
    assert {o for n in model.nodes() for o in model.origin(n)} == {
        "conv0", "relu1", "maxpool2", "conv3"
    }  # fmt: skip


def test_without_ranges_nothing_happens():
    """Weights only needs none."""
    model, ctx = read(block().model()), context()
    prepare(model, ctx)
    ctx.ranges = {}
    assert run_pass(NAME, model, ctx) == 0
