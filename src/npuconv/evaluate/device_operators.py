"""Operators of an int8 model that the device computes beside convolutions, run bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv.arithmetic import operators as semantics
from npuconv.arithmetic.operators import Rescaling, TensorScale, Window
from npuconv.arithmetic.tables import FUNCTIONS, Step, look_up, table

if TYPE_CHECKING:
    from npuconv.target import Target
    from npuconv.target.description import Requantize

Stored = NDArray[np.int8]
Run = Callable[["DeviceOperator", Sequence[Stored], Rescaling], Stored]
_PREFIX = "QLinear"


@dataclass(frozen=True)
class DeviceOperator:
    """One operator between int8 tensors.

    Attributes:
        name: of the node.
        op: the float operator that it stands for.
        sources: int8 tensors that it reads; constants as well.
        result: int8 tensor that it makes.
        scales: of the sources, then of the result.
        attributes: of the node.
        constants: values of the sources that are constant.
    """

    name: str
    op: str
    sources: tuple[str, ...]
    result: str
    scales: tuple[TensorScale, ...]
    attributes: Mapping[str, Any]
    constants: Mapping[str, Stored] = field(default_factory=dict)

    def run(self, values: Sequence[Stored], how: Rescaling) -> Stored:
        """Return the output of the device.

        Args:
            values: the sources, in order.
            how: the requantization of the device.

        Raises:
            ModelError: a factor that the device cannot multiply by.
        """
        return _RUN.get(self.op, _function)(self, values, how)


def _function(one: DeviceOperator, values: Sequence[Stored], _: Rescaling) -> Stored:
    x_at, y_at = one.scales
    return look_up(table([Step(one.op, attributes=one.attributes)], x_at, y_at), values[0])


def _average_pool(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    given = one.attributes
    window = Window(
        given["kernel_shape"],
        given.get("strides", (1, 1)),
        given.get("pads", (0, 0, 0, 0)),
        bool(given.get("count_include_pad", 0)),
    )
    x_at, y_at = one.scales
    return semantics.average_pool(values[0], window, x_at, y_at, how)


def _concat(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    *scales, made = one.scales
    return semantics.concat(values, scales, made, int(one.attributes.get("axis", 1)), how)


def _softmax(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    x_at, y_at = one.scales
    return semantics.softmax(values[0], int(one.attributes.get("axis", -1)), x_at, y_at, how)


def _mean(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    (x,), (x_at, y_at) = values, one.scales
    return semantics.reduce_mean(x, tuple(range(2, x.ndim)), x_at, y_at, how=how)


def _of_two(function: Callable[..., Stored]) -> Run:
    def run(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
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


def described(one: DeviceOperator, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
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


def device_operators(model: onnx.ModelProto, target: Target) -> Iterator[DeviceOperator]:
    """Yield the operators with constant scales that the target lists, in the order of the model.

    They are integer operators such as QLinearAdd, and functions of one value between
    DequantizeLinear and QuantizeLinear. A chain of functions, and others between conversions,
    are not among them.
    """
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in model.graph.node:
        op = node.op_type.removeprefix(_PREFIX)
        if target.operator(op) is None or (op not in _RUN and op not in FUNCTIONS):
            continue
        names = _names(node, makers, readers)
        if names is not None and (found := _operator(node, op, names, constants)) is not None:
            yield found


Names = tuple[list[str], str, list[str]]  # of sources, result, and scales with zero points


def _names(
    node: onnx.NodeProto,
    makers: Mapping[str, onnx.NodeProto],
    readers: Mapping[str, Sequence[onnx.NodeProto]],
) -> Names | None:
    """Return the int8 tensors that a node reads and makes, and their parameters."""
    if node.op_type.startswith(_PREFIX):
        first = 2 if node.op_type == "QLinearConcat" else 0
        body = list(node.input)[first:]
        cut = len(body) if first else len(body) - 2
        ends = list(node.input)[:2] if first else body[cut:]
        rest = [name for k, name in enumerate(body[:cut]) if k % 3]
        return body[:cut:3], node.output[0], [*rest, *ends]
    maker, behind = makers.get(node.input[0]), readers.get(node.output[0], [])
    if maker is None or len(node.input) != 1 or len(behind) != 1:
        return None
    if maker.op_type != "DequantizeLinear" or behind[0].op_type != "QuantizeLinear":
        return None
    return [maker.input[0]], behind[0].output[0], [*maker.input[1:3], *behind[0].input[1:3]]


def _operator(
    node: onnx.NodeProto, op: str, names: Names, constants: Mapping[str, Any]
) -> DeviceOperator | None:
    sources, result, parameters = names
    values = [constants.get(name) for name in parameters]
    if len(values) != 2 * len(sources) + 2 or any(v is None or v.size != 1 for v in values):
        return None
    numbers = [value.item() for value in values if value is not None]
    if any(constants[name].dtype != np.int8 for name in parameters[1::2]):
        return None
    scales = zip(numbers[::2], numbers[1::2], strict=True)
    return DeviceOperator(
        node.name or result,
        op,
        tuple(sources),
        result,
        tuple(TensorScale(float(scale), int(zero)) for scale, zero in scales),
        {a.name: helper.get_attribute_value(a) for a in node.attribute},
        {name: constants[name] for name in sources if name in constants},
    )
