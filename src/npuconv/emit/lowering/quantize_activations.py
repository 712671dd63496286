"""Put a QuantizeLinear and a DequantizeLinear on every tensor that is int8 on the device.

That is the input and the output of every convolution on the device, the outputs of
operators that carry int8 on, and all that other listed operators read and make, with
the constants that these add or multiply. Where the host makes or reads one, every channel has
its own scale and zero point; between device nodes there is one nominal scale and zero
point 0, and the weights and biases make up for the rest. What the host computes stays
float, and is not rounded anywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.context import EmitContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition import Plan
from npuconv.partition.operators import constants_of, values_of

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.statistics import Doubles


@model_pass(Phase.QUANTIZE, after=("drop-saturated",))
def quantize_activations(model: Model, ctx: EmitContext) -> int:
    if not ctx.encodings:
        return 0
    reaches = {id(node): _reach(ctx, node) for node in ctx.plan.operators}
    fired = sum(
        _after(model, ctx, node, t) for node in ctx.plan.int8_nodes for t in [*node.outputs]
    )
    device = [
        conv for conv in ctx.plan.device if len(conv.inputs)
    ]  # the others are in parts by now
    fired += sum(_before(model, ctx, conv, conv.inputs[0]) for conv in device)
    for node in ctx.plan.operators:
        fired += sum(_before(model, ctx, node, tensor) for tensor in values_of(node))
        found = constants_of(node, every=ctx.options.format == "tflite")
        reach = reaches[id(node)]
        fired += sum(_round_constant(model, ctx, node, index, reach) for index in found)
    return fired


def _after(model: Model, ctx: EmitContext, node: Node, tensor: Tensor) -> int:
    """Round what ``node`` makes; its readers, and the model's output, get the rounded one."""
    encoding = ctx.encodings.get(tensor.name)
    if encoding is None or _waits_for_activation(model, ctx, node, tensor):
        return 0
    raw = edit.variable(model, f"{tensor.name}/float", tensor)
    index = next(i for i, t in enumerate(node.outputs) if t is tensor)
    node.outputs[index] = raw
    stored = _stored(model, ctx, tensor)
    if ctx.plan.is_operator(node):
        _quantize(model, raw, stored, encoding.in_integers, node, own=True)
    else:
        _quantize(model, raw, stored, encoding, node, own=False)
    inside = [n for n in query.consumers(tensor) if _inner(ctx.plan, n)]
    if not encoding.is_plain and inside:
        nominal = edit.variable(model, f"{tensor.name}/nominal", tensor)
        _read_instead(inside, tensor, nominal)
        _dequantize(model, stored, nominal, encoding, node, own=False)
    told = [n for n in query.consumers(tensor) if ctx.plan.is_operator(n)]
    if told and (encoding.axis is not None or encoding.scales[0] != encoding.nominal):
        computed = edit.variable(model, f"{tensor.name}/computed", tensor)
        _read_instead(told, tensor, computed)
        _dequantize(model, stored, computed, encoding.in_integers, node, own=True)
    if model.is_output(tensor) or query.consumers(tensor) or not (inside or told):
        _dequantize(model, stored, tensor, encoding, node, own=True)
    return 1


def _inner(plan: Plan, node: Node) -> bool:
    """Return whether a node reads integers, and not the numbers they stand for."""
    return plan.on_device(node) or plan.is_passthrough(node)


def _read_instead(nodes: list[Node], old: Tensor, new: Tensor) -> None:
    for node in {id(n): n for n in nodes}.values():
        for index, tensor in enumerate(list(node.inputs)):
            if tensor is old:
                edit.set_input(node, index, new)


def _waits_for_activation(model: Model, ctx: EmitContext, node: Node, tensor: Tensor) -> bool:
    """Return whether to quantize after the Relu or Clip that follows, not before it.

    Only with explicit conversions. The numbers are the same.
    """
    reader = query.sole_consumer(model, tensor)
    if ctx.options.format != "qdq" or node.op != "Conv" or reader is None:
        return False
    return reader.op in ("Relu", "Clip") and ctx.plan.is_passthrough(reader)


