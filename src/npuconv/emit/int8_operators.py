"""Operators of an int8 model that the device computes beside convolutions.

Each is an integer operator such as QLinearAdd, or a float operator between DequantizeLinear and
QuantizeLinear; several float operators that are a function of one value are one table. Operators
of the host can be between conversions, too: the metadata of a model list the device operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic.rescaling import Rescaling, TensorScale
from npuconv.arithmetic.whole import W
from npuconv.emit import keys
from npuconv.model.proto import Links, attributes_of, metadata_of
from npuconv.ops.operator import OPERATORS, Arguments, Operator
from npuconv.ops.tables import SOURCE, TableStep, table
from npuconv.records import dataclass, field
from npuconv.target import Target

PREFIX = "QLinear"
_LONGEST = 32  # largest number of operators and values of one table


@dataclass(frozen=True)
class Int8Operator:
    """One operator between int8 tensors, or several that are one table."""

    name: str  # name of ``node``
    op: str  # types of the float operators, joined by ``+``
    node: onnx.NodeProto  # the last operator, without conversions
    # Inputs of the float operator; a dequantized input is replaced by its int8 tensor.
    inputs: tuple[str, ...]
    sources: tuple[str, ...]  # int8 tensors among the inputs, constants included
    result: str  # int8 tensor
    scales: tuple[TensorScale, ...]  # scales of the sources, then the scale of the result
    attributes: Mapping[str, Any]  # attributes and constant parameter inputs of the node
    # Values of constant sources, by name.
    constants: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)
    steps: tuple[TableStep, ...] = ()  # operators of a table

    @property
    def tensors(self) -> tuple[str, ...]:
        """Int8 inputs and the output, without constants."""
        return (*(name for name in self.sources if name not in self.constants), self.result)

    @property
    def operator(self) -> Operator | None:
        """Description of the operator; None for several operators."""
        return OPERATORS.get(self.op)

    def compute(self, values: Sequence[W], how: Rescaling) -> W:
        """Return the int8 values of the device.

        Raises:
            ModelError: a parameter that the device cannot compute with.
        """
        if self.steps and how.kind != "gemmlowp":
            return values[0].looked_up(table(self.steps, *self.scales))
        operator = self.operator
        assert operator is not None, "several operators are a table"
        return operator.compute(Arguments(self.attributes, values, self.scales, how))


class Int8Graph(Links):
    """A graph whose int8 operators are read."""

    def read(
        self, node: onnx.NodeProto, quantizer: onnx.NodeProto | None = None
    ) -> Int8Operator | None:
        """Return a node as an int8 operator; None if it has no int8 form, or several scales.

        Args:
            node: an integer operator, or a float operator between conversions.
            quantizer: the conversion behind a float operator.
        """
        op, attributes = node.op_type.removeprefix(PREFIX), attributes_of(node)
        operator = OPERATORS.get(op)
        if operator is None or operator.kernel is None:
            return None
        if quantizer is None:  # inputs: tensor, scale, zero point of each input; then the output's
            names = list(node.input)
            output, triples = names[-2:], names[:-2]
            if op == "Concat":
                output, triples = names[:2], names[2:]
            inputs = sources = triples[::3]
            pairs = [*(triples[k + 1 : k + 3] for k in range(0, len(triples), 3)), output]
            result = node.output[0]
        else:
            inputs, sources, pairs = [], [], []
            for place, name in enumerate(node.input):
                key, values = operator.parameters.get(place), self.constant(name)
                producer = self.producers.get(name)
                if not name or (values is not None and (key is not None or not values.size)):
                    inputs.append(name)
                    if key is not None and values is not None and values.size:
                        attributes[key] = values
                elif producer is None or producer.op_type != "DequantizeLinear":
                    return None
                else:
                    inputs.append(producer.input[0])
                    sources.append(producer.input[0])
                    pairs.append(list(producer.input)[1:3])
            if not operator.takes(attributes):
                return None
            pairs.append(list(quantizer.input)[1:3])
            result = quantizer.output[0]
        steps = (
            (TableStep(op, attributes=attributes),)
            if quantizer is None and operator.is_table
            else ()
        )
        tensors = (tuple(inputs), tuple(sources), result)
        return self._with_scales(node, op, tensors, pairs, attributes, steps)

    def read_function(self, quantizer: onnx.NodeProto) -> Int8Operator | None:
        """Return the float operators before a conversion that are a function of one int8 tensor."""
        nodes, dequantized = self._collect(quantizer.input[0])
        names = set(dequantized)
        if not nodes or len(names) != 1:
            return None
        steps = []
        for node in nodes:
            operator = OPERATORS.get(node.op_type)
            operands: list[str | float] = []
            for name in filter(None, node.input):
                array = self.constant(name)
                if array is not None and array.size != 1:
                    return None
                operands.append(
                    (SOURCE if name in names else name)
                    if array is None
                    else float(array.reshape(-1)[0])
                )
            if operator is None or operator.function is None:
                return None
            steps.append(
                TableStep(node.op_type, tuple(operands), node.output[0], attributes_of(node))
            )
        op = " + ".join(node.op_type for node in nodes)
        producer = self.producers[dequantized[0]]
        tensors = ((producer.input[0],), (producer.input[0],), quantizer.output[0])
        pairs = [list(producer.input)[1:3], list(quantizer.input)[1:3]]
        attributes = attributes_of(nodes[-1])
        return self._with_scales(nodes[-1], op, tensors, pairs, attributes, tuple(steps))

    def _with_scales(
        self,
        node: onnx.NodeProto,
        op: str,
        tensors: tuple[tuple[str, ...], tuple[str, ...], str],
        pairs: Sequence[Sequence[str]],
        attributes: dict[str, Any],
        steps: tuple[TableStep, ...],
    ) -> Int8Operator | None:
        """Return an operator, if each tensor has one constant scale and int8 zero point."""
        scales = []
        for pair in pairs:
            values = [array for name in pair if (array := self.constant(name)) is not None]
            if [array.size for array in values] != [1, 1] or values[1].dtype != np.int8:
                return None
            scales.append(TensorScale(float(values[0].item()), int(values[1].item())))
        inputs, sources, result = tensors
        constants = {n: a for n in sources if (a := self.constant(n)) is not None}
        parts = (inputs, sources, result, tuple(scales), attributes, constants, steps)
        return Int8Operator(node.name or result, op, node, *parts)

    def _collect(self, name: str) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return the float operators that make a tensor, in order, and their dequantized inputs.

        Returns:
            No operators if any operator has another input that is not constant.
        """
        nodes: dict[str, onnx.NodeProto] = {}
        dequantized: list[str] = []

        def visit(tensor: str) -> bool:
            """Collect the operators before a tensor; return whether they have no other inputs."""
            producer = self.producers.get(tensor)
            if not tensor or self.constant(tensor) is not None or tensor in nodes:
                return True
            if producer is None or len(producer.output) != 1:
                return False
            if len(nodes) + len(dequantized) > _LONGEST:
                return False
            if producer.op_type == "DequantizeLinear":
                dequantized.append(tensor)
                return True
            complete = [visit(source) for source in producer.input]
            nodes[tensor] = producer  # behind its producers
            return all(complete)

        return (list(nodes.values()) if visit(name) else []), dequantized


