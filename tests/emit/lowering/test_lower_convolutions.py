"""Tests of lower-convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.model import save
from support.asserts import run, run_pass
from support.builders import Net
from support.plans import converted, largest_step
from support.plans import quantize as prepare  # noqa: F401  (what the contracts call)

NAME = "lower-convolutions"


def image() -> Net:
    return Net(x=(1, 4, 9, 9))


def omitted() -> onnx.ModelProto:
    """A convolution whose bias is there, but empty."""
    net = image()
    return net.op("Conv", "x", net.random(4, 4, 3, 3), "", name="conv0").model()


FIRES = [
    lambda: image().conv(weight=(4, 4, 3, 3)).model(),
    lambda: image().conv(weight=(4, 1, 3, 3), group=4, bias=False, pads=[1] * 4).model(),
    lambda: (
        image().conv(weight=(4, 4, 3, 3), dilations=[2, 2], pads=[0, 1, 2, 3]).op("Relu").model()
    ),
    omitted,
]
SILENT = [
    lambda: image().op("Relu").model(),
    lambda: Net(x=(1, 4, 9, 9), w=(4, 4, 3, 3)).op("Conv", "x", "w").model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_same_numbers_as_with_conversions(build):
    """Exact integers, so at most one step apart where a product is rounded twice."""
    model, ctx, explicit = converted(build(), NAME)
    assert run_pass(NAME, model, ctx) == 0
    assert not model.nodes("Conv")
    lowered = save.to_proto(model)
    onnx.checker.check_model(lowered)
    step = largest_step(ctx)
    for old, new in zip(run(explicit), run(lowered), strict=True):
        assert np.abs(old - new).max() <= step * 1.001


def test_the_node_keeps_name_attributes_and_origin():
    """A report points at the nodes the user knows: the Relu is in the saturation."""
    model, _, _ = converted(FIRES[2](), NAME)
    (node,) = model.nodes("QLinearConv")
    assert (node.name, model.origin(node)) == ("conv0", ("conv0", "relu1"))
    assert (node.attrs["dilations"], node.attrs["pads"]) == ([2, 2], [0, 1, 2, 3])
    assert [t.values.dtype for t in (node.inputs[3], node.inputs[8])] == [np.int8, np.int32]


def test_a_bias_that_is_omitted():
    """The integer operator has none either, unless a zero point needs one."""
    model, _, _ = converted(omitted(), NAME, plain={"x": 0.02, "t0": 0.1})
    (node,) = model.nodes("QLinearConv")
    assert len(node.inputs) == 8
    model, ctx, _ = converted(omitted(), NAME)
    (node,) = model.nodes("QLinearConv")
    assert ctx.emission.encodings["t0"].zeros.any()
    assert len(node.inputs) == 9
    assert node.inputs[8].values.any()
