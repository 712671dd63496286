"""Tests of rewrite-nhwc-as-nchw."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.model import save
from npuconv.model.nhwc import ACTIVATIONS, DOMAIN
from npuconv.partition.costs import cost
from support.asserts import context, read, run_pass
from support.builders import Net
from support.nhwc_reference import run_reference

NAME = "rewrite-nhwc-as-nchw"
X = (1, 9, 8, 3)


def nhwc(net: Net, op: str = "Conv", weight: tuple[int, ...] = (4, 3, 3, 3), **attrs) -> Net:
    """Append an operator of the domain."""
    names = [net.last]
    if op.startswith("Conv"):
        maps = weight[1] * attrs.get("group", 1) if op == "ConvTranspose" else weight[0]
        names += [net.random(*weight), net.random(maps)]
    return net.op(op, *names, domain=DOMAIN, **attrs)


def one(op: str = "Conv", weight: tuple[int, ...] = (4, 3, 3, 3), *, x=X, opset=17, **attrs):
    """A model of one operator of the domain."""
    return nhwc(Net(x=x, opset=opset), op, weight, **attrs).model()


def fused(name: str, *params: float, opset: int = 17):
    values = {"activation_params": list(params)} if params else {}
    return one(activation=name, opset=opset, **values)


def chain() -> Net:
    """Shapes behind the first one are not known before it is rewritten."""
    net = nhwc(Net(x=X), auto_pad="SAME_UPPER", strides=[2, 2], activation="Relu")
    net = nhwc(net.op("Neg"), "MaxPool", kernel_shape=[2, 2])
    return nhwc(net.op("Abs"), weight=(2, 4, 2, 2), dilations=[2, 1])


def pooled() -> onnx.ModelProto:
    """The rank of the last result is not known before the second run."""
    return nhwc(chain(), "GlobalAveragePool").model()


def shared() -> onnx.ModelProto:
    """Two readers of one tensor, an output in the middle."""
    net = nhwc(Net(x=X), weight=(3, 3, 3, 3), pads=[1] * 4)
    net.output().op("Relu", "t0").op("Add", "t0", net.last)
    return nhwc(net).output().model()


POOL = {"kernel_shape": [3, 2], "strides": [2, 1]}
FIRES = [
    one,
    lambda: one(auto_pad="SAME_LOWER", strides=[2, 3]),
    lambda: one(pads=[1, 0, 2, 1], dilations=[2, 1], kernel_shape=[3, 3]),
    lambda: one(weight=(6, 1, 3, 3), group=3),
    lambda: one(weight=(4, 3, 3), x=(2, 11, 3)),
    lambda: one(weight=(4, 3, 1, 2, 3), x=(1, 3, 4, 5, 3)),
    lambda: one(x=("N", "H", "W", 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    lambda: one("ConvTranspose", (3, 2, 3, 2), strides=[2, 2], output_padding=[1, 0]),
    lambda: one("MaxPool", **POOL, ceil_mode=1),
    lambda: one("MaxPool", **POOL, activation="Relu"),
    lambda: one("AveragePool", **POOL, pads=[1, 1, 1, 0], count_include_pad=1),
    lambda: one("GlobalAveragePool"),
    lambda: one("GlobalMaxPool", x=(2, 7, 3)),
    lambda: fused("Relu"),
    lambda: fused("Sigmoid"),
    lambda: fused("Tanh"),
    lambda: fused("LeakyRelu", 0.2),
    lambda: fused("Clip", -0.1, 0.3),
    lambda: fused("Clip", -0.1, 0.3, opset=9),
    lambda: fused("HardSigmoid", 0.3, 0.6),
    lambda: chain().model(),
    shared,
]
SILENT = [
    lambda: fused("Gelu"),
    lambda: fused("Clip", 1.0),
    lambda: one("BatchNormalization"),
    lambda: one("MaxPool", **POOL, outputs=2),
    lambda: one(strides=[1]),
    lambda: Net(x=(1, 3, 8, 8)).conv().op("Relu").model(),
]
# onnxruntime runs none of these as they come: they are compared below, with the evaluator.
NOT_RUNNABLE = FIRES


def both(proto: onnx.ModelProto, result: onnx.ModelProto) -> list[tuple[np.ndarray, np.ndarray]]:
    """Outputs of the source on the evaluator, and of the result on onnxruntime."""
    rng = np.random.default_rng(1)
    dims = [d.dim_value or 6 for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": rng.standard_normal(dims).astype(np.float32)}
    old = run_reference(proto, feeds)
    new = executor.Session(result, optimize=False).run(feeds)
    return [(old[name], new[name]) for name in old]


@pytest.mark.parametrize("build", [*FIRES, pooled])
def test_the_same_numbers(build):
    """Numbers stay the same, and all operators and imports are standard."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) >= 1
    run_pass(NAME, model, ctx)  # a global pool behind others: its rank is known now
    assert {r.reference for r in ctx.rewrites} == {"not measured"}
    result = save.to_proto(model)
    onnx.checker.check_model(result)
    assert [o.domain for o in result.opset_import] == [""]
    assert not any(node.domain for node in result.graph.node)
    for old, new in both(proto, result):
        assert old.shape == new.shape
        assert np.abs(old - new).max() < 1e-4