def listed_names(model: onnx.ModelProto, key: str) -> set[str]:
    """Return the names of nodes, a line each, in the metadata of a model."""
    return set(metadata_of(model).get(key, "").splitlines())


@dataclass(frozen=True)
class Int8Operators:
    """The int8 operators of a model."""

    by_result: Mapping[str, Int8Operator]  # operator by the name of its int8 output
    inside: frozenset[str]  # names of float tensors between conversions and operators


def int8_operators(
    model: onnx.ModelProto, accept: Callable[[Int8Operator], bool] = lambda _: True
) -> Int8Operators:
    """Return the operators that the device computes in int8, by the metadata of a model.

    Args:
        model: read, not changed.
        accept: whether to return an operator.
    """
    names, graph = listed_names(model, keys.OPERATORS), Int8Graph(model.graph)
    operators: dict[str, Int8Operator] = {}
    for node in model.graph.node:
        operator = None
        # Integer operators run on the device; float operators between conversions may not.
        if node.op_type.startswith(PREFIX) and node.op_type != f"{PREFIX}Conv":
            operator = graph.read(node)
        elif node.name in names:
            consumers = graph.consumers.get(node.output[0], [])
            if [consumer.op_type for consumer in consumers] == ["QuantizeLinear"]:
                operator = graph.read(node, consumers[0])
        if operator is not None and accept(operator):
            operators[operator.result] = operator
    nodes = {id(operator.node) for operator in operators.values()}
    outputs = {info.name for info in model.graph.output}
    inside = {operator.node.output[0] for operator in operators.values()} - {*operators}
    for node in model.graph.node:
        readers = {id(consumer) for consumer in graph.consumers.get(node.output[0], [])}
        if node.op_type == "DequantizeLinear" and node.output[0] not in outputs and readers:
            inside |= {node.output[0]} if readers <= nodes else set()
    return Int8Operators(operators, frozenset(inside))


def listed_operators(model: onnx.ModelProto, target: Target) -> Iterator[Int8Operator]:
    """Yield the operators that a target lists, in the order of the model."""
    graph = Int8Graph(model.graph)
    for node in model.graph.node:
        operator = None
        if node.op_type == "QuantizeLinear":
            operator = graph.read_function(node)
            producer = graph.producers.get(node.input[0])
            if operator is None and producer is not None:
                operator = graph.read(producer, node)
        elif node.op_type.startswith(PREFIX) and node.op_type != f"{PREFIX}Conv":
            operator = graph.read(node)
        ops = [] if operator is None else operator.op.split(" + ")
        if operator is not None and all(target.operator(op) is not None for op in ops):
            yield operator
