"""Rewrite onnxruntime's convolutions and pools with the channels last as standard ones.

A Conv, ConvTranspose, MaxPool, AveragePool, GlobalMaxPool or GlobalAveragePool of
com.ms.internal.nhwc becomes the standard operator between two Transposes, followed by
the activation it names: Relu, Clip, LeakyRelu, Sigmoid, Tanh or HardSigmoid. Weights
have the standard order already.

No runtime on a CPU runs that domain, so the result is compared with npuconv's own
evaluator of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.layout import transpose
from npuconv.legalize.tools.replace import activate
from npuconv.model import conv, edit, nhwc, query
from npuconv.model.conv import resolved_pads, window
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor


@model_pass(Phase.CANONICALIZE, after=("raise-opset",), infers=True)
def rewrite_nhwc_as_nchw(model: Model, ctx: PassContext) -> int:
    nodes = [node for node in model.nodes() if nhwc.is_nhwc(node)]
    reasons = [(node, _rewrite(model, ctx, node)) for node in nodes]
    left = [(node, reason) for node, reason in reasons if reason]
    fired = len(nodes) - len(left)
    if not fired:  # what stands behind a node that was rewritten is better known next time
        for node, reason in left:
            ctx.refuse(model, node, reason)
    elif not any(nhwc.is_nhwc(node) and len(node.outputs) for node, _ in model.walk()):
        edit.drop_domain(model, nhwc.DOMAIN)
    return fired


def _rewrite(model: Model, ctx: PassContext, node: Node) -> str:
    """Rewrite one node, or say why it cannot be."""
    reason = nhwc.obstacle(node, model.opset)
    if reason:
        return reason
    _complete(node)
    name = nhwc.activation(node)
    after = f"Transpose, {node.op}, {f'{name}, ' if name else ''}Transpose"
    strides = query.attribute(node, "strides", None) or [1]
    with ctx.rewrite(
        model, [node], query.qualified(node), after, modulus=math.lcm(*map(int, strides))
    ):
        _replace(model, node)
    return ""


def _complete(node: Node) -> None:
    """Note types and extents of its tensors: ONNX's inference does not know the operator."""
    source, result = node.inputs[0], node.outputs[0]
    rank = nhwc.rank(node) or 0
    if source.dtype is None and len(node.inputs) > 1:
        source.dtype = node.inputs[1].dtype
    if result.dtype is None:
        result.dtype = source.dtype
    _note(source, [*[None] * (rank - 1), nhwc.in_channels(node)])
    batch, *_ = query.shape(source) or (None,)
    _note(result, [batch, *_out_extents(node, rank - 2), _out_channels(node)])


def _note(tensor: Tensor, dims: Sequence[int | str | None]) -> None:
    """Note extents: a number replaces a name, a name replaces None."""
    old = query.shape(tensor) or (None,) * len(dims)
    pairs = zip(old, dims, strict=True)
    tensor.shape = [b if isinstance(b, int) or a is None else a for a, b in pairs]


def _out_extents(node: Node, axes: int) -> list[int | None]:
    """Return spatial extents of the result, as far as attributes and input tell them."""
    if node.op in nhwc.GLOBAL_POOLS:
        return [1] * axes
    win = window(node)
    found = None if win is None or query.attribute(node, "ceil_mode", 0) else resolved_pads(win)
    if win is None or win.kernel is None or found is None or isinstance(found, int):
        return [None] * axes
    pads, extra = found
    rows = zip(win.kernel, win.strides, win.dilations, pads, extra, strict=True)
    return [_out_extent(node.op, win.extent(axis), *row) for axis, row in enumerate(rows)]


def _out_extent(
    op: str,
    extent: int | None,
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    extra: int,
) -> int | None:
    if extent is None:
        return None
    if op == "ConvTranspose":
        return conv.transpose_output(extent, kernel, stride, dilation, pads, extra)
    return conv.conv_output(extent, kernel, stride, dilation, pads)


def _out_channels(node: Node) -> int | None:
    weight = query.static_shape(query.input_of(node, 1))
    if weight is None:
        return nhwc.in_channels(node) if node.op not in query.CONVOLUTIONS else None
    group = int(query.attribute(node, "group", 1))
    return weight[0] if node.op == "Conv" else weight[1] * group


def _replace(model: Model, node: Node) -> None:
    rank, result = nhwc.rank(node) or 0, node.outputs[0]
    dims = query.shape(result)
    first = None if dims is None else nhwc.channels_first(dims)
    attrs = {key: value for key, value in node.attrs.items() if key not in nhwc.FUSED}
    x = transpose(model, node, node.inputs[0], nhwc.to_first(rank), query.shape(node.inputs[0]))
    rest = list(node.inputs)[1:]
    y = edit.insert(model, node.op, [x, *rest], origin=[node], shape=first, attrs=attrs)
    maker = query.producer(y)
    assert maker is not None, "insert gave it one"
    edit.keep_name(maker, node)
    if nhwc.activation(node):
        y = activate(model, node, y)
    edit.hand_over(transpose(model, node, y, nhwc.to_last(rank), query.shape(y)), result)
