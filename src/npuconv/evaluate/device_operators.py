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
    floats: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()  # of a table

    @property
    def tensors(self) -> tuple[str, ...]:
        """Tensors that it reads and makes, without constants."""
        sources = (name for name in self.sources if name not in self.constants)
        return (*sources, self.result)

    def run(self, values: Sequence[Stored], how: Rescaling) -> Stored:
        """Return the output of the device.

        Raises:
            ModelError: a factor that the device cannot multiply by.
        """
        if self.steps:
            x_at, y_at = self.scales
            return look_up(table(self.steps, x_at, y_at), values[0])
        return _RUN[self.op](self, values, how)


def _average_pool(op: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    window = Window(
        op.attributes["kernel_shape"],
        op.attributes.get("strides", (1, 1)),
        op.attributes.get("pads", (0, 0, 0, 0)),
        bool(op.attributes.get("count_include_pad", 0)),
    )
    return semantics.average_pool(values[0], window, op.scales, how)


def _mean(op: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    (x,) = values
    axes = [int(axis) for axis in op.floats.get(1, op.attributes.get("axes", range(2, x.ndim)))]
    keepdims = bool(op.attributes.get("keepdims", 1))
    return semantics.reduce_mean(x, axes, op.scales, how, keepdims=keepdims)


def _normalize(op: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    factors = {name: op.floats[k] for k, name in ((1, "scale"), (2, "bias")) if k in op.floats}
    normalization = Normalization.of({**op.attributes, **factors})
    return layer_normalization(values[0], normalization, op.scales, how)


def _look_up_slopes(op: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    """Look each channel (axis 1) up in the table of its slope."""
    del how
    steps = [Step("PRelu", attributes={"slope": float(s)}) for s in op.floats[1].reshape(-1)]
    rows = zip(steps, np.moveaxis(values[0], 1, 0), strict=True)
    return np.stack([look_up(table([step], *op.scales), row) for step, row in rows], axis=1)


def _resize(op: DeviceOperator, values: Sequence[Stored], how: Rescaling) -> Stored:
    """Interpolate along height and width; all else of a Resize is refused when it is read."""
    (x,) = values
    factors = [float(factor) for factor in op.floats.get(2, ())][2:]
    sizes = [int(size) for size in op.floats.get(3, ())][2:]
    sizes = sizes or [int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
    mode = op.attributes.get("coordinate_transformation_mode", "half_pixel")
    extents = zip(x.shape[2:], sizes, strict=True)
    rows, columns = (semantics.interpolation(n, size, mode) for n, size in extents)
    return semantics.resize_linear(x, rows, columns, op.scales, how)


_RUN: dict[str, Run] = {
    "Add": lambda op, x, how: semantics.add(x[0], x[1], op.scales, how),
    "Sub": lambda op, x, how: semantics.subtract(x[0], x[1], op.scales, how),
    "Mul": lambda op, x, how: semantics.multiply(x[0], x[1], op.scales, how),
    "Div": lambda op, x, how: semantics.divide(x[0], op.floats[1], op.scales, how),
    "MatMul": lambda op, x, how: semantics.matmul(x[0], x[1], op.scales, how),
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
    "AveragePool": _average_pool,
    "Concat": lambda op, x, how: semantics.concat(
        x, int(op.attributes.get("axis", 1)), op.scales, how
    ),
    "LayerNormalization": _normalize,
    "PRelu": _look_up_slopes,
    "Resize": _resize,
    "Softmax": lambda op, x, how: semantics.softmax(
        x[0], int(op.attributes.get("axis", -1)), op.scales, how
    ),
}


def rescaling(how: Requantize) -> Rescaling:
    """Return the requantization of a target file, float or shift."""
    if how.kind == "shift":
        return Rescaling("shift", how.multiplier_bits, how.max_shift, how.rounding)
    return Rescaling()


def device_operators(model: onnx.ModelProto, target: Target) -> Iterator[DeviceOperator]:
    """Yield the operators with constant scales that the target lists, in the order of the model."""
    graph, operators = _FloatGraph(model), Int8Graph(model)
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            operator = _read_region(graph, node)
        elif node.op_type.startswith(PREFIX) and node.op_type.removeprefix(PREFIX) in _ALONE:
            operator = _read_integer_operator(operators.read(node))
        else:
            continue
        ops = [] if operator is None else operator.op.split(" + ")
        if operator is not None and all(target.operator(op) is not None for op in ops):
            yield operator


_ALONE = {*_RUN, *FUNCTIONS}  # float operators that have an integer form


class _FloatGraph:
    """Constants and makers of tensors."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}

    def scale(self, names: Sequence[str]) -> TensorScale | None:
        """Return a constant scale and int8 zero point; None for others."""
        arrays = [self.constants[name] for name in names if name in self.constants]
        scalars = [array for array in arrays if array.size == 1]
        if len(scalars) != 2 or scalars[1].dtype != np.int8:
            return None
        return TensorScale(float(scalars[0].item()), int(scalars[1].item()))


def _read_integer_operator(op: Int8Operator | None) -> DeviceOperator | None:
    if op is None:
        return None
    table = (Step(op.op, attributes=op.attributes),) if op.op in FUNCTIONS else ()
    ends = (op.sources, op.result, op.scales, op.attributes, op.constants)
    return DeviceOperator(op.name, op.op, *ends, steps=table)


def _read_region(graph: _FloatGraph, quantizer: onnx.NodeProto) -> DeviceOperator | None:
    """Return the float operators between conversions that make an int8 tensor from others."""
    nodes, dequantized = _collect_region(graph, quantizer.input[0])
    if not nodes:
        return None
    last = nodes[-1]
    dequantizers = [graph.makers[name] for name in dict.fromkeys(dequantized)]
    parameters = [*(list(n.input)[1:3] for n in dequantizers), quantizer.input[1:]]
    scales = tuple(scale for names in parameters if (scale := graph.scale(names)) is not None)
    if len(scales) < len(parameters):
        return None
    op = " + ".join(node.op_type for node in nodes)
    sources, result = tuple(node.input[0] for node in dequantizers), quantizer.output[0]
    ends = (sources, result, scales, attributes_of(last))
    constants = {name: graph.constants[name] for name in sources if name in graph.constants}
    operator = DeviceOperator(last.name or result, op, *ends, constants)
    steps = _read_steps(graph, nodes, dequantized) if len(dequantizers) == 1 else None
    if steps is not None:
        return replace(operator, steps=tuple(steps))
    floats = {k: graph.constants[n] for k, n in enumerate(last.input) if n in graph.constants}
    operator = replace(operator, floats=floats)
    return operator if _is_defined(operator, dequantized) else None


def _is_defined(op: DeviceOperator, dequantized: Sequence[str]) -> bool:
    """Return whether a single operator, none of whose values is read twice, has semantics here."""
    if op.op not in _RUN or len(set(dequantized)) < len(dequantized):
        return False
    if op.op == "Resize":
        linear = op.attributes.get("mode") == "linear" and "axes" not in op.attributes
        return linear and len({2, 3} & set(op.floats)) == 1
    if op.op in ("Div", "LayerNormalization", "PRelu"):
        return 1 in op.floats
    return op.op == "ReduceMean" or not op.floats  # a float constant among them is the host's


def _collect_region(graph: _FloatGraph, name: str) -> tuple[list[onnx.NodeProto], list[str]]:
    """Return the float operators that make a tensor, in order, and the dequantized they read.

    Returns:
        No operators where one of them reads anything else that is not constant.
    """
    nodes: dict[str, onnx.NodeProto] = {}
    dequantized: list[str] = []

    def visit(tensor: str) -> bool:
        """Collect the operators before a tensor; return whether they read nothing else."""
        maker = graph.makers.get(tensor)
        if not tensor or tensor in graph.constants or tensor in nodes:
            return True
        if maker is None or len(maker.output) != 1 or len(nodes) + len(dequantized) > _LONGEST:
            return False
        if maker.op_type == "DequantizeLinear":
            dequantized.append(tensor)
            return True
        complete = [visit(source) for source in maker.input]
        nodes[tensor] = maker  # behind those that it reads
        return all(complete)

    return (list(nodes.values()) if visit(name) else []), dequantized


_LONGEST = 32  # operators and values of one region, beyond which none is looked for


def _read_steps(
    graph: _FloatGraph, nodes: Sequence[onnx.NodeProto], dequantized: Sequence[str]
) -> list[Step] | None:
    """Return the operators as steps of a function of one value; None where they are none."""

    def read(name: str) -> str | float | None:
        array = graph.constants.get(name)
        if array is not None:
            return float(array.reshape(-1)[0]) if array.size == 1 else None
        return SOURCE if name in dequantized else name

    steps = []
    for node in nodes:
        inputs = [read(name) for name in node.input if name]
        if None in inputs or node.op_type not in {*FUNCTIONS, *ARITHMETIC}:
            return None
        sources = tuple(source for source in inputs if source is not None)
        attributes = attributes_of(node)
        if node.op_type == "PRelu":
            sources, attributes = sources[:1], {"slope": sources[1]}
        steps.append(Step(node.op_type, sources, node.output[0], attributes))
    return steps
