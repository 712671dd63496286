"""Tests of lower-boundaries."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv import executor
from npuconv.model import query, save
from support.asserts import context, read, run, run_pass
from support.builders import Net
from support.plans import converted
from support.plans import quantize as prepare  # noqa: F401  (what the contracts call)

NAME = "lower-boundaries"
LOWER = ("lower-convolutions", "lower-passthrough", NAME)
# They fire with this option only.
OPTIONS = {"io": "int8"}


def image() -> Net:
    return Net(x=(1, 3, 8, 8))


FIRES = [
    lambda: image().conv().model(),
    lambda: image().conv().op("Relu").conv(weight=(2, 4, 3, 3), pads=[1] * 4).model(),
]
SILENT = [
    lambda: image().op("Relu").model(),
    lambda: image().op("Sigmoid").conv().op("Sigmoid").model(),
]


def test_types_and_names():
    """int8 on the outside, under the names the user gave."""
    proto = FIRES[1]()
    model, _, _ = converted(proto, *LOWER, **OPTIONS)
    tensors = (*model.graph.inputs, *model.graph.outputs)
    assert [t.name for t in tensors] == ["x", proto.graph.output[0].name]
    assert {query.dtype_name(t) for t in tensors} == {"int8"}
    assert [n.op for n in model.nodes()] == ["QLinearConv", "Relu", "QLinearConv"]
    onnx.checker.check_model(save.to_proto(model))


def test_scales_and_numbers():
    """The scales that are written down lead from the integers to the numbers."""
    model, ctx, explicit = converted(FIRES[1](), *LOWER, **OPTIONS)
    scales = ctx.results["lower-boundaries"]
    sample = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (out,) = (o.name for o in explicit.graph.output)
    stored = np.clip(np.rint(sample / np.float32(scales["x"])), -128, 127).astype(np.int8)
    integers = executor.Session(save.to_proto(model), optimize=False).run({"x": stored})[out]
    wanted = run(explicit)[0]
    assert integers.dtype == np.int8
    assert np.abs(integers * scales[out] - wanted).max() <= scales[out] * 1.001


def test_float_is_the_default():
    """The pass does nothing unless the option asks for it."""
    model, ctx, _ = converted(FIRES[0](), *LOWER)
    assert run_pass(NAME, model, ctx) == 0
    assert query.dtype_name(model.graph.inputs[0]) == "float32"
    assert ctx.results["lower-boundaries"] == {}


def test_what_the_host_reads_stays_float():
    """A conversion stands between it and the device."""
    model, _, _ = converted(SILENT[1](), *LOWER, **OPTIONS)
    assert query.dtype_name(model.graph.inputs[0]) == "float32"
    assert query.dtype_name(model.graph.outputs[0]) == "float32"


def test_an_input_with_a_scale_for_each_channel():
    """No single number says what its integers stand for, so that it stays float."""
    net = image()
    scales, zeros = net.constant(np.float32([0.1, 0.2, 0.3])), net.constant(np.zeros(3, np.int8))
    net.op("QuantizeLinear", "x", scales, zeros, axis=1)
    model, ctx = read(net.op("Identity").output().model()), context(**OPTIONS)
    assert run_pass(NAME, model, ctx) == 0
    assert query.dtype_name(model.graph.inputs[0]) == "float32"


def test_an_input_that_is_also_read_as_float():
    """An input cannot be int8 and float at once."""
    net = image().conv("x").output().op("Relu", "x").output()
    model, ctx, _ = converted(net.model(), *LOWER, **OPTIONS)
    assert query.dtype_name(model.graph.inputs[0]) == "float32"
    assert list(ctx.results["lower-boundaries"]) == ["t0"]