def test_what_it_becomes():
    """The convolution keeps its name; all stand for the node of the user."""
    model, ctx = read(fused("Clip", -0.1, 0.3)), context()
    run_pass(NAME, model, ctx)
    assert [n.op for n in model.nodes()] == ["Transpose", "Conv", "Clip", "Transpose"]
    first, conv, clip, last = model.nodes()
    assert (first.attrs["perm"], last.attrs["perm"]) == ([0, 3, 1, 2], [0, 2, 3, 1])
    assert conv.name == "conv0"
    assert {model.origin(n) for n in model.nodes()} == {("conv0",)}
    assert "activation" not in conv.attrs
    assert [float(t.values) for t in clip.inputs[1:]] == [np.float32(-0.1), np.float32(0.3)]
    (record,) = ctx.rewrites
    assert record.before == f"{DOMAIN}.Conv"
    assert record.after == "Transpose, Conv, Clip, Transpose"
    assert record.note == f"onnxruntime runs {DOMAIN} on no CPU"
    assert cost(model.nodes()).macs == 7 * 6 * 4 * 27


def test_bounds_before_opset_11():
    """Clip had them as attributes."""
    model = read(fused("Clip", -0.1, 0.3, opset=9))
    run_pass(NAME, model)
    (clip,) = model.nodes("Clip")
    assert (len(clip.inputs), sorted(clip.attrs)) == (1, ["max", "min"])


def test_shapes_are_known_afterwards():
    """ONNX's inference did not know them before."""
    model = read(pooled())
    assert model.nodes()[3].inputs[0].shape is None
    run_pass(NAME, model)
    shapes = [n.outputs[0].shape for n in model.nodes() if n.op == "Conv"]
    assert shapes == [[1, 4, 5, 4], [1, 2, 2, 2]]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (0, f"its activation is 'Gelu', none of {', '.join(ACTIVATIONS)}"),
        (1, "activation Clip takes 2 activation_params, not 1"),
        (2, "no more than Conv, ConvTranspose, MaxPool"),
        (3, "the layout of its second output is not defined"),
        (4, "strides has 1 values, but 2 spatial axes need 2"),
    ],
)
def test_a_near_miss_says_why(number, reason):
    """The node is named."""
    model, ctx = read(SILENT[number]()), context()
    assert run_pass(NAME, model, ctx) == 0
    (refusal,) = ctx.refusals
    assert refusal.node == model.nodes()[0].name
    assert refusal.reason.startswith(reason)


def test_one_that_is_left_keeps_the_domain():
    """The others are rewritten."""
    net = nhwc(nhwc(Net(x=X)), weight=(2, 4, 3, 3), activation="Gelu")
    model = read(net.model())
    assert run_pass(NAME, model) == 1
    assert [o.domain for o in save.to_proto(model).opset_import] == ["", DOMAIN]


def test_weights_that_are_computed():
    """Computed weights have the standard order already."""
    net = Net(x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w", domain=DOMAIN)
    model = read(net.model())
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ["Transpose", "Conv", "Transpose"]


def test_a_subgraph_is_left_alone():
    """The domain stays for it."""
    net = nhwc(Net(x=X), weight=(3, 3, 3, 3), to="y")
    then = nhwc(Net(prefix="a").op("Identity", "y"))
    model = read(net.branch(then, Net(prefix="b").op("Identity", "y")).model())
    assert run_pass(NAME, model) == 1
    assert DOMAIN in [o.domain for o in save.to_proto(model).opset_import]


def test_the_findings_are_rewritten():
    """A convolution of that domain is a finding, until it is a standard one."""
    report = npuconv.check(pooled())
    found = {(f.code, f.node): f for f in report.findings if f.code == "OPS004"}
    assert [node for _, node in found] == ["conv0", "conv4"]
    assert {f.status for f in found.values()} == {"rewritten"}
    assert {f.rewritten_by for f in found.values()} == {NAME}
    assert report.summary.exit_code == 0


def test_what_cannot_be_read_is_a_finding():
    """The finding has node and reason; a pool has one too, since no host runs it."""
    net = nhwc(nhwc(Net(x=X), activation="Gelu"), "MaxPool", **POOL, outputs=2)
    report = npuconv.check(net.model())
    left = {(f.code, f.node): f.message for f in report.findings if f.status == "remaining"}
    assert "cannot be read: its activation is 'Gelu', none of" in left["OPS004", "conv0"]
    assert ("OPS002", "maxpool1") in left
    assert report.summary.exit_code == 1
    with pytest.raises(npuconv.UnsupportedModelError):
        npuconv.convert(net.model())


def test_a_whole_model():
    """The model converts, and the Transposes between its layers are gone."""
    result = npuconv.convert(pooled(), offload=False)
    ops = [n.op_type for n in result.model.graph.node]
    assert ops.count("QLinearConv") == 2
    assert [n.op for n in result.report.nodes if n.placement == "device"].count("Conv") == 2
    assert DOMAIN not in [o.domain for o in result.model.opset_import]
