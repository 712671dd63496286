"""Helpers of passes that fold ``factor * y + offset`` per channel into a convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.legalize.tools.as_conv import (
    Disguised,
    channels_second,
    considered,
    convolve,
    obstacle,
    type_obstacle,
)
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


TWO_SIDED = ("Mul", "Div", "Add", "Sub")
INFERENCE_ONLY = 9  # the opset since which a BatchNormalization keeps one statistic per channel


@dataclass(frozen=True)
class Link:
    """One node that computes ``factor * source + offset``, or why it does not."""

    node: Node
    source: Tensor
    factor: np.ndarray  # float64, one or one per channel
    offset: np.ndarray

    @property
    def channels(self) -> int:
        """Number of channels it tells apart; 1 where all are treated alike."""
        return max(self.factor.size, self.offset.size)


def rewrite_chain(model: Model, ctx: PassContext, links: list[Link]) -> int:
    """Turn a chain into one depthwise convolution, if the target takes that."""
    first, nodes = links[0], [link.node for link in links]
    found = _convolution(model, ctx, links)
    if isinstance(found, str):
        ctx.refuse(model, first.node, found)
        return 0
    before = " + ".join(node.op for node in nodes)
    with ctx.rewrite(model, nodes, before, found.text()):
        for node in nodes[1:]:
            edit.inherit(model, first.node, node)
        edit.hand_over(convolve(model, first.node, found), nodes[-1].outputs[0])
        for node in nodes:
            edit.disconnect(node)
    return 1


def _convolution(model: Model, ctx: PassContext, links: list[Link]) -> Disguised | str:
    import numpy as np

    source = links[0].source
    dims = query.shape(source)
    layout = channels_second(len(dims)) if dims is not None else None
    if dims is None or layout is None:
        return "its rank is not known" if dims is None else f"its input has rank {len(dims)}"
    factor, offset = combined(links)
    channels = max(link.channels for link in links)
    win = considered((channels, 1, 1, 1), layout.seen(dims), group=channels)
    reason = obstacle(model, ctx, layout, win)
    if reason:
        return reason
    with np.errstate(over="ignore"):
        weight = np.broadcast_to(factor, channels).astype(np.float32).reshape(-1, 1, 1, 1)
        bias = np.broadcast_to(offset, channels).astype(np.float32) if np.any(offset) else None
    if not np.isfinite(weight).all() or not np.isfinite(0 if bias is None else bias).all():
        return "its factors or offsets are not finite"
    return Disguised(source, layout, win, weight, bias)


def combined(links: list[Link]) -> tuple[np.ndarray, np.ndarray]:
    """Factor and offset of all together, float64."""
    factor, offset = links[0].factor, links[0].offset
    for link in links[1:]:
        factor, offset = factor * link.factor, offset * link.factor + link.offset
    return factor, offset


def around(model: Model, ctx: PassContext, link: Link) -> list[Link]:
    """The longest chain that holds this node: nothing else reads what is in between."""
    links = [link]
    while (before := _before(model, ctx, links[0])) is not None:
        links.insert(0, before)
    while (behind := _behind(model, ctx, links[-1])) is not None:
        links.append(behind)
    return links


def _before(model: Model, ctx: PassContext, link: Link) -> Link | None:
    maker = query.producer(link.source)
    if maker is None or query.sole_consumer(model, link.source) is None:
        return None
    return _joins(model, ctx, maker)


def _behind(model: Model, ctx: PassContext, link: Link) -> Link | None:
    reader = query.sole_consumer(model, link.node.outputs[0])
    found = _joins(model, ctx, reader) if reader is not None else None
    return found if found is not None and found.source is link.node.outputs[0] else None


def _joins(model: Model, ctx: PassContext, node: Node) -> Link | None:
    # A node of a subgraph reads tensors of this graph, but is none of it.
    if not query.is_standard(node) or not model.is_top_level(node):
        return None
    found = link_of(model, node) if ctx.offloads(node) else None
    return found if isinstance(found, Link) else None


def link_of(model: Model, node: Node) -> Link | str | None:
    """The node as a link; why it nearly is one; None where it is something else."""
    if node.op == "BatchNormalization":
        return _batchnorm(model, node)
    return _two_sided(node) if node.op in TWO_SIDED else None


def _batchnorm(model: Model, node: Node) -> Link | str | None:
    import numpy as np

    parameters = [query.constant_input(node, index) for index in range(1, 5)]
    if any(p is None for p in parameters):
        return "its statistics are not constant"
    if any(p is not None and p.ndim != 1 for p in parameters):
        return "it has statistics for every position (spatial=0)"
    read = any(t.outputs or model.is_output(t) for t in node.outputs[1:])
    if query.attribute(node, "training_mode", 0) or read:
        return "it is in training mode"
    if model.opset < INFERENCE_ONLY:
        return f"BatchNormalization of opset {model.opset} may be in training mode"
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + float(query.attribute(node, "epsilon", 1e-5)))
    if not np.isfinite(factor).all():
        return "its variances are negative, zero or not finite"
    # Its input may be of another type than its parameters.
    dtype = query.dtype_name(node.inputs[0])
    reason = "" if dtype in ("", "float32") else f"it computes in {dtype}"
    reason = reason or next(
        filter(None, (type_obstacle(p) for p in parameters if p is not None)), ""
    )
    return reason or Link(node, node.inputs[0], factor, bias - mean * factor)


def _two_sided(node: Node) -> Link | str | None:
    import numpy as np

    constants = [query.constant_input(node, index) for index in (0, 1)]
    if sum(c is not None for c in constants) != 1:
        return None
    index = 0 if constants[1] is not None else 1
    array, source = constants[1 - index], node.inputs[index]
    if array is None or (node.op == "Div" and index == 1):
        return None
    flat = channel_values(array, query.shape(source))
    if flat is None:
        return (
            None if array.size == 1 else f"its constant of shape {array.shape} is not per channel"
        )
    reason = type_obstacle(array)
    if reason:
        return reason
    factor, offset = _factor_and_offset(node.op, flat, swapped=index == 1)
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return "its constant is zero or not finite"
    return Link(node, source, factor, offset)


def channel_values(
    array: np.ndarray, dims: tuple[int | str | None, ...] | None
) -> np.ndarray | None:
    """One value, or one for each channel (axis 1), float64; None for anything else."""
    if dims is None or len(dims) < 2 or array.ndim > len(dims):
        return None
    if array.size == 1:
        return array.reshape(1).astype("float64")
    aligned = (1,) * (len(dims) - array.ndim) + array.shape
    wanted = (1, dims[1]) + (1,) * (len(dims) - 2)
    return array.reshape(-1).astype("float64") if aligned == wanted else None


def _factor_and_offset(
    op: str, values: np.ndarray, *, swapped: bool
) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    nothing, once = np.zeros(1), np.ones(1)
    if op == "Mul":
        return values, nothing
    if op == "Div":
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1.0 / values, nothing
    if op == "Add":
        return once, values
    return (-once, values) if swapped else (once, -values)
