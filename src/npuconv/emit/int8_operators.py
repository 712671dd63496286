"""Operators of an int8 model that the device computes in int8 beside convolutions.

Each is an integer operator such as QLinearAdd, or a float operator between DequantizeLinear and
QuantizeLinear. Operators of the host may stand between conversions, too: the metadata of a model
name those of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv.arithmetic.operators import TensorScale

KEY = "npuconv.operators"  # of the metadata: names, a line each
PREFIX = "QLinear"
# Inputs that are no int8 values, by place, and the attributes that they become.
_LISTS = {
    "Div": {1: "divisor"}, "LayerNormalization": {1: "scale", 2: "bias"}, "PRelu": {1: "alpha"},
    "ReduceMean": {1: "axes"}, "Resize": {2: "scales", 3: "sizes"},
}  # fmt: skip
# Operators whose constants keep their shape, which determines the axis.
_SHAPED = ("Div", "LayerNormalization", "PRelu")


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node, texts decoded."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


@dataclass(frozen=True)
class Int8Operator:
    """One operator between int8 tensors."""

    name: str
    op: str  # the float operator that it stands for
    node: onnx.NodeProto  # the operator, without conversions
    # Of the float operator, with int8 tensors for those that are dequantized.
    inputs: tuple[str, ...]
    sources: tuple[str, ...]  # int8 tensors that it reads; constants as well
    result: str  # int8 tensor that it makes
    scales: tuple[TensorScale, ...]  # of the sources, then of the result
    attributes: Mapping[str, Any]  # of the node, with constants that are no values
    # Values of the sources that are constant.
    constants: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)


class Int8Graph:
    """A model in which int8 operators are looked for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._constants = {t.name: t for t in model.graph.initializer}
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def read(self, node: onnx.NodeProto) -> Int8Operator | None:
        """Return the int8 operator of a node; None if it is none, or has several scales."""
        op = node.op_type.removeprefix(PREFIX)
        decoded = attributes_of(node)
        if op != node.op_type:  # tensor, scale, zero point of each input; those of the output
            names = list(node.input)
            output, triples = names[-2:], names[:-2]
            if op == "Concat":
                output, triples = names[:2], names[2:]
            parameters = [name for k, name in enumerate(triples) if k % 3]
            ends: _Ends | None = _Ends(
                triples[::3], triples[::3], [*parameters, *output], node.output[0]
            )
        else:
            ends = self._read_conversions(node, decoded)
        if ends is None:
            return None
        values = [self._array(name) for name in ends.parameters]
        scalars = [value for value in values if value is not None and value.size == 1]
        if len(scalars) < 2 * len(ends.sources) + 2:
            return None
        if any(zero.dtype != np.int8 for zero in scalars[1::2]):
            return None
        pairs = zip(scalars[::2], scalars[1::2], strict=True)
        scales = tuple(TensorScale(float(s.item()), int(z.item())) for s, z in pairs)
        constants = {n: a for n in ends.sources if (a := self._array(n)) is not None}
        tensors = (tuple(ends.inputs), tuple(ends.sources), ends.result)
        name = node.name or ends.result
        return Int8Operator(name, op, node, *tensors, scales, decoded, constants)

    def _array(self, name: str) -> NDArray[Any] | None:
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _read_conversions(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> _Ends | None:
        """Return the tensors of an operator between conversions; its lists become attributes."""
        readers = self.readers.get(node.output[0], [])
        if len(readers) != 1 or readers[0].op_type != "QuantizeLinear":
            return None
        ends = _Ends([], [], [], readers[0].output[0])
        for place, name in enumerate(node.input):
            key, values = _LISTS.get(node.op_type, {}).get(place), self._array(name)
            maker = self._makers.get(name)
            if not name or (values is not None and (key is not None or not values.size)):
                ends.inputs.append(name)
                if key is not None and values is not None and values.size:
                    shaped = node.op_type in _SHAPED
                    attributes[key] = values if shaped else values.reshape(-1).tolist()
            elif maker is None or maker.op_type != "DequantizeLinear":
                return None
            else:
                ends.inputs.append(maker.input[0])
                ends.sources.append(maker.input[0])
                ends.parameters.extend(maker.input[1:3])
        ends.parameters.extend(readers[0].input[1:3])
        return ends


@dataclass(frozen=True)
class _Ends:
    """Inputs of the float operator, int8 tensors, their scales and zero points, the result."""

    inputs: list[str]
    sources: list[str]
    parameters: list[str]
    result: str


@dataclass(frozen=True)
class Int8Operators:
    """The int8 operators of a model."""

    by_result: Mapping[str, Int8Operator]  # by the int8 tensor that they make
    inside: frozenset[str]  # names of float tensors that only they make or read


def int8_operators(
    model: onnx.ModelProto, accept: Callable[[Int8Operator], bool] = lambda _: True
) -> Int8Operators:
    """Return the operators of a model that its metadata say the device computes in int8.

    Args:
        model: read, not changed.
        accept: whether to return an operator.
    """
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    names, graph = set(metadata.get(KEY, "").splitlines()), Int8Graph(model)
    operators: dict[str, Int8Operator] = {}
    for node in model.graph.node:
        # Integer operators are the device's; float ones between conversions may be the host's.
        integer = node.op_type.startswith(PREFIX) and node.op_type != f"{PREFIX}Conv"
        operator = graph.read(node) if node.name in names or integer else None
        if operator is not None and accept(operator):
            operators[operator.result] = operator
    nodes = {id(operator.node) for operator in operators.values()}
    outputs = {info.name for info in model.graph.output}
    inside = {operator.node.output[0] for operator in operators.values()} - {*operators}
    for node in model.graph.node:
        readers = {id(reader) for reader in graph.readers.get(node.output[0], [])}
        if node.op_type == "DequantizeLinear" and node.output[0] not in outputs and readers:
            inside |= {node.output[0]} if readers <= nodes else set()
    return Int8Operators(operators, frozenset(inside))
