"""Put a QuantizeLinear and a DequantizeLinear on every tensor that is int8 on the device.

These are inputs and outputs of convolutions and other operators of the device, outputs of
operators that pass int8 on, and constants that operators add or multiply. A tensor has one scale
and one zero point in the file, for all its conversions. Weights and biases make up for scales and
zero points of channels; where the host makes or reads the tensor, it multiplies and adds.
Inputs and outputs of the model have conversions with a scale per channel instead, but not in the
format ``qdq``, which compilers of devices read. Tensors of the host stay float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npuconv.emit.emission import Emission, set_constant
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.ops.operator import values_of
from npuconv.partition.operators import MOVEMENTS, constants_of
from npuconv.partition.placement import Plan
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.statistics import Doubles

    Encodings = Mapping[str, Encoding]  # encodings by name of the tensor


@register_pass(Phase.QUANTIZE, after=("drop-saturated",))
def quantize_activations(model: Model, device: TargetDevice, emission: Emission) -> dict[str, str]:
    # Returns the name of the int8 tensor by its float tensor.
    plan, encodings = emission.plan, emission.encodings
    if not encodings:
        return {}
    reaches = {id(node): _reach(encodings, node) for node in plan.operators}
    conversions = _Conversions(model, plan, encodings, by_channel=device.options.format != "qdq")
    for node in plan.int8_nodes:
        for tensor in list(node.outputs):
            conversions.output(node, tensor)
    for conv in plan.convolutions:
        conversions.input(conv, conv.inputs[0])
    for node in plan.operators:
        for tensor in values_of(node):
            conversions.input(node, tensor)
        for place in constants_of(node, include_scalars=device.options.format == "tflite"):
            _quantize_constant(model, device, node, place, reaches[id(node)])
    return conversions.int8_names


@dataclass
class _Conversions:
    """Conversions around int8 tensors; ``int8_names`` by float tensor, so far."""

    model: Model
    plan: Plan
    encodings: Encodings
    by_channel: bool  # conversions of inputs and outputs of the model have scales of channels
    int8_names: dict[str, str] = field(default_factory=dict)

    def output(self, node: Node, tensor: Tensor) -> None:
        """Insert Q/DQ after ``node``; consumers and graph outputs read the result."""
        model, encoding = self.model, self.encodings.get(tensor.name)
        if encoding is None:
            return
        raw = edit.variable(model, f"{tensor.name}/float", tensor)
        edit.replace_output(node, tensor, raw)
        stored = self._store(tensor)
        _convert(model, "QuantizeLinear", raw, stored, encoding.stored, node)
        if encoding.is_plain:
            _convert(model, "DequantizeLinear", stored, tensor, encoding, node)
            return
        inside = self._device_consumers(tensor)
        is_read = len(inside) < len(query.consumers(tensor)) or model.is_output(tensor)
        nominal = edit.variable(model, f"{tensor.name}/nominal", tensor)
        edit.redirect(tensor, nominal, inside)
        if is_read and self.by_channel and _moves_to_outputs(tensor):
            _convert(model, "DequantizeLinear", stored, tensor, encoding, node)
        elif is_read:
            _scale(model, nominal, tensor, *encoding.from_stored, encoding, node)
        if inside or query.consumers(nominal) or not is_read:
            _convert(model, "DequantizeLinear", stored, nominal, encoding.stored, node)

    def input(self, node: Node, tensor: Tensor) -> None:
        """Insert Q/DQ after a tensor of the host; its consumers on the device share the result."""
        model, encoding = self.model, self.encodings.get(tensor.name)
        # The output of an int8 node is rounded already.
        if encoding is None or tensor.name in self.int8_names:
            return
        rounded = edit.variable(model, f"{tensor.name}/dequantized", tensor)
        stored = self._store(rounded)
        consumers = self._device_consumers(tensor)
        if encoding.is_plain or (self.by_channel and _moves_from_input(tensor)):
            _convert(model, "QuantizeLinear", tensor, stored, encoding, node)
        else:
            nominal = edit.variable(model, f"{tensor.name}/nominal", tensor)
            _scale(model, tensor, nominal, *encoding.to_stored, encoding, node)
            _convert(model, "QuantizeLinear", nominal, stored, encoding.stored, node)
        _convert(model, "DequantizeLinear", stored, rounded, encoding.stored, node)
        edit.redirect(tensor, rounded, consumers)

    def _device_consumers(self, tensor: Tensor) -> list[Node]:
        plan, consumers = self.plan, query.consumers(tensor)
        kinds = (plan.is_convolution, plan.is_operator, plan.is_passthrough)
        return [node for node in consumers if any(is_kind(node) for is_kind in kinds)]

    def _store(self, tensor: Tensor) -> Tensor:
        """Return a new int8 tensor, and note its name."""
        stored = edit.variable(self.model, f"{tensor.name}/int8", tensor, np.int8)
        self.int8_names[tensor.name] = stored.name
        return stored


def _moves_from_input(tensor: Tensor) -> bool:
    """Return whether the host only moves values of an input of the model to make the tensor."""
    producer = query.producer(tensor)
    return producer is None or (producer.op in MOVEMENTS and _moves_from_input(producer.inputs[0]))


def _moves_to_outputs(tensor: Tensor) -> bool:
    """Return whether the host only moves the values of the tensor to outputs of the model."""
    return all(
        node.op in MOVEMENTS and all(map(_moves_to_outputs, node.outputs))
        for node in query.consumers(tensor)
    )


def _quantize_constant(
    model: Model, device: TargetDevice, node: Node, index: int, reach: Doubles
) -> None:
    """Quantize a constant operand, after clipping it to its bounds."""
    from npuconv.arithmetic.encoding import HIGHEST, LOWEST, quantize, scale_of_constant

    constant = query.constant_input(node, index)
    assert constant is not None, "constants_of names it"
    value = np.clip(constant, *reach.astype(np.float32))
    allows = device.target.activations.allows_zero_point
    scale, zero = scale_of_constant(value, centred=not (allows(LOWEST) and allows(HIGHEST)))
    integers, stem = quantize(value, scale, zero), f"{node.name}/constant"
    set_constant(model, node, index, stem, integers, np.asarray(scale), int(zero))


def _reach(encodings: Encodings, node: Node) -> Doubles:
    """Return the bounds of a constant summand beyond which every sum saturates, else infinities.

    Without these bounds, a mask value of -1e9 would use up all steps of the constant.
    """
    from npuconv.arithmetic.encoding import HIGHEST, LOWEST

    values, unlimited = values_of(node), np.asarray([-np.inf, np.inf])
    around = [encodings.get(tensor.name) for tensor in (*values, *node.outputs)]
    if node.op not in ("Add", "Sub") or len(values) > 1 or None in around:
        return unlimited
    bounds = [e.stored.dequantize([LOWEST, HIGHEST]) for e in around if e]
    source, result = np.asarray(bounds, np.float64)
    if node.op == "Add":
        return np.asarray(result - source[::-1])
    return np.asarray(source - result[::-1] if values[0] is node.inputs[0] else result + source)


def _convert(
    model: Model, op: str, source: Tensor, result: Tensor, encoding: Encoding, origin: Node
) -> None:
    """Insert a conversion with the scale of the tensor, or the scales of its channels."""
    attrs = {}
    if encoding.is_plain:
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


def _scale(
    model: Model,
    source: Tensor,
    result: Tensor,
    factors: Doubles,
    offsets: Doubles,
    encoding: Encoding,
    origin: Node,
) -> None:
    """Multiply the channels of a tensor of the host by factors, then add offsets."""
    shape = list[int]()
    if encoding.axis is not None:
        rank = query.rank(source) or query.rank(origin.inputs[1])  # weights have as many axes
        assert rank is not None, "a tensor with channels has a rank"
        shape = [1] * rank  # with all axes: RKNN-Toolkit2 crashes on some factors of less axes
        shape[encoding.axis] = -1
    steps: list[tuple[str, str, Doubles]] = []
    if np.any(factors != 1) or not np.any(offsets):
        steps.append(("Mul", "factor", factors))
    if np.any(offsets):
        steps.append(("Add", "offset", offsets))
    for number, (op, name, values) in enumerate(steps, 1):
        target = result
        if number < len(steps):
            target = edit.variable(model, f"{result.name}/scaled", result)
        column = values.astype(np.float32).reshape(shape)
        constant = edit.constant(model, f"{result.name}/{name}", column)
        edit.add_node(model, op, [source, constant], [target], origin=[origin])
        source = target
