"""Factors and offsets per channel: into the convolution before them, or as a convolution.

A BatchNormalization, and Mul, Div, Add and Sub by constants per channel, compute
``factor * x + offset``. Several in a row compute one such map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.tools.conv_forms import (
    CHANNELS_SECOND,
    ConvForm,
    considered,
    obstacle,
    replace_by_conv,
    type_obstacle,
)
from npuconv.model import Model, Node, Tensor, edit, query, window
from npuconv.model.conv import Dims
from npuconv.records import dataclass

if TYPE_CHECKING:
    Affine = tuple[np.ndarray, np.ndarray]  # factor and offset, float64, [] or [C]

TWO_SIDED = ("Mul", "Div", "Add", "Sub")
INFERENCE_ONLY = 9  # first opset of BatchNormalization with one statistic per channel


def batchnorm(model: Model, node: Node) -> Affine | str:
    """Return factor and offset of a BatchNormalization, or why it has none.

    ``y = (x - mean) * scale / sqrt(var + epsilon) + bias``.
    """
    parameters = [query.constant_input(node, index) for index in range(1, 5)]
    if any(p is None for p in parameters):
        return "its statistics are not constant"
    if any(p is not None and p.ndim != 1 for p in parameters):
        return "it has statistics for every position (spatial=0)"
    if len({p.size for p in parameters if p is not None}) > 1:
        return "its statistics differ in their numbers of channels"
    read = any(t.outputs or model.is_output(t) for t in node.outputs[1:])
    if query.attribute(node, "training_mode", 0) or read:
        return "it is in training mode"
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = scale / np.sqrt(variance + float(query.attribute(node, "epsilon", 1e-5)))
    if not np.isfinite(factor).all():
        return "its variances are negative, zero or not finite"
    return factor, bias - mean * factor


def _two_sided(op: str, values: np.ndarray, *, swapped: bool = False) -> Affine:
    """Return factor and offset of an operator with constant ``values``, first if ``swapped``."""
    if op == "Mul":
        return values, np.zeros(1)
    if op == "Div":
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1.0 / values, np.zeros(1)
    if op == "Add":
        return np.ones(1), values
    return (-np.ones(1), values) if swapped else (np.ones(1), -values)


def feeding_convolution(model: Model, log: Log, node: Node, source: Tensor) -> Node | None:
    """Return the convolution that makes ``source``, if ``node`` can be folded into it."""
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
    elif len({query.dtype_name(t) for t in conv.inputs[:2] if t.dtype is not None}) > 1:
        reason = f"input and weights of {model.label(conv)!r} differ in type"  # refused everywhere
    if reason:
        log.refuse(model, node, reason)
        return None
    return conv


def fuse_two_sided(model: Model, log: Log, node: Node) -> int:
    """Fold Mul, Div, Add or Sub by a constant into the convolution before it.

    Returns:
        1, or 0 if it is not possible.
    """
    for source, constant in ((0, 1), (1, 0))[: 1 if node.op in ("Div", "Sub") else 2]:
        array = query.constant_input(node, constant)
        producer = query.producer(node.inputs[source])
        if array is None or producer is None or producer.op not in query.CONVOLUTIONS:
            continue
        win = window(producer)
        axes, channels = (None, None) if win is None else (win.axes, win.out_channels)
        dims = (None, channels, *(None,) * (axes or 0))
        values = channel_values(array, None if None in (axes, channels) else dims)
        if values is None:
            reason = f"its constant of shape {array.shape} is not per channel"
            return log.refuse(model, node, reason)
        conv = feeding_convolution(model, log, node, node.inputs[source])
        if conv is None:
            return 0
        factor, offset = _two_sided(node.op, values)
        if not np.isfinite(factor).all():
            return log.refuse(model, node, "it divides by zero")
        return absorb(model, log, conv, node, factor, offset)
    return 0


def channel_values(array: np.ndarray, dims: Dims | None) -> np.ndarray | None:
    """Return a single value, or a value for each channel (axis 1), float64; else None."""
    if dims is None or len(dims) < 2 or array.ndim > len(dims):
        return None
    if array.size == 1:
        return array.reshape(1).astype("float64")
    aligned = (1,) * (len(dims) - array.ndim) + array.shape
    per_channel = (1, dims[1]) + (1,) * (len(dims) - 2)
    return array.reshape(-1).astype("float64") if aligned == per_channel else None


def absorb(
    model: Model, log: Log, conv: Node, node: Node, factor: np.ndarray, offset: np.ndarray
) -> int:
    """Let ``conv`` compute ``factor * conv + offset`` and make the result of ``node``.

    Factor and offset are float64, one or one per output channel. Other outputs of ``node``, which
    goes, must be unread. Stored scales of the weights are multiplied, too.

    Returns:
        1, or 0 if it is not possible.
    """
    win = window(conv)
    weight, bias = query.constant_input(conv, 1), query.constant_input(conv, 2)
    assert win is not None
    assert win.out_channels is not None
    assert weight is not None
    channels = win.out_channels
    if not {factor.size, offset.size} <= {1, channels}:
        reason = f"its statistics are not of the {channels} channels that it reads"
        return log.refuse(model, node, reason)
    factor, offset = np.broadcast_to(factor, channels), np.broadcast_to(offset, channels)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = _scale_weight(weight, factor, conv.op, win.group)
        shifted = (offset + factor * (bias if bias is not None else 0.0)).astype(weight.dtype)
    if np.isfinite(weight).all() and not (np.isfinite(scaled).all() and np.isfinite(shifted).all()):
        return log.refuse(model, node, "weights or bias would not be finite any more")
    modulus = None if win.output_shape else 1
    before = f"{conv.op} + {node.op}"
    with log.rewrite(model, [conv, node], before, conv.op, modulus=modulus):
        while len(node.outputs) > 1:
            del node.outputs[-1]
        edit.take_over_outputs(node, conv)
        edit.set_input(conv, 1, edit.constant(model, conv.inputs[1].name, scaled))
        model.source_scales = model.source_scales.multiplied(model.origin(conv), factor)
        if np.any(shifted) or bias is not None:
            edit.set_input(conv, 2, edit.constant(model, f"{conv.name}/bias", shifted))
        edit.inherit(model, conv, node)
        edit.disconnect(node)
    return 1


def _scale_weight(weight: np.ndarray, factor: np.ndarray, op: str, group: int) -> np.ndarray:
    """Scale the output channels of a weight in float64, so that it is rounded only once."""
    if op == "Conv":
        axes = (-1, *(1,) * (weight.ndim - 1))
        return (weight * factor.reshape(axes)).astype(weight.dtype)
    # ConvTranspose: input channels first, output channels of each group second.
    grouped = weight.reshape(group, -1, *weight.shape[1:])
    shaped = factor.reshape(group, 1, weight.shape[1], *(1,) * (weight.ndim - 2))
    return (grouped * shaped).astype(weight.dtype).reshape(weight.shape)


@dataclass(frozen=True)
class Link:
    """One node of a chain, which computes ``factor * source + offset``."""

    node: Node
    source: Tensor
    factor: np.ndarray  # float64, [] or [C]
    offset: np.ndarray

    @property
    def channels(self) -> int:
        """Return the number of channels with a value of their own; 1 for a scalar."""
        return max(self.factor.size, self.offset.size)


def link_of(model: Model, node: Node) -> Link | str | None:
    """Return the node as a link, the reason why it is no link, or None for other operators."""
    if node.op != "BatchNormalization":
        return _two_sided_link(node) if node.op in TWO_SIDED else None
    affine = batchnorm(model, node)
    if isinstance(affine, str):
        return affine
    if model.opset < INFERENCE_ONLY:
        return f"BatchNormalization of opset {model.opset} may be in training mode"
    # Its input may be of another type than its parameters.
    dtypes = [query.dtype_name(t) for t in list(node.inputs)[:5]]
    foreign = next((d for d in dtypes if d not in ("", "float32")), "")
    return f"it computes in {foreign}" if foreign else Link(node, node.inputs[0], *affine)


def _two_sided_link(node: Node) -> Link | str | None:
    constants = [query.constant_input(node, index) for index in (0, 1)]
    if sum(c is not None for c in constants) != 1:
        return None
    index = 0 if constants[1] is not None else 1
    array, source = constants[1 - index], node.inputs[index]
    if array is None or (node.op == "Div" and index == 1):
        return None
    values = channel_values(array, query.shape(source))
    if values is None and array.size == 1:
        return None
    if values is None:
        return f"its constant of shape {array.shape} is not per channel"
    if reason := type_obstacle(array):
        return reason
    factor, offset = _two_sided(node.op, values, swapped=index == 1)
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return "its constant is zero or not finite"
    return Link(node, source, factor, offset)


def rewrite_chain(model: Model, device: TargetDevice, log: Log, link: Link) -> int:
    """Turn the longest chain around a link into one depthwise convolution.

    Returns:
        1, or 0 where the target does not take that convolution.
    """
    links = _chain(model, device, link)
    nodes = [member.node for member in links]
    return replace_by_conv(model, log, nodes, _convolution(model, device, links))


def _chain(model: Model, device: TargetDevice, link: Link) -> list[Link]:
    """Return the longest chain with this link whose inner tensors have one consumer each."""
    links = [link]
    while query.sole_consumer(model, links[0].source) is not None:
        before = _adjacent_link(model, device, query.producer(links[0].source))
        if before is None:
            break
        links.insert(0, before)
    while True:
        result = links[-1].node.outputs[0]
        following = _adjacent_link(model, device, query.sole_consumer(model, result))
        if following is None or following.source is not result:
            return links
        links.append(following)


def _adjacent_link(model: Model, device: TargetDevice, node: Node | None) -> Link | None:
    # A node of a subgraph reads tensors of this graph, but does not belong to it.
    if node is None or not query.is_standard(node) or not model.is_top_level(node):
        return None
    joined = link_of(model, node) if device.offloads(node) else None
    return joined if isinstance(joined, Link) else None


def _convolution(model: Model, device: TargetDevice, links: list[Link]) -> ConvForm | str:
    source = links[0].source
    dims = query.shape(source)
    layout = None if dims is None else CHANNELS_SECOND.get(len(dims))
    if dims is None or layout is None:
        return "its rank is not known" if dims is None else f"its input has rank {len(dims)}"
    channels = max(link.channels for link in links)
    sizes = {size for link in links for size in (link.factor.size, link.offset.size)}
    if not sizes <= {1, channels}:
        return "its statistics and those beside it differ in their numbers of channels"
    factor, offset = links[0].factor, links[0].offset
    for link in links[1:]:
        factor, offset = factor * link.factor, offset * link.factor + link.offset
    win = considered((channels, 1, 1, 1), layout.apply(dims), group=channels)
    if reason := obstacle(model, device, layout, win):
        return reason
    with np.errstate(over="ignore"):
        weight = np.broadcast_to(factor, channels).astype(np.float32).reshape(-1, 1, 1, 1)
        bias = np.broadcast_to(offset, channels).astype(np.float32) if np.any(offset) else None
    if not np.isfinite(weight).all() or not np.isfinite(0 if bias is None else bias).all():
        return "its factors or offsets are not finite"
    return ConvForm(source, layout, win, weight, bias)
