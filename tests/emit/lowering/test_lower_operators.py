"""Tests of lower-operators."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from npuconv.config import Options
from npuconv.model import save
from npuconv.model.core import Model
from npuconv.target import Target
from support.asserts import Passes, read, run_pass
from support.builders import Net
from support.plans import QUANTIZE, prepare, random_feeds
from support.target_files import NUMBERS, chip

NAME = "lower-operators"
OPS = (
    "Conv", "Add", "Mul", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool", "Concat",
    "Softmax", "MatMul", "Tanh",
)  # fmt: skip
EVERY = chip(
    "",
    also={
        "operators": {op: {"requantizes": True} if op == "Concat" else {} for op in OPS},
        "activations": {**NUMBERS, "zero_point": {"range": [-128, 127]}},
    },
)


def net() -> Net:
    return Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), to="a")


def ending(built: Net) -> onnx.ModelProto:
    return built.conv("", (4, 4, 1, 1)).model()


def pair() -> Net:
    return net().conv("x", (4, 4, 1, 1), to="b")


CASES = {
    "QLinearAdd": lambda: ending(pair().op("Add", "a", "b")),
    "QLinearMul": lambda: ending(pair().op("Mul", "a", "b")),
    "QLinearSigmoid": lambda: ending(net().op("Sigmoid")),
    "QLinearLeakyRelu": lambda: ending(net().op("LeakyRelu", alpha=0.2)),
    "QLinearAveragePool": lambda: ending(
        net().op("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    ),
    "QLinearGlobalAveragePool": lambda: ending(net().op("GlobalAveragePool")),
    "QLinearConcat": lambda: pair().op("Concat", "a", "b", axis=1).conv("", (4, 8, 1, 1)).model(),
    "QLinearSoftmax": lambda: ending(net().op("Softmax", axis=1)),
    "QLinearMatMul": lambda: ending(pair().op("MatMul", "a", "b")),
}
FIRES = [(build, EVERY) for build in CASES.values()]
SILENT = [CASES["QLinearAdd"], (lambda: ending(net().op("Tanh")), EVERY)]


def emitted(
    proto: onnx.ModelProto, target: Target = EVERY, **options: object
) -> tuple[Model, Passes]:
    """The model with conversions, ready for the pass."""
    model, ctx = read(proto), Passes(target, Options(**options))
    prepare(model, ctx)
    for name in QUANTIZE:
        run_pass(name, model, ctx)
    return model, ctx


def integers(model: Model) -> dict[str, np.ndarray]:
    """Return the int8 tensors between the nodes, computed without onnxruntime's own fusions."""
    proto = save.to_proto(model)
    onnx.checker.check_model(proto)
    names = [n.output[0] for n in proto.graph.node if n.output[0].endswith("/int8")]
    for name in names:
        proto.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return dict(zip(names, session.run(names, random_feeds(model)[0]), strict=True))


@pytest.mark.parametrize("op", CASES)
def test_at_most_one_step_from_the_form_with_conversions(op):
    model, ctx = emitted(CASES[op]())
    before = integers(model)
    assert run_pass(NAME, model, ctx) == 1
    assert run_pass(NAME, model, ctx) == 0
    (lowered,) = (node for node in model.nodes() if node.op == op)
    after, made = integers(model), lowered.outputs[0].name
    apart = np.abs(before[made].astype(int) - after[made].astype(int))
    assert apart.size > 0
    assert int(apart.max()) <= 1


@pytest.mark.parametrize("op", CASES)
def test_standard_operators_only(op):
    """MatMul has an integer form in the standard domain; the others stay as they are."""
    model, ctx = emitted(CASES[op](), standard_ops=True)
    assert run_pass(NAME, model, ctx) == int(op == "QLinearMatMul")
    assert {node.domain or "" for node in model.nodes()} == {""}


def unlike(op: str) -> onnx.ModelProto:
    """The operator on layers whose channels differ by a factor of 1,000."""
    net, rng = Net(x=(1, 4, 8, 8)), np.random.default_rng(1)
    ratios = np.geomspace(1, 1000, 4).reshape(4, 1, 1, 1)
    for name in ("a", "b") if op == "Add" else "a":
        weight = ratios * rng.normal(size=(4, 4, 1, 1))
        net.op("Conv", "x", net.constant(weight.astype(np.float32)), to=name)
    net.op(op, "a", "b", to="c") if op == "Add" else net.op(op, "a", to="c")
    return net.conv("c", (4, 4, 1, 1), to="y").output("y", "c").model()


@pytest.mark.parametrize("op", ["Add", "GlobalAveragePool"])
def test_channels_of_unlike_scales(op):
    """Tensors of an operator have one scale, however unlike the ranges of their channels are."""
    model, ctx = emitted(unlike(op))
    assert ctx.emission.encodings["a"].axis is ctx.emission.encodings["c"].axis is None
    before = integers(model)
    assert run_pass(NAME, model, ctx) == 1
    after = integers(model)
    assert all(np.abs(before[n].astype(int) - after[n].astype(int)).max() <= 1 for n in after)


def test_what_has_no_kernel_stays_between_conversions():
    model, ctx = emitted(ending(net().op("Tanh")))
    assert run_pass(NAME, model, ctx) == 0
    assert len(model.nodes("Tanh")) == 1


def test_tflite_has_none_of_them():
    model, ctx = emitted(CASES["QLinearAdd"](), format="tflite")
    assert run_pass(NAME, model, ctx) == 0
