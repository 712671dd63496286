"""Tests of separate-conversions."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import npuconv
from npuconv import executor
from npuconv.model import save
from npuconv.model.core import Model
from support.asserts import Passes, context, read, run, run_pass
from support.builders import Net
from support.plans import largest_step
from support.plans import prepare as plan_it

NAME = "separate-conversions"


def prepare(model: Model, ctx: Passes) -> None:
    """All that comes before it."""
    plan_it(model, ctx)
    for name in ("drop-saturated", "quantize-activations", "quantize-weights"):
        run_pass(name, model, ctx)


def image() -> Net:
    """A convolution on an image."""
    return Net(x=(1, 3, 8, 8)).conv()


def between(op: str, **attrs: object) -> Net:
    """An operator of the host between two convolutions."""
    return image().op(op, **attrs).conv(weight=(4, 4, 3, 3))


def added() -> Net:
    """Two convolutions, added for a third."""
    net = Net(x=(1, 3, 8, 8)).conv("x", to="a").conv("x", to="b").op("Add", "a", "b")
    return net.conv(weight=(4, 4, 3, 3), pads=[1] * 4)


def multiplied(*between: str) -> Net:
    """The product of two convolutions on the host, with operators in front of it."""
    net = Net(x=(1, 3, 8, 8)).conv("x", to="a").conv("x", to="b")
    net.op("Transpose", "b", perm=[0, 1, 3, 2])
    for op in between:
        net.op(op, *([net.last, net.constant(1.0)] if op in ("Mul", "Div") else []))
    return net.op("MatMul", "a", net.last)


FIRES = [
    lambda: multiplied().model(),
    lambda: between("Sigmoid").model(),
    lambda: between("LeakyRelu", alpha=0.1).model(),
    lambda: between("AveragePool", kernel_shape=[2, 2]).model(),
    lambda: added().model(),
]
SILENT = [
    lambda: image().model(),
    lambda: image().op("Sigmoid").model(),
    lambda: image().op("Relu").conv(weight=(4, 4, 3, 3)).model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Sigmoid").conv().model(),
    lambda: image().op("Sigmoid").op("Neg").conv(weight=(4, 4, 3, 3)).model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_same_numbers(build):
    """A factor and an offset for each channel stand for its scale and zero point."""
    model, ctx = read(build()), context()
    prepare(model, ctx)
    before = save.to_proto(model)
    assert run_pass(NAME, model, ctx) == 1
    after = save.to_proto(model)
    onnx.checker.check_model(after)
    for old, new in zip(run(before), run(after), strict=True):
        assert np.abs(old - new).max() <= 2 * largest_step(ctx)
        assert np.mean(np.abs(old - new) > 1e-6) < 0.02  # ties fall either way


@pytest.mark.parametrize("build", FIRES)
def test_it_comes_to_rest(build):
    """Separated conversions are not separated again."""
    model, ctx = read(build()), context()
    prepare(model, ctx)
    while run_pass(NAME, model, ctx):
        assert len(model.nodes("Mul", "Add")) < 8


@pytest.mark.parametrize("build", FIRES)
def test_the_runtime_loads_it_optimized(build):
    """Its own fusions leave it alone; that is what the pass is for."""
    model, ctx = read(build()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    for name in ("lower-convolutions", "lower-passthrough"):
        run_pass(name, model, ctx)
    session = executor.Session(save.to_proto(model), optimize=True)
    (made,) = session.run({"x": np.ones((1, 3, 8, 8), np.float32)}).values()
    assert np.isfinite(made).all()


@pytest.mark.parametrize("build", SILENT)
def test_it_is_silent(build):
    """A conversion on one side only, or none on the host at all."""
    model, ctx = read(build()), context()
    prepare(model, ctx)
    assert run_pass(NAME, model, ctx) == 0


def test_one_scale_needs_nothing():
    """The integer operator of the runtime takes that."""
    model, ctx = read(FIRES[1]()), context()
    plan_it(model, ctx, {"t0": 0.1, "t1": 0.01, "t2": 0.1})
    for name in ("quantize-activations", "quantize-weights"):
        run_pass(name, model, ctx)
    assert run_pass(NAME, model, ctx) == 0


def test_a_conversion_before_the_device():
    """The other side is separated if the host reads one scale."""
    model, ctx = read(FIRES[1]()), context()
    plan_it(model, ctx, {"t0": 0.1})
    for name in ("quantize-activations", "quantize-weights"):
        run_pass(name, model, ctx)
    before = save.to_proto(model)
    assert run_pass(NAME, model, ctx) == 1
    sigmoid = model.nodes("Sigmoid")[0]
    assert sigmoid.outputs[0].outputs[0].op == "Mul"
    (old,), (new,) = run(before), run(save.to_proto(model))
    assert np.abs(old - new).max() <= 2 * largest_step(ctx)


def test_every_node_has_an_origin():
    """Every part has the origin of its conversion."""
    model, ctx = read(FIRES[1]()), context()
    prepare(model, ctx)
    run_pass(NAME, model, ctx)
    assert all(model.origin(node) for node in model.nodes())


def test_without_a_plan_nothing_happens():
    """A float model has no plan, and nothing changes."""
    assert run_pass(NAME, read(FIRES[1]()), context()) == 0


def sessions(proto: onnx.ModelProto) -> dict[str, ort.InferenceSession]:
    """The model as written, and optimized as on x86 (0) and on ARM (1)."""
    made = {}
    for allowed in ("", "0", "1"):
        options = ort.SessionOptions()
        if allowed:
            options.add_session_config_entry("session.qdqisint8allowed", allowed)
        else:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        made[allowed] = ort.InferenceSession(proto.SerializeToString(), options)
    return made


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize(
    "build", [multiplied, lambda: multiplied("Mul"), lambda: multiplied("Abs"), added]
)
def test_a_written_model_runs_with_both_defaults(build, form):
    """onnxruntime fuses conversions of int8 on ARM, and those of uint8 only on x86."""
    data = {"x": np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)}
    result = npuconv.convert(build().model(), calibration=data, format=form)
    feeds = {"x": data["x"][:1]}
    plain, *optimized = (s.run(None, feeds)[0] for s in sessions(result.model).values())
    for values in optimized:
        assert np.abs(values - plain).max() <= 1e-3 * np.abs(plain).max()
