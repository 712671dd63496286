"""Operators of an int8 model that the device computes beside convolutions, run bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic import litert
from npuconv.arithmetic import operators as semantics
from npuconv.arithmetic.operators import Rescaling, Window
from npuconv.arithmetic.tables import FUNCTIONS, look_up, table
from npuconv.arithmetic.whole import WholeArray
from npuconv.emit.int8_operators import Int8Graph, Int8Operator, int8_operators

if TYPE_CHECKING:
    from npuconv.target import Target
    from npuconv.target.description import Requantize

Stored = NDArray[np.int8]
Run = Callable[[Int8Operator, Sequence[Stored], Rescaling], Stored]


def run_operator(one: Int8Operator, values: Sequence[Stored], how: Requantize) -> Stored:
    """Return the output of the device.

    Args:
        one: an operator of the device.
        values: its sources, in order.
        how: the requantization of the device.

    Raises:
        ModelError: a factor that the device cannot multiply by.
    """
    if how.kind == "gemmlowp":
        given = [WholeArray.of(stored) for stored in values]
        made = litert.compute(one.op, one.attributes, given, one.scales)
        return made.values.astype(np.int8)
    return _RUN.get(one.op, _function)(one, values, rescaling(how))


def _function(one: Int8Operator, values: Sequence[Stored], _: Rescaling) -> Stored:
    x_at, y_at = one.scales
    return look_up(table([(one.op, one.attributes)], x_at, y_at), values[0])


def _average_pool(one: Int8Operator, values: Sequence[Stored], how: Rescaling) -> Stored:
    given = one.attributes
    window = Window(
        given["kernel_shape"],
        given.get("strides", (1, 1)),
        given.get("pads", (0, 0, 0, 0)),
        bool(given.get("count_include_pad", 0)),
    )
    x_at, y_at = one.scales
    return semantics.average_pool(values[0], window, x_at, y_at, how)


def _concat(one: Int8Operator, values: Sequence[Stored], how: Rescaling) -> Stored:
    *scales, made = one.scales
    return semantics.concat(values, scales, made, int(one.attributes.get("axis", 1)), how)


def _softmax(one: Int8Operator, values: Sequence[Stored], how: Rescaling) -> Stored:
    x_at, y_at = one.scales
    return semantics.softmax(values[0], int(one.attributes.get("axis", -1)), x_at, y_at, how)


def _mean(one: Int8Operator, values: Sequence[Stored], how: Rescaling) -> Stored:
    (x,), (x_at, y_at) = values, one.scales
    return semantics.reduce_mean(x, tuple(range(2, x.ndim)), x_at, y_at, how=how)


def _of_two(function: Callable[..., Stored]) -> Run:
    def run(one: Int8Operator, values: Sequence[Stored], how: Rescaling) -> Stored:
        (a, b), (a_at, b_at, y_at) = values, one.scales
        return function(a, b, a_at, b_at, y_at, how)

    return run


_RUN: dict[str, Run] = {
    "Add": _of_two(semantics.add),
    "Mul": _of_two(semantics.multiply),
    "MatMul": _of_two(semantics.matmul),
    "GlobalAveragePool": _mean,
    "AveragePool": _average_pool,
    "Concat": _concat,
    "Softmax": _softmax,
}


def rescaling(how: Requantize) -> Rescaling:
    """Return the requantization of a target file, float or shift."""
    if how.kind == "shift":
        return Rescaling("shift", how.multiplier_bits, how.max_shift, how.rounding)
    return Rescaling()


def described(one: Int8Operator, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return what a manifest says of an operator and of the arrays of its vectors."""
    return {
        "name": one.name,
        "op": one.op,
        "inputs": list(one.sources),
        "output": one.result,
        "arrays": {key: [str(a.dtype), list(a.shape)] for key, a in sorted(arrays.items())},
        "scales": [at.scale for at in one.scales],
        "zero_points": [at.zero for at in one.scales],
    }


def device_operators(model: onnx.ModelProto, target: Target) -> Iterator[Int8Operator]:
    """Yield the operators with constant scales that the target lists, in the order of the model.

    They are integer operators such as QLinearAdd, and functions of one value between
    DequantizeLinear and QuantizeLinear. A chain of functions, and others between conversions,
    are not among them, unless the device has TFLite's integers: then the model names them all.
    """
    if target.activations.requantize.kind == "gemmlowp":
        yield from int8_operators(model).made.values()
        return
    graph = Int8Graph(model)
    for node in model.graph.node:
        one = graph.read(node)
        if one is None or target.operator(one.op) is None:
            continue
        table_of_one = node.op_type == one.op and one.op in FUNCTIONS and len(one.sources) == 1
        if table_of_one or (node.op_type != one.op and one.op in {*_RUN, *FUNCTIONS}):
            yield one