def _before(model: Model, ctx: EmitContext, node: Node, tensor: Tensor) -> int:
    """Round what the host makes for the device; all that read it there share the result."""
    encoding = ctx.encodings.get(tensor.name)
    # One that an int8 node makes is rounded already; its readers get it as it is.
    if encoding is None or tensor.name in ctx.stored:
        return 0
    rounded = edit.variable(model, f"{tensor.name}/dequantized", tensor)
    stored = _stored(model, ctx, rounded)
    readers = {id(n): n for n in query.consumers(tensor)}.values()
    convolutions = [n for n in readers if ctx.plan.on_device(n)]
    operators = [n for n in readers if ctx.plan.is_operator(n)]
    _quantize(model, tensor, stored, encoding, node, own=True)
    if convolutions:
        _dequantize(model, stored, rounded, encoding, node, own=False)
    for reader in convolutions:
        reader.inputs[0] = rounded
    if operators:
        told = rounded
        if convolutions:
            told = edit.variable(model, f"{tensor.name}/own", tensor)
        _dequantize(model, stored, told, encoding.in_integers, node, own=True)
        _read_instead(operators, tensor, told)
    return 1


def _round_constant(model: Model, ctx: EmitContext, node: Node, index: int, reach: Doubles) -> int:
    """Round a constant that is added or multiplied, within its reach."""
    import numpy as np

    from npuconv.arithmetic.encoding import HIGHEST, LOWEST, quantize, scale_of_constant

    value = query.constant_input(node, index)
    if value is None:
        return 0  # already behind a DequantizeLinear
    value = np.clip(value, *reach.astype(np.float32))
    allows = ctx.target.activations.allows_zero_point
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


def _reach(ctx: EmitContext, node: Node) -> Doubles:
    """Return the ends of a summand beyond which every sum saturates; infinite for others.

    A mask of -1e9 would take all steps of the constant.
    """
    import numpy as np

    from npuconv.arithmetic.encoding import HIGHEST, LOWEST

    values, free = values_of(node), np.asarray([-np.inf, np.inf])
    encodings = [ctx.encodings.get(tensor.name) for tensor in (*values, *node.outputs)]
    if node.op not in ("Add", "Sub") or len(values) > 1 or None in encodings:
        return free
    ends = [each.in_integers.dequantize([LOWEST, HIGHEST]) for each in encodings if each]
    read, made = np.asarray(ends, np.float64)
    if node.op == "Add":
        return np.asarray(made - read[::-1])
    return np.asarray(read - made[::-1] if values[0] is node.inputs[0] else made + read)


def _stored(model: Model, ctx: EmitContext, tensor: Tensor) -> Tensor:
    import numpy as np

    made = edit.variable(model, f"{tensor.name}/int8", tensor, np.int8)
    ctx.stored[tensor.name] = made.name
    return made


def _quantize(
    model: Model, source: Tensor, made: Tensor, encoding: Encoding, origin: Node, *, own: bool
) -> None:
    _convert(model, "QuantizeLinear", source, made, encoding, origin, own=own)


def _dequantize(
    model: Model, source: Tensor, made: Tensor, encoding: Encoding, origin: Node, *, own: bool
) -> None:
    _convert(model, "DequantizeLinear", source, made, encoding, origin, own=own)


def _convert(
    model: Model,
    op: str,
    source: Tensor,
    made: Tensor,
    encoding: Encoding,
    origin: Node,
    *,
    own: bool,
) -> None:
    """Between integers and numbers: the tensor's own, or the nominal ones of the device."""
    scale, zero, attrs = _parameters(model, source, encoding, own=own)
    edit.add_node(model, op, [source, scale, zero], [made], origin=[origin], attrs=attrs)


def _parameters(
    model: Model, tensor: Tensor, encoding: Encoding, *, own: bool
) -> tuple[Tensor, Tensor, dict[str, int]]:
    import numpy as np

    if not own or encoding.is_plain:
        name = f"npuconv/scale/{float(encoding.nominal)!r}"
        scale = edit.shared_constant(model, name, np.asarray(encoding.nominal))
        zero = np.asarray(encoding.nominal_zero, np.int8)
        name = f"npuconv/zero_point{f'/{zero}' if zero else ''}"
        return scale, edit.shared_constant(model, name, zero), {}
    single = encoding.axis is None
    scales, zeros = encoding.scales, encoding.zeros.astype(np.int8)
    parts = (scales[0], zeros[0]) if single else (scales, zeros)
    return (
        edit.constant(model, f"{tensor.name}/scale", np.asarray(parts[0])),
        edit.constant(model, f"{tensor.name}/zero_point", np.asarray(parts[1])),
        {} if encoding.axis is None else {"axis": encoding.axis},
    )
