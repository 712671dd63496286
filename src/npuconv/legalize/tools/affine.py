"""Helpers of passes that fold ``factor * y + offset`` per channel into a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import edit, query
from npuconv.model.conv import window

if TYPE_CHECKING:
    import numpy as np

    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


def feeding_convolution(model: Model, ctx: PassContext, node: Node, source: Tensor) -> Node | None:
    """The convolution that makes ``source``, if it alone can take ``node`` in."""
    conv = query.producer(source)
    if conv is None or conv.op not in query.CONVOLUTIONS or not query.is_standard(conv):
        return None
    reason = ""
    if query.sole_consumer(model, source) is None:
        reason = f"something else reads {model.label(conv)!r} too, or it is an output"
    elif query.constant_input(conv, 1) is None:
        reason = f"the weights of {model.label(conv)!r} are not constant"
    elif query.input_of(conv, 2) is not None and query.constant_input(conv, 2) is None:
        reason = f"the bias of {model.label(conv)!r} is not constant"
    if reason:
        ctx.refuse(model, node, reason)
        return None
    return conv


def _per_channel(
    model: Model, ctx: PassContext, node: Node, *, ordered: bool
) -> tuple[Tensor, np.ndarray] | None:
    """The operand a convolution makes, and the other: one value per channel, or one, float64."""
    for source, other in ((0, 1), (1, 0))[: 1 if ordered else 2]:
        values = query.constant_input(node, other)
        maker = query.producer(node.inputs[source])
        if values is None or maker is None or maker.op not in query.CONVOLUTIONS:
            continue
        flat = _one_per_channel(values, maker)
        if flat is None:
            ctx.refuse(model, node, f"its constant of shape {values.shape} is not per channel")
            return None
        return node.inputs[source], flat
    return None


def operand(
    model: Model, ctx: PassContext, node: Node, *, ordered: bool
) -> tuple[Node, np.ndarray] | None:
    """The convolution a two-sided operator could go into, and its constant per channel.

    Args:
        model: the model.
        ctx: takes the reason of a near miss.
        node: Mul, Div, Add or Sub.
        ordered: the constant must come second (Div, Sub).
    """
    found = _per_channel(model, ctx, node, ordered=ordered)
    if found is None:
        return None
    source, values = found
    conv = feeding_convolution(model, ctx, node, source)
    return None if conv is None else (conv, values)


def _one_per_channel(values: np.ndarray, conv: Node) -> np.ndarray | None:
    win = window(conv)
    if win is None or win.axes is None or win.out_channels is None:
        return None
    rank = win.axes + 2
    if values.size == 1 and values.ndim <= rank:
        return values.reshape(1).astype("float64")
    channel_axis = values.ndim - win.axes - 1
    if values.ndim > rank or values.size != win.out_channels or channel_axis < 0:
        return None
    if values.shape[channel_axis] != win.out_channels:
        return None
    return values.reshape(-1).astype("float64")


def absorb(
    model: Model,
    ctx: PassContext,
    conv: Node,
    node: Node,
    factor: np.ndarray,
    offset: np.ndarray,
) -> int:
    """Let ``conv`` compute ``factor * conv + offset`` and make what ``node`` made.

    Args:
        model: the model to change.
        ctx: records and measures.
        conv: Conv or ConvTranspose with constant weight and bias.
        node: the node that goes; its other outputs must be unread.
        factor: one or one per output channel, float64.
        offset: likewise.
    """
    import numpy as np

    win = window(conv)
    weight, bias = query.constant_input(conv, 1), query.constant_input(conv, 2)
    assert win is not None
    assert win.out_channels is not None
    assert weight is not None
    channels = win.out_channels
    factor, offset = np.broadcast_to(factor, channels), np.broadcast_to(offset, channels)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = _scale(weight, factor, conv.op, win.group)
        shifted = (offset + factor * (bias if bias is not None else 0.0)).astype(weight.dtype)
    if np.isfinite(weight).all() and not (np.isfinite(scaled).all() and np.isfinite(shifted).all()):
        ctx.refuse(model, node, "weights or bias would not be finite any more")
        return 0
    modulus = None if win.output_shape else 1
    before = f"{conv.op} + {node.op}"
    with ctx.rewrite(model, [conv, node], before, conv.op, modulus=modulus):
        while len(node.outputs) > 1:
            del node.outputs[-1]
        edit.take_over_outputs(node, conv)
        edit.set_input(conv, 1, edit.constant(model, conv.inputs[1].name, scaled))
        if np.any(shifted) or bias is not None:
            tensor = edit.constant(model, f"{conv.name}/bias", shifted)
            edit.set_input(conv, 2, tensor)
        edit.inherit(model, conv, node)
        edit.disconnect(node)
    return 1


def _scale(weight: np.ndarray, factor: np.ndarray, op: str, group: int) -> np.ndarray:
    """Scale the output channels of a weight; in double, so that only one rounding is left."""
    if op == "Conv":
        axes = (-1, *(1,) * (weight.ndim - 1))
        return (weight * factor.reshape(axes)).astype(weight.dtype)
    # ConvTranspose: input channels first, output channels of each group second.
    grouped = weight.reshape(group, -1, *weight.shape[1:])
    shaped = factor.reshape(group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
    return (grouped * shaped).astype(weight.dtype).reshape(weight.shape)
