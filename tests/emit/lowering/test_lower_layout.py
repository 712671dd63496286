"""Tests of lower-layout."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.config import Options
from npuconv.model import query, save
from npuconv.model.nhwc import holds_channels_last
from support.asserts import run, run_pass
from support.builders import Net
from support.plans import converted
from support.plans import quantize as prepare  # noqa: F401  (what the contracts call)

NAME = "lower-layout"
LOWER = ("lower-convolutions", "lower-passthrough", "lower-boundaries")
# They fire with this option only.
OPTIONS = {"layout": "nhwc"}


def image() -> Net:
    """A convolution on an image."""
    return Net(x=(1, 3, 9, 8)).conv(pads=[1] * 4)


def clipped() -> Net:
    net = image()
    return net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(0.5)))


def joined() -> Net:
    """Two branches of one scale, and a pad."""
    net = Net(x=(1, 3, 9, 8)).conv("x", to="a").conv("x", to="b")
    net.op("Concat", "a", "b", axis=1).pad([0, 0, 1, 2, 0, 0, 0, 1])
    return net.conv(weight=(2, 8, 1, 1))


def channels_last_outside() -> Net:
    """The model itself has its channels last."""
    net = Net(x=(1, 9, 8, 3)).op("Transpose", perm=[0, 3, 1, 2]).conv()
    return net.op("Relu").op("Transpose", perm=[0, 2, 3, 1])


def hosted() -> Net:
    """An addition on the host between two convolutions with the channels last."""
    net = Net(x=(1, 4, 9, 8)).conv("x", (4, 4, 1, 1), to="a").op("Sigmoid", "a")
    return net.op("Mul", "a", net.last).conv(weight=(4, 4, 3, 3))


POOL = {"kernel_shape": [3, 2], "strides": [2, 2]}
PADDED = {"pads": [1] * 4}  # stored zeros beside it: a Relu before it has work to do
FIRES = [
    lambda: image().model(),
    lambda: image().op("Relu").op("MaxPool", **POOL).conv(weight=(4, 4, 3, 3), **PADDED).model(),
    lambda: image().op("MaxPool", **POOL, ceil_mode=1, pads=[1, 0, 0, 0]).model(),
    lambda: clipped().conv(weight=(4, 4, 3, 3), dilations=[2, 1], strides=[1, 2]).model(),
    lambda: image().conv(weight=(4, 1, 3, 3), group=4, pads=[0, 1, 2, 1]).model(),
    lambda: joined().model(),
    lambda: channels_last_outside().model(),
    lambda: hosted().model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 9, 8)).op("Relu").model(),
    lambda: Net(x=(1, 4, 9, 9), w=(4, 4, 3, 3)).op("Conv", "x", "w").model(),
]


def ops(model) -> list[str]:
    return [n.op for n in model.nodes()]


@pytest.mark.parametrize("io", ["float", "int8"])
@pytest.mark.parametrize("build", FIRES)
def test_the_same_integers(build, io):
    """Exactly, and no standard convolution is left."""
    model, ctx, _ = converted(build(), *LOWER, layout="nhwc", io=io)
    before = save.to_proto(model)
    assert run_pass(NAME, model, ctx) >= 1
    assert run_pass(NAME, model, ctx) == 0
    assert not model.nodes("QLinearConv", "Conv")
    after = save.to_proto(model)
    onnx.checker.check_model(after)
    assert [(o.domain, o.version) for o in after.opset_import] == [("", 17), ("com.microsoft", 1)]
    if io == "float":
        for old, new in zip(run(before), run(after), strict=True):
            assert np.array_equal(old, new)
    else:
        assert same_integers(before, after)


def same_integers(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    """The integers of models with int8 tensors of their own stay the same."""
    from npuconv.executor import Session

    rng = np.random.default_rng(0)
    feeds = {}
    for info in before.graph.input:
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        int8 = info.type.tensor_type.elem_type == onnx.TensorProto.INT8
        real = rng.standard_normal(dims).astype(np.float32)
        feeds[info.name] = rng.integers(-128, 128, dims).astype(np.int8) if int8 else real
    old, new = Session(before).run(feeds), Session(after).run(feeds)
    return all(np.array_equal(old[name], new[name]) for name in old)


def test_the_default_is_nchw():
    """The pass does nothing unless the option asks for it."""
    model, ctx, _ = converted(FIRES[1](), *LOWER)
    assert run_pass(NAME, model, ctx) == 0
    assert len(model.nodes("QLinearConv")) == 2


def test_weights_keep_their_order():
    """Attributes, name and origin too."""
    model, _, _ = converted(FIRES[3](), *LOWER, NAME, layout="nhwc")
    second = model.nodes("QLinearConv", domain="com.microsoft")[1]
    assert second.inputs[3].values.shape == (4, 4, 3, 3)
    assert (second.attrs["channels_last"], second.attrs["dilations"]) == (1, [2, 1])
    assert (second.name, model.origin(second)) == ("conv2", ("conv2",))
    assert query.shape(second.outputs[0]) == (1, 5, 3, 4)


def test_transposes_are_left_at_the_ends_only():
    """Between two convolutions there are none, past what is carried in between."""
    model, _, _ = converted(FIRES[1](), *LOWER, NAME, layout="nhwc")
    assert ops(model) == [
        "QuantizeLinear", "Transpose", "QLinearConv", "Relu", "NhwcMaxPool", "QLinearConv",
        "Transpose", "DequantizeLinear",
    ]  # fmt: skip


def test_axes_follow():
    """Concat and Pad have the channels last as well."""
    model, _, _ = converted(joined().model(), *LOWER, NAME, layout="nhwc")
    assert model.nodes("Concat")[0].attrs["axis"] == 3
    assert model.nodes("Pad")[0].inputs[1].values.tolist() == [0, 1, 2, 0, 0, 0, 1, 0]
    assert len(model.nodes("Transpose")) == 2


def test_they_meet_those_of_the_model():
    """Past the conversions: an NHWC model has none at all; scales lie along its last axis."""
    model, _, _ = converted(channels_last_outside().model(), *LOWER, NAME, layout="nhwc")
    assert ops(model) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]
    first, last = model.nodes("QuantizeLinear", "DequantizeLinear")
    assert [(n.inputs[1].values.shape, n.attrs["axis"]) for n in (first, last)] == [
        ((3,), 3),
        ((4,), 3),
    ]


def test_what_the_host_does_in_between():
    """Elementwise in float: past it, too."""
    model, _, _ = converted(hosted().model(), *LOWER, NAME, layout="nhwc")
    assert len(model.nodes("Transpose")) == 2


def test_names_go_with_the_layers():
    """Layers are compared by name, with the channels last."""
    model, ctx, _ = converted(FIRES[3](), *LOWER, NAME, layout="nhwc")
    made = {t.name: t for n in model.nodes() for t in n.outputs}
    for tensor in ("t1", "t2"):  # the Clip, t0, is in the saturation
        assert holds_channels_last(made[ctx.results["quantize-activations"][tensor]])
    (back,) = [n for n in model.nodes("Transpose") if n.attrs["perm"] == [0, 3, 1, 2]]
    assert not holds_channels_last(back.outputs[0])


def test_an_output_keeps_name_and_layout():
    """An int8 output of the model is as the user knows it."""
    model, ctx, _ = converted(FIRES[0](), *LOWER, NAME, layout="nhwc", io="int8")
    (out,) = model.graph.outputs
    assert (out.name, query.shape(out)) == ("t0", (1, 4, 9, 8))
    assert ops(model) == ["Transpose", "QLinearConv", "Transpose"]
    assert not holds_channels_last(out)
    del ctx


def test_a_shared_input_is_turned_once():
    """Two convolutions that read the same image."""
    model, _, _ = converted(joined().model(), *LOWER, NAME, layout="nhwc")
    first, second, _ = model.nodes("QLinearConv", domain="com.microsoft")
    assert first.inputs[0] is second.inputs[0]


def test_the_option_names_what_it_writes():
    """Every operator of another domain, so that a compiler's owner knows what to expect."""
    model, _, _ = converted(FIRES[1](), *LOWER, NAME, layout="nhwc")
    written = {node.op for node in model.nodes() if node.domain == "com.microsoft"}
    assert written == {"QLinearConv", "NhwcMaxPool"}
    said = Options.model_fields["layout"].metadata["description"]
    assert all(op in said for op in (*written, "com.microsoft"))
