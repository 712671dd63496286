"""Graphs to be differentiated, and what they become."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuconv import executor
from npuconv.ops.tape import Tape
from npuconv.quantize.sensitivity import backward
from support.builders import Net

Build = Callable[[Net], Net]
IMAGE, ROWS = (2, 4, 6, 6), (3, 4)


def operator(op: str, *constants: object, **attrs: object) -> Build:
    """The operator on x and constants."""
    return lambda net: net.op(op, "x", *(net.constant(np.asarray(c)) for c in constants), **attrs)


def conv(*weight: int, **attrs: object) -> Build:
    return lambda net: net.conv("x", weight, **attrs)


def unconv(*weight: int, **attrs: object) -> Build:
    return lambda net: net.conv("x", weight, op="ConvTranspose", **attrs)


def pair(op: str, *, turned: bool = False, **attrs: object) -> Build:
    """The operator on both inputs."""
    return lambda net: net.op(op, *(("z", "x") if turned else ("x", "z")), **attrs)


def pool(op: str, *kernel: int, **attrs: object) -> Build:
    return operator(op, kernel_shape=kernel, **attrs)


def resize(*factors: float, **attrs: object) -> Build:
    return lambda net: net.op("Resize", "x", "", net.constant(np.float32(factors)), **attrs)


def dense(**attrs: object) -> Build:
    return lambda net: net.op("Gemm", "x", net.random(4, 5), net.random(5), **attrs)


def cast(net: Net, source: str = "x", to: int = TensorProto.FLOAT) -> Net:
    net.op("Identity", source).nodes[-1].CopyFrom(
        helper.make_node("Cast", [source], [net.last], to=to)
    )
    return net


def layer_norm(*extents: int) -> Build:
    """A LayerNormalization of the last axes."""

    def build(net: Net) -> Net:
        given = [net.random(*extents, low=0.5, high=1.5), net.random(*extents)]
        return net.op("LayerNormalization", "x", *given, axis=-len(extents), epsilon=0.1)

    return build


def norm(op: str) -> Build:
    """A normalization by given, or by its own, statistics."""

    def build(net: Net) -> Net:
        given = [net.random(4, low=0.5, high=1.5) for _ in range(2)]
        given += [net.random(4), net.random(4, low=0.5, high=2)] if op[0] == "B" else []
        return net.op(op, "x", *given)

    return build


# name: what is built, shapes of x and z. z is there where it has a shape.


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of both signs, none near another one or near 0."""
    count = int(np.prod(shape))
    apart = np.linspace(0.25, 1.75, count)[np.random.default_rng(seed).permutation(count)]
    apart += seed * 0.75 / count  # beside those of another seed
    signs = np.where(np.random.default_rng(seed + 1).permutation(count) % 2, -1.0, 1.0)
    return np.asarray(apart * signs, np.float32).reshape(shape)


def differentiated(
    model: onnx.ModelProto, *wanted: str
) -> tuple[onnx.ModelProto, dict[str, str], dict[str, str]]:
    """The model with its gradients as outputs; their names, and those of the seeds by end."""
    made = onnx.shape_inference.infer_shapes(model, data_prop=True)
    known = [*made.graph.input, *made.graph.value_info, *made.graph.output]
    types = {value.name: value.type.tensor_type for value in known}
    shapes = {
        name: tuple(d.dim_value for d in kind.shape.dim)
        for name, kind in types.items()
        if all(d.HasField("dim_value") for d in kind.shape.dim)
    }
    shapes |= {t.name: tuple(t.dims) for t in made.graph.initializer}
    floats = {name for name, kind in types.items() if kind.elem_type == TensorProto.FLOAT}
    floats |= {t.name for t in made.graph.initializer}
    tape = Tape(made.graph, shapes, model.opset_import[0].version)
    found, seeds = backward(tape, [o.name for o in model.graph.output], wanted, floats)
    for end, seed in seeds.items():
        value = helper.make_tensor_value_info(seed, TensorProto.FLOAT, shapes[end])
        made.graph.input.append(value)
    own = {gradient: shapes[name] for name, gradient in found.items()}
    for name, shape in own.items():
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        made.graph.output.append(value)
    return made, found, seeds


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return executor.Session(model, threads=1).run(feeds)
