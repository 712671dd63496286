"""Operators of an int8 model that the device computes beside convolutions, run bit by bit.

They are integer operators such as QLinearAdd, and what stands between DequantizeLinear and
QuantizeLinear: one operator, or several that are a function of one value, and so one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from npuconv.arithmetic import operators as semantics
from npuconv.arithmetic.normalization import Normalization, layer_normalization
from npuconv.arithmetic.operators import Rescaling, TensorScale, Window
from npuconv.arithmetic.tables import ARITHMETIC, FUNCTIONS, SOURCE, Step, look_up, table
from npuconv.emit.int8_operators import PREFIX, Int8Graph, Int8Operator, attributes_of
from npuconv.target import Target
from npuconv.target.description import Requantize

Stored = NDArray[np.int8]
Arrays = Mapping[str, NDArray[Any]]
Run = Callable[["DeviceOperator", Sequence[Stored], Rescaling], Stored]


@dataclass(frozen=True)
class DeviceOperator:
    """One operator between int8 tensors, or several that are one table."""

    name: str  # of the node, the last of several
    op: str  # the float operators that it stands for, joined by ``+``
    sources: tuple[str, ...]  # int8 tensors that it reads; constants as well
    result: str  # int8 tensor that it makes
    scales: tuple[TensorScale, ...]  # of the sources, then of the result
    attributes: Mapping[str, Any]
    # Values of the sources that are constant.
    constants: Mapping[str, Stored] = field(default_factory=dict)
    # By index, float inputs of the node that are constant: a divisor, axes, sizes.
    given: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()  # of a table

    def run(self, values: Sequence[Stored], how: Rescaling) -> Stored:
        """Return the output of the device.

        Raises:
            ModelError: a factor that the device cannot multiply by.
        """
        if self.steps:
            x_at, y_at = self.scales
            return look_up(table(self.steps, x_at, y_at), values[0])
        return _RUN[self.op](self, values, how)


def _average_pool(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    given = one.attributes
    window = Window(
        given["kernel_shape"],
        given.get("strides", (1, 1)),
        given.get("pads", (0, 0, 0, 0)),
        bool(given.get("count_include_pad", 0)),
    )
    return semantics.average_pool(values[0], window, one.scales, how)


def _concat(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    return semantics.concat(values, int(one.attributes.get("axis", 1)), one.scales, how)


def _softmax(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    return semantics.softmax(values[0], int(one.attributes.get("axis", -1)), one.scales, how)


def _mean(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    (x,) = values
    axes = [int(axis) for axis in one.given.get(1, one.attributes.get("axes", range(2, x.ndim)))]
    kept = bool(one.attributes.get("keepdims", 1))
    return semantics.reduce_mean(x, axes, one.scales, how, keepdims=kept)


def _divide(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    return semantics.divide(values[0], one.given[1], one.scales, how)


def _normalize(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    given = {name: one.given[k] for k, name in ((1, "scale"), (2, "bias")) if k in one.given}
    return layer_normalization(
        values[0], Normalization.of({**one.attributes, **given}), one.scales, how
    )


def _slopes(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    """Look each channel (axis 1) up in the table of its slope."""
    del how
    (x,), (x_at, y_at) = values, one.scales
    of_channel = (
        table([Step("PRelu", attributes={"slope": float(s)})], x_at, y_at)
        for s in one.given[1].reshape(-1)
    )
    rows = zip(of_channel, np.moveaxis(x, 1, 0), strict=True)
    return np.stack([look_up(entries, row) for entries, row in rows], axis=1)


def _resize(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    """Interpolate along height and width; all else of a Resize is refused when it is read."""
    (x,) = values
    factors = [float(factor) for factor in one.given.get(2, ())][2:]
    sizes = [int(size) for size in one.given.get(3, ())][2:]
    wanted = sizes or [int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
    mode = one.attributes.get("coordinate_transformation_mode", "half_pixel")
    ends = zip(x.shape[2:], wanted, strict=True)
    rows, columns = (semantics.interpolation(n, size, mode) for n, size in ends)
    return semantics.resize_linear(x, rows, columns, one.scales, how)


def _of_two(function: Callable[..., Stored]) -> Run:
    def run(one: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
        a, b = values
        return function(a, b, one.scales, how)

    return run


_RUN: dict[str, Run] = {
    "Add": _of_two(semantics.add),
    "Sub": _of_two(semantics.subtract),
    "Mul": _of_two(semantics.multiply),
    "Div": _divide,
    "MatMul": _of_two(semantics.matmul),
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
    "AveragePool": _average_pool,
    "Concat": _concat,
    "LayerNormalization": _normalize,
    "PRelu": _slopes,
    "Resize": _resize,
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
    """Yield the operators with constant scales that the target lists, in the order of the model."""
    graph, operators = _Graph(model), Int8Graph(model)
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            found = _between(graph, node)
        elif node.op_type.startswith(PREFIX) and node.op_type.removeprefix(PREFIX) in _ALONE:
            found = _integer(operators.read(node))
        else:
            continue
        ops = () if found is None else found.op.split(" + ")
        if found is not None and all(target.operator(op) is not None for op in ops):
            yield found


_ALONE = {*_RUN, *FUNCTIONS}  # integer operators that stand for these


class _Graph:
    """Constants and makers of tensors."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}

    def scale(self, names: Sequence[str]) -> TensorScale | None:
        """Return a constant scale and int8 zero point; None for others."""
        found = [self.constants.get(name) for name in names]
        known = [one for one in found if one is not None and one.size == 1]
        if len(known) != 2 or known[1].dtype != np.int8:
            return None
        return TensorScale(float(known[0].item()), int(known[1].item()))


