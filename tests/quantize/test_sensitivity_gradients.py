"""Gradients as nodes of the graph, against small changes of the inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.ops.operator import OPERATORS
from quantize.gradient_graphs import (
    IMAGE,
    ROWS,
    Build,
    cast,
    conv,
    dense,
    differentiated,
    layer_norm,
    norm,
    operator,
    pair,
    pool,
    resize,
    run,
    unconv,
    values,
)
from support.builders import Net

STEP = 1e-3  # of a change; values are further apart than two of them


CASES: dict[str, tuple[Build, tuple[int, ...]] | tuple[Build, tuple[int, ...], tuple[int, ...]]] = {
    "Conv": (conv(3, 4, 3, 3), IMAGE),
    "Conv, one by one": (conv(3, 4, 1, 1), IMAGE),
    "Conv, strides that leave a rest": (conv(3, 4, 3, 2, strides=[2, 3]), IMAGE),
    "Conv, dilations": (conv(3, 4, 2, 3, dilations=[3, 2]), IMAGE),
    "Conv, uneven pads": (conv(3, 4, 3, 3, pads=[0, 1, 2, 0]), IMAGE),
    "Conv, all of them": (
        conv(3, 4, 3, 3, pads=[2, 1, 0, 2], strides=[2, 2], dilations=[2, 1]), IMAGE),
    "Conv, groups": (conv(6, 2, 3, 3, group=2, pads=[1] * 4), IMAGE),
    "Conv, depthwise": (conv(4, 1, 3, 3, group=4, pads=[1, 0, 0, 1]), IMAGE),
    "Conv, depthwise, dilations": (
        conv(4, 1, 3, 3, group=4, pads=[2] * 4, dilations=[2] * 2), IMAGE),
    "Conv, depthwise, strides": (conv(4, 1, 3, 3, group=4, pads=[1] * 4, strides=[2, 2]), IMAGE),
    "Conv, depthwise, wide pads": (conv(4, 1, 1, 1, group=4, pads=[1, 0, 2, 1]), IMAGE),
    "Conv, depthwise, one window": (conv(4, 1, *IMAGE[2:], group=4), IMAGE),
    "Conv, two rows a channel": (conv(8, 1, 3, 3, group=4), IMAGE),
    "Conv, one axis": (conv(3, 4, 3, pads=[1, 0], strides=[2]), (2, 4, 9)),
    "Conv, three axes": (conv(3, 4, 2, 2, 2, pads=[1, 0, 0, 0, 1, 0]), (1, 4, 4, 3, 4)),
    "ConvTranspose": (unconv(4, 3, 3, 3), IMAGE),
    "ConvTranspose, strides": (unconv(4, 3, 2, 3, strides=[2, 3], pads=[0, 1, 1, 0]), IMAGE),
    "ConvTranspose, a rest": (
        unconv(4, 3, 3, 3, strides=[2, 2], pads=[1] * 4, output_padding=[1, 0]), IMAGE),
    "ConvTranspose, groups, dilations": (unconv(4, 2, 3, 3, group=2, dilations=[2, 1]), IMAGE),
    "Relu": (operator("Relu"), IMAGE),
    "Clip": (operator("Clip", np.float32(-1), np.float32(1.2)), IMAGE),
    "Clip, no upper bound": (operator("Clip", np.float32(-1)), IMAGE),
    "Clip, no lower bound": (
        lambda net: net.op("Clip", "x", "", net.constant(np.float32(1))), IMAGE),
    "Max": (pair("Max"), IMAGE, (4, 1, 1)),
    "Min": (pair("Min"), IMAGE, IMAGE),
    "LeakyRelu": (operator("LeakyRelu", alpha=0.3), IMAGE),
    "LeakyRelu, as it is": (operator("LeakyRelu"), IMAGE),
    "PRelu": (operator("PRelu", np.linspace(-0.5, 0.5, 4).reshape(4, 1, 1)), IMAGE),
    "Sigmoid": (operator("Sigmoid"), IMAGE),
    "Tanh": (operator("Tanh"), IMAGE),
    "Exp": (operator("Exp"), IMAGE),
    "Sqrt": (lambda net: net.op("Mul", "x", "x").op("Sqrt"), IMAGE),
    "HardSigmoid": (operator("HardSigmoid", alpha=0.4, beta=0.4), IMAGE),
    "HardSigmoid, as it is": (operator("HardSigmoid"), IMAGE),
    "HardSwish": (lambda net: net.op("Mul", "x", net.constant(3.0)).op("HardSwish"), IMAGE),
    "Abs": (operator("Abs"), IMAGE),
    "Erf": (operator("Erf"), IMAGE),
    "Neg": (operator("Neg"), IMAGE),
    "Add": (pair("Add"), IMAGE, IMAGE),
    "Add, one for each channel": (pair("Add"), IMAGE, (4, 1, 1)),
    "Add, one for all": (pair("Add", turned=True), IMAGE, ()),
    "Sub": (pair("Sub"), IMAGE, (1, 4, 1, 6)),
    "Sub, turned": (pair("Sub", turned=True), IMAGE, (2, 1, 6, 1)),
    "Sum": (lambda net: net.op("Sum", "x", "z", "x"), IMAGE, (6,)),
    "Mul": (pair("Mul"), IMAGE, (2, 4, 1, 1)),
    "Mul, squared": (lambda net: net.op("Mul", "x", "x"), IMAGE),
    "Div": (pair("Div"), IMAGE, (4, 1, 1)),
    "Div, turned": (pair("Div", turned=True), IMAGE, IMAGE),
    "Pow": (operator("Pow", 3.0), IMAGE),
    "Pow, one for each channel": (operator("Pow", np.float32([[[1]], [[2]], [[3]], [[4]]])), IMAGE),
    "Softmax": (operator("Softmax"), IMAGE),
    "Softmax, channels": (operator("Softmax", axis=1), IMAGE),
    "LayerNormalization": (layer_norm(6), IMAGE),
    "LayerNormalization, two axes": (layer_norm(6, 6), IMAGE),
    "MatMul": (pair("MatMul"), ROWS, (4, 5)),
    "MatMul, many by one": (pair("MatMul"), (2, 1, 3, 4), (4, 5)),
    "MatMul, many by many": (pair("MatMul"), (2, 1, 3, 4), (3, 4, 2)),
    "Gemm": (dense(), ROWS),
    "Gemm, turned": (
        lambda net: net.op("Gemm", "x", net.random(5, 4), transB=1, alpha=0.5), ROWS),
    "BatchNormalization": (norm("BatchNormalization"), IMAGE),
    "InstanceNormalization": (norm("InstanceNormalization"), IMAGE),
    "GlobalAveragePool": (operator("GlobalAveragePool"), IMAGE),
    "ReduceMean": (operator("ReduceMean", axes=[1, -1], keepdims=0), IMAGE),
    "ReduceMean, of all": (operator("ReduceMean"), IMAGE),
    "ReduceSum": (operator("ReduceSum", np.asarray([2, -1]), keepdims=1), IMAGE),
    "AveragePool": (pool("AveragePool", 2, 3, strides=[2, 3]), IMAGE),
    "AveragePool, windows that overlap": (pool("AveragePool", 3, 3, strides=[1, 2]), IMAGE),
    "AveragePool, pads that count": (
        pool("AveragePool", 3, 3, pads=[1, 0, 1, 1], strides=[2, 1], count_include_pad=1), IMAGE),
    "MaxPool": (pool("MaxPool", 2, 2, strides=[2, 2]), IMAGE),
    "MaxPool, windows that overlap": (pool("MaxPool", 3, 3), IMAGE),
    "MaxPool, pads": (pool("MaxPool", 3, 3, pads=[1] * 4, strides=[2, 2]), IMAGE),
    "MaxPool, uneven": (pool("MaxPool", 3, 2, pads=[0, 1, 1, 0], strides=[1, 2]), IMAGE),
    "MaxPool, ceil_mode": (pool("MaxPool", 3, 3, strides=[2, 2], ceil_mode=1), IMAGE),
    "MaxPool, a rest": (pool("MaxPool", 2, 2, strides=[2, 2], ceil_mode=1), (1, 4, 7, 5)),
    "MaxPool, pads around whole windows": (
        pool("MaxPool", 3, 3, strides=[3, 3], pads=[1] * 4), (1, 4, 7, 7)),
    "MaxPool, dilations": (pool("MaxPool", 2, 2, dilations=[2, 2]), IMAGE),
    "MaxPool, one axis": (pool("MaxPool", 3, strides=[2]), (2, 4, 9)),
    "Reshape": (operator("Reshape", [4, 2, 36]), IMAGE),
    "Flatten": (operator("Flatten"), IMAGE),
    "Squeeze": (operator("Squeeze", [1]), (2, 1, 5)),
    "Unsqueeze": (operator("Unsqueeze", [0, 2]), ROWS),
    "Identity": (operator("Identity"), ROWS),
    "Dropout": (operator("Dropout"), ROWS),
    "Cast": (cast, ROWS),
    "Transpose": (operator("Transpose", perm=[2, 0, 3, 1]), (2, 3, 4, 5)),
    "Transpose, as it is": (operator("Transpose"), (2, 3, 4)),
    "Concat": (pair("Concat", axis=1), IMAGE, (2, 3, 6, 6)),
    "Concat, from behind": (lambda net: net.op("Concat", "x", "x", "z", axis=-1), ROWS, (3, 2)),
    "Split": (
        lambda net: net.op("Split", "x", net.constant(np.asarray([1, 3])), axis=1, outputs=2,
                           to="s").op("Mul", "s", "s_1"), IMAGE),
    "Split, one part unread": (
        lambda net: net.op("Split", "x", net.constant(np.asarray([1, 3])), axis=-3, outputs=2,
                           to="s").op("Neg", "s_1"), IMAGE),
    "Slice": (operator("Slice", [1, 2], [9, -1], [1, 3]), IMAGE),
    "Slice, from behind": (operator("Slice", [-3], [-1], [-2], [1]), IMAGE),
    "Pad": (operator("Pad", [0, 0, 1, 2, 0, 0, 0, 1]), IMAGE),
    "Pad, with a number": (operator("Pad", [0, 1, 0, 0, 0, 1, 0, 0], np.float32(3)), IMAGE),
    "Gather": (operator("Gather", [3, 0, 2], axis=1), IMAGE),
    "Gather, from behind": (operator("Gather", [-1, 1], axis=-1), IMAGE),
    "Gather, one twice": (operator("Gather", [0, 1, 2, 3, 1, 1], axis=1), IMAGE),
    "Resize": (resize(1, 1, 2, 3, mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric"), IMAGE),
    "DepthToSpace": (operator("DepthToSpace", blocksize=2), (1, 8, 3, 2)),
    "DepthToSpace, CRD": (operator("DepthToSpace", blocksize=2, mode="CRD"), (1, 8, 3, 2)),
}  # fmt: skip


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Each input's gradient foretells what a small change of it does to the outputs."""
    ends = [o.name for o in model.graph.output]
    made, names, seed_of = differentiated(model, *feeds)
    onnx.checker.check_model(made)
    assert set(names) == set(feeds)
    assert set(seed_of) == set(ends)
    rng, session = np.random.default_rng(5), executor.Session(model, threads=1)
    exact = session.run(feeds)
    seeds = {end: rng.uniform(-1, 1, exact[end].shape).astype(np.float32) for end in ends}
    found = run(made, {**feeds, **{seed_of[end]: seed for end, seed in seeds.items()}})
    for name, array in feeds.items():
        gradient = found[names[name]]
        assert gradient.shape == array.shape
        predicted, seen = [], []
        for _ in range(6):
            change = rng.uniform(-1, 1, array.shape).astype(np.float32)
            moved = [np.asarray(array + sign * STEP * change) for sign in (1, -1)]
            sides = [session.run({**feeds, name: each}) for each in moved]
            more, less = ({e: v.astype(np.float64) for e, v in side.items()} for side in sides)
            seen.append(sum(np.sum(seeds[e] * (more[e] - less[e])) for e in ends) / (2 * STEP))
            predicted.append(np.sum(gradient.astype(np.float64) * change))
        size = np.abs(seen).max()
        assert size > 0
        np.testing.assert_allclose(predicted, seen, atol=0.01 * size, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_an_adjoint(name: str):
    """Every operator with every kind of attributes."""
    build, *shapes = CASES[name]
    inputs = dict(zip("xz", shapes, strict=False))
    model = build(Net(**inputs)).output().model()
    check(model, {key: values(shape, k) for k, (key, shape) in enumerate(inputs.items())})


def test_every_adjoint_is_tested():
    """Cases name their operator in the first word; others have a test module of their own."""
    cases = {name.split(",")[0] for name in CASES}
    others = {operator.name for operator in OPERATORS if operator.adjoint} - cases
    folder = Path(__file__).parent.parent / "ops"
    assert [op for op in others if not (folder / f"test_{op.lower()}.py").is_file()] == []


@pytest.mark.parametrize("newer", [13, 18])
def test_axes_as_an_input(newer: int):
    """ReduceMean has them there from opset 18 on, and so does what is added to the graph."""
    net = Net(x=IMAGE, opset=newer, ir_version=8)
    axes = np.asarray([2, 3])
    if newer >= 18:
        net.op("ReduceMean", "x", net.constant(axes))
    else:
        net.op("ReduceMean", "x", axes=axes)
    net.op("InstanceNormalization", net.op("Mul", "x", net.last).last, net.random(4), net.random(4))
    check(net.model(), {"x": values(IMAGE, 0)})


def test_several_readers_and_outputs():
    """Gradients of one tensor are added up, wherever they come from."""
    net = Net(x=IMAGE).conv("x", (4, 4, 3, 3), pads=[1] * 4, to="a").op("Relu", "a", to="r")
    net.op("Add", "r", "x", to="s").conv("s", (2, 4, 1, 1), to="t").op("Tanh", "a", to="u")
    model = net.output("t", "u", "r").model()
    feeds = {"x": values(IMAGE, 0)}
    made, found, seed_of = differentiated(model, "x", "a")
    assert set(found) == {"x", "a"}
    assert list(seed_of) == ["t", "u", "r"]
    seeds = {seed_of[end]: values((2, 2 if end == "t" else 4, 6, 6), 3) for end in seed_of}
    every = run(made, {**feeds, **seeds})[found["x"]]
    one_by_one = [
        run(made, {**feeds, **{n: s * (n == chosen) for n, s in seeds.items()}})[found["x"]]
        for chosen in seeds
    ]
    np.testing.assert_allclose(every, sum(one_by_one), atol=1e-4)
    check(model, feeds)


def test_what_no_output_depends_on_has_no_gradient():
    """Nor what comes behind the outputs."""
    net = Net(x=IMAGE).op("Tanh", "x", to="a").op("Exp", "x", to="b").op("Neg", "b", to="c")
    _, found, _ = differentiated(net.output("a").model(), "x", "b", "c")
    assert set(found) == {"x"}


@pytest.mark.parametrize("build", [
    resize(1, 1, 2, 3, mode="linear"),
    resize(1, 1, 2, 2, mode="cubic"),
])  # fmt: skip
def test_smooth_enlarging_is_near_enough(build: Build):
    """Gradients of whole maps and of coarse patterns are about right."""
    model = build(Net(x=IMAGE)).output().model()
    made, found, seed_of = differentiated(model, "x")
    ((end, start),) = seed_of.items()
    x, session = values(IMAGE, 0), executor.Session(model, threads=1)
    shape = session.run({"x": x})[end].shape
    coarse = np.cos(np.linspace(0, 3, shape[2]))[:, None] * np.ones(shape[3])
    seed = np.broadcast_to(coarse, shape).astype(np.float32)
    gradient = run(made, {"x": x, start: seed})[found["x"]].astype(np.float64)
    slope = np.cos(np.linspace(0, 3, IMAGE[2]))[:, None] * np.ones(IMAGE[3])
    for change in (np.ones(IMAGE), np.broadcast_to(slope, IMAGE)):
        there = session.run({"x": (x + change).astype(np.float32)})[end].astype(np.float64)
        seen = np.sum(seed * (there - session.run({"x": x})[end]))
        assert np.sum(gradient * change) == pytest.approx(seen, rel=0.05, abs=0.5)


def test_pads_of_a_mean_that_do_not_count():
    """Pads are taken to count; windows that have none are exact."""
    model = pool("AveragePool", 3, 3, pads=[1] * 4)(Net(x=IMAGE)).output().model()
    made, found, seed_of = differentiated(model, "x")
    (start,) = seed_of.values()
    seed = np.zeros(IMAGE, np.float32)
    seed[:, :, 2, 3] = 1
    gradient = run(made, {"x": values(IMAGE, 0), start: seed})[found["x"]]
    wanted = np.zeros(IMAGE)
    wanted[:, :, 1:4, 2:5] = 1 / 9
    np.testing.assert_allclose(gradient, wanted, atol=1e-6)
