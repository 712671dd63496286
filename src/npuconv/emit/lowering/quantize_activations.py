"""Put a QuantizeLinear and a DequantizeLinear on every tensor that is int8 on the device.

That is the input and the output of every convolution on the device, the outputs of
operators that carry int8 on, and all that other listed operators read and make, with
the constants that these add or multiply. Where the host makes or reads one, every channel has
its own scale and zero point; between device nodes there is one nominal scale and zero
point 0, and the weights and biases make up for the rest. What the host computes stays
float, and is not rounded anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npuconv.emit.emission import Emission
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.ops.operator import values_of
from npuconv.partition.operators import constants_of
from npuconv.partition.placement import Plan

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.statistics import Doubles

    Encodings = Mapping[str, Encoding]  # encodings by name of the tensor


@model_pass(Phase.QUANTIZE, after=("drop-saturated",))
def quantize_activations(
    model: Model, device: TargetDevice, emission: Emission
) -> tuple[int, Emission]:
    plan, encodings = emission.plan, emission.encodings
    if not encodings:
        return 0, emission
    reaches = {id(node): _reach(encodings, node) for node in plan.operators}
    is_qdq, fired = device.options.format == "qdq", 0
    conversions = _Conversions(model, plan, encodings, dict(emission.int8_names), is_qdq)
    for node in plan.int8_nodes:
        fired += sum(conversions.output(node, tensor) for tensor in list(node.outputs))
    for conv in plan.convolutions:
        if len(conv.inputs):  # a convolution that was written in parts has no inputs left
            fired += conversions.input(conv, conv.inputs[0])
    for node in plan.operators:
        fired += sum(conversions.input(node, tensor) for tensor in values_of(node))
        for place in constants_of(node, include_scalars=device.options.format == "tflite"):
            fired += _quantize_constant(model, device, node, place, reaches[id(node)])
    return fired, replace(emission, int8_names=conversions.int8_names)


@dataclass
class _Conversions:
    """Conversions around int8 tensors; ``int8_names`` by float tensor, so far."""

    model: Model
    plan: Plan
    encodings: Encodings
    int8_names: dict[str, str]
    activates_first: bool  # a Conv is quantized after its Relu or Clip

    def output(self, node: Node, tensor: Tensor) -> int:
        """Insert Q/DQ after ``node``; consumers and graph outputs read the result."""
        model, plan = self.model, self.plan
        encoding = self.encodings.get(tensor.name)
        if encoding is None:
            return 0
        consumer = query.sole_consumer(model, tensor)
        is_activated = consumer is not None and consumer.op in ("Relu", "Clip")
        is_activated = is_activated and node.op == "Conv" and plan.is_passthrough(consumer)
        if is_activated and self.activates_first:
            return 0  # quantized after the activation: the numbers are the same
        raw = edit.variable(model, f"{tensor.name}/float", tensor)
        index = next(i for i, t in enumerate(node.outputs) if t is tensor)
        node.outputs[index] = raw
        stored = self._store(tensor)
        if plan.is_operator(node):
            _convert(model, "QuantizeLinear", raw, stored, encoding.in_integers, node)
        else:
            _convert(model, "QuantizeLinear", raw, stored, encoding, node, nominal=True)
        consumers = query.consumers(tensor)
        inside = [n for n in consumers if plan.is_convolution(n) or plan.is_passthrough(n)]
        if not encoding.is_plain and inside:
            nominal = edit.variable(model, f"{tensor.name}/nominal", tensor)
            _replace_input(inside, tensor, nominal)
            _convert(model, "DequantizeLinear", stored, nominal, encoding, node, nominal=True)
        operators = [n for n in query.consumers(tensor) if plan.is_operator(n)]
        if operators and (encoding.axis is not None or encoding.scales[0] != encoding.nominal):
            computed = edit.variable(model, f"{tensor.name}/computed", tensor)
            _replace_input(operators, tensor, computed)
            _convert(model, "DequantizeLinear", stored, computed, encoding.in_integers, node)
        if model.is_output(tensor) or query.consumers(tensor) or not (inside or operators):
            _convert(model, "DequantizeLinear", stored, tensor, encoding, node)
        return 1

    def input(self, node: Node, tensor: Tensor) -> int:
        """Insert Q/DQ after a tensor of the host; its consumers on the device share the result."""
        model, plan = self.model, self.plan
        encoding = self.encodings.get(tensor.name)
        # The output of an int8 node is rounded already.
        if encoding is None or tensor.name in self.int8_names:
            return 0
        rounded = edit.variable(model, f"{tensor.name}/dequantized", tensor)
        stored = self._store(rounded)
        consumers = {id(n): n for n in query.consumers(tensor)}.values()
        convolutions = [n for n in consumers if plan.is_convolution(n)]
        operators = [n for n in consumers if plan.is_operator(n)]
        _convert(model, "QuantizeLinear", tensor, stored, encoding, node)
        if convolutions:
            _convert(model, "DequantizeLinear", stored, rounded, encoding, node, nominal=True)
        for conv in convolutions:
            conv.inputs[0] = rounded
        if operators:
            computed = rounded
            if convolutions:
                computed = edit.variable(model, f"{tensor.name}/own", tensor)
            _convert(model, "DequantizeLinear", stored, computed, encoding.in_integers, node)
            _replace_input(operators, tensor, computed)
        return 1

    def _store(self, tensor: Tensor) -> Tensor:
        """Return a new int8 tensor, and note its name."""
        import numpy as np

        stored = edit.variable(self.model, f"{tensor.name}/int8", tensor, np.int8)
        self.int8_names[tensor.name] = stored.name
        return stored


def _replace_input(nodes: list[Node], old: Tensor, new: Tensor) -> None:
    for node in {id(n): n for n in nodes}.values():
        for index, tensor in enumerate(list(node.inputs)):
            if tensor is old:
                edit.set_input(node, index, new)


def _quantize_constant(
    model: Model, device: TargetDevice, node: Node, index: int, reach: Doubles
) -> int:
    """Quantize a constant operand, after clipping it to its bounds."""
    import numpy as np

    from npuconv.arithmetic.encoding import HIGHEST, LOWEST, quantize, scale_of_constant

    value = query.constant_input(node, index)
    if value is None:
        return 0  # already behind a DequantizeLinear
    value = np.clip(value, *reach.astype(np.float32))
    allows = device.target.activations.allows_zero_point
    scale, zero = scale_of_constant(value, centred=not (allows(LOWEST) and allows(HIGHEST)))
    stem = f"{node.name}/constant"
    parts = [
        edit.constant(model, f"{stem}/int8", quantize(value, scale, zero)),
        edit.constant(model, f"{stem}/scale", np.asarray(scale)),
        edit.constant(model, f"{stem}/zero_point", np.asarray(zero, np.int8)),
    ]
    result = edit.variable(model, f"{stem}/dequantized", dtype=np.float32)
    result.shape = list(value.shape)
    edit.add_node(model, "DequantizeLinear", parts, [result], origin=[node])
    edit.set_input(node, index, result)
    return 1


def _reach(encodings: Encodings, node: Node) -> Doubles:
    """Return the bounds of a constant summand beyond which every sum saturates, else infinities.

    Without these bounds, a mask value of -1e9 would use up all steps of the constant.
    """
    import numpy as np

    from npuconv.arithmetic.encoding import HIGHEST, LOWEST

    values, unlimited = values_of(node), np.asarray([-np.inf, np.inf])
    around = [encodings.get(tensor.name) for tensor in (*values, *node.outputs)]
    if node.op not in ("Add", "Sub") or len(values) > 1 or None in around:
        return unlimited
    bounds = [e.in_integers.dequantize([LOWEST, HIGHEST]) for e in around if e]
    source, result = np.asarray(bounds, np.float64)
    if node.op == "Add":
        return np.asarray(result - source[::-1])
    return np.asarray(source - result[::-1] if values[0] is node.inputs[0] else result + source)


def _convert(
    model: Model,
    op: str,
    source: Tensor,
    result: Tensor,
    encoding: Encoding,
    origin: Node,
    *,
    nominal: bool = False,
) -> None:
    """Insert a conversion, with the scales of the tensor or the nominal scale."""
    import numpy as np

    attrs = {}
    if nominal or encoding.is_plain:
        name = f"npuconv/scale/{float(encoding.nominal)!r}"
        scale = edit.shared_constant(model, name, np.asarray(encoding.nominal))
        point = np.asarray(encoding.nominal_zero, np.int8)
        name = f"npuconv/zero_point{f'/{point}' if point else ''}"
        zero = edit.shared_constant(model, name, point)
    else:
        single = encoding.axis is None
        scales, zeros = encoding.scales, encoding.zeros.astype(np.int8)
        values = (scales[0], zeros[0]) if single else (scales, zeros)
        scale = edit.constant(model, f"{source.name}/scale", np.asarray(values[0]))
        zero = edit.constant(model, f"{source.name}/zero_point", np.asarray(values[1]))
        attrs = {} if single else {"axis": encoding.axis}
    edit.add_node(model, op, [source, scale, zero], [result], origin=[origin], attrs=attrs)