def _integer(one: Int8Operator | None) -> DeviceOperator | None:
    """Return an integer operator with what runs it."""
    if one is None:
        return None
    table = (Step(one.op, attributes=one.attributes),) if one.op in FUNCTIONS else ()
    ends = (one.sources, one.result, one.scales, one.attributes, one.constants)
    return DeviceOperator(one.name, one.op, *ends, steps=table)


def _between(graph: _Graph, quantizer: onnx.NodeProto) -> DeviceOperator | None:
    """Read what makes an int8 tensor from others, all between conversions."""
    nodes, opened = _region(graph, quantizer.input[0])
    if not nodes:
        return None
    last = nodes[-1]
    readers = [graph.makers[name] for name in dict.fromkeys(opened)]
    found = [*(graph.scale(list(n.input)[1:3]) for n in readers), graph.scale(quantizer.input[1:])]
    scales = tuple(scale for scale in found if scale is not None)
    if len(scales) < len(found):
        return None
    op = " + ".join(node.op_type for node in nodes)
    sources, result = tuple(node.input[0] for node in readers), quantizer.output[0]
    ends = (sources, result, scales, attributes_of(last))
    values = {name: graph.constants[name] for name in sources if name in graph.constants}
    made = DeviceOperator(last.name or result, op, *ends, values)
    steps = _steps(graph, nodes, opened) if len(readers) == 1 else None
    if steps is not None:
        return replace(made, steps=tuple(steps))
    given = {k: graph.constants[n] for k, n in enumerate(last.input) if n in graph.constants}
    made = replace(made, given=given)
    return made if _is_defined(made, opened) else None


def _is_defined(one: DeviceOperator, opened: Sequence[str]) -> bool:
    """Return whether a single operator, none of whose values is read twice, has semantics here."""
    if one.op not in _RUN or len(set(opened)) < len(opened):
        return False
    if one.op == "Resize":
        linear = one.attributes.get("mode") == "linear" and "axes" not in one.attributes
        return linear and len({2, 3} & set(one.given)) == 1
    if one.op in ("Div", "LayerNormalization", "PRelu"):
        return 1 in one.given
    return one.op == "ReduceMean" or not one.given  # a float constant among them is the host's


def _region(graph: _Graph, name: str) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return the float operators that make a tensor, in order, and the dequantized they read.

    Returns:
        No operators where one of them reads anything else that is not constant.
    """
    nodes: dict[str, onnx.NodeProto] = {}
    opened: list[str] = []

    def visit(tensor: str) -> bool:
        """Collect what makes a tensor; return whether all it is made of is known."""
        maker = graph.makers.get(tensor)
        if not tensor or tensor in graph.constants or tensor in nodes:
            return True
        if maker is None or len(maker.output) != 1 or len(nodes) + len(opened) > _LONGEST:
            return False
        if maker.op_type == "DequantizeLinear":
            opened.append(tensor)
            return True
        known = [visit(one) for one in maker.input]
        nodes[tensor] = maker  # behind those that it reads
        return all(known)

    whole = visit(name)
    return (list(nodes.values()) if whole else []), opened


_LONGEST = 32  # operators and values of one region, beyond which none is looked for


def _steps(
    graph: _Graph, nodes: Sequence[onnx.NodeProto], opened: Sequence[str]
) -> list[Step] | None:
    """Return the operators as steps of a function of one value; None where they are none."""

    def read(name: str) -> str | float | None:
        array = graph.constants.get(name)
        if array is not None:
            return float(array.reshape(-1)[0]) if array.size == 1 else None
        return SOURCE if name in opened else name

    steps = []
    for node in nodes:
        inputs = [read(name) for name in node.input if name]
        if None in inputs or node.op_type not in {*FUNCTIONS, *ARITHMETIC}:
            return None
        given = tuple(one for one in inputs if one is not None)
        attributes = attributes_of(node)
        if node.op_type == "PRelu":
            given, attributes = given[:1], {"slope": given[1]}
        steps.append(Step(node.op_type, given, node.output[0], attributes))
    return steps
