"""Put a QuantizeLinear and a DequantizeLinear on every tensor that is int8 on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.passes import Phase, model_pass

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.passes._context import PassContext


@model_pass(Phase.QUANTIZE)
def quantize_activations(model: Model, ctx: PassContext) -> int:
    """Put a QuantizeLinear and a DequantizeLinear on every tensor that is int8 on the device.

    That is the input and the output of every convolution on the device, and the outputs
    of operators that carry int8 on. Tensors of one group share one scale. What the host
    computes stays float, and is not rounded anywhere else.
    """
    if ctx.plan is None or not ctx.ranges:
        return 0
    inner = [*ctx.plan.device, *ctx.plan.carried]
    fired = sum(_after(model, ctx, node, t) for node in inner for t in list(node.outputs))
    return fired + sum(_before(model, ctx, node) for node in ctx.plan.device)


def _after(model: Model, ctx: PassContext, node: Node, tensor: Tensor) -> int:
    """Round what ``node`` makes; its readers, and the model's output, get the rounded one."""
    from npuconv.model import edit

    group = _group(ctx, tensor)
    if group is None or _waits_for_activation(model, ctx, node, tensor):
        return 0
    raw = edit.variable(model, f"{tensor.name}/float", tensor)
    index = next(i for i, t in enumerate(node.outputs) if t is tensor)
    node.outputs[index] = raw
    _pair(model, ctx, raw, tensor, node, group)
    return 1


def _waits_for_activation(model: Model, ctx: PassContext, node: Node, tensor: Tensor) -> bool:
    """With explicit conversions a Relu or Clip comes before the rounding: the same numbers."""
    reader = query.sole_consumer(model, tensor)
    if ctx.options.format != "qdq" or node.op != "Conv" or reader is None or ctx.plan is None:
        return False
    return reader.op in ("Relu", "Clip") and ctx.plan.is_carried(reader)


def _before(model: Model, ctx: PassContext, conv: Node) -> int:
    """Round what the host makes for a convolution; all that read it share the result."""
    from npuconv.model import edit

    tensor = conv.inputs[0]
    group = _group(ctx, tensor)
    assert ctx.plan is not None
    # One that an int8 node makes is rounded already; its readers get it as it is.
    if group is None or tensor.name in ctx.stored:
        return 0
    rounded = edit.variable(model, f"{tensor.name}/dequantized", tensor)
    readers = [n for n in query.consumers(tensor) if ctx.plan.on_device(n)]
    _pair(model, ctx, tensor, rounded, conv, group)
    for reader in readers:
        reader.inputs[0] = rounded
    return 1


def _pair(
    model: Model, ctx: PassContext, source: Tensor, result: Tensor, origin: Node, group: str
) -> None:
    import numpy as np

    from npuconv.model import edit

    qparams = ctx.ranges[group].qparams
    scale = edit.shared_constant(model, f"{group}/scale", np.asarray(qparams.scale))
    zero = edit.shared_constant(model, "npuconv/zero_point", np.asarray(0, np.int8))
    stored = edit.variable(model, f"{result.name}/int8", result, np.int8)
    ctx.stored[result.name] = stored.name
    edit.add_node(model, "QuantizeLinear", [source, scale, zero], [stored], origin=[origin])
    edit.add_node(model, "DequantizeLinear", [stored, scale, zero], [result], origin=[origin])


def _group(ctx: PassContext, tensor: Tensor) -> str | None:
    """Name of the group whose scale the tensor has; None for a float tensor."""
    assert ctx.plan is not None
    group = ctx.plan.group_of().get(tensor.name)
    return group.name if group else None
