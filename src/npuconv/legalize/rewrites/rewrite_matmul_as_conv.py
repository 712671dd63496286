"""Turn products with a constant matrix into 1x1 convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.disguise import Disguised, considered, convolve, obstacle, type_obstacle
from npuconv.legalize.tools.matmul import Product, constant_operand, per_output, product
from npuconv.model import edit, query

if TYPE_CHECKING:
    import numpy as np

    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@model_pass(Phase.LEGALIZE, infers=True)
def rewrite_matmul_as_conv(model: Model, ctx: PassContext) -> int:
    """Turn products with a constant matrix into 1x1 convolutions.

    Gemm and MatMul with one constant operand, where the target does not list them. The
    rows of a matrix become the batch, those of ``N x T x K`` the width; in front and
    behind stand only operators that move values. alpha, beta and what is added per output
    channel, also by an Add that alone reads the product, go into weights and bias; any
    other addend stays an Add. Where the target does not take so large a batch, the rows
    become the width. ``--no-offload`` leaves all alone. A product of two tensors that
    are computed, as in attention, is none.
    """
    return sum(_rewrite(model, ctx, node) for node in model.nodes("Gemm", "MatMul"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    if constant_operand(node) is None or not ctx.offloads(node):
        return 0
    found = product(node)
    if isinstance(found, str):
        ctx.refuse(model, node, found)
        return 0
    if not found.weight.size:
        return 0
    convolution = _convolution(model, ctx, found)
    if isinstance(convolution, str):
        ctx.refuse(model, node, convolution)
        return 0
    _replace(model, ctx, node, found, convolution)
    return 1


def _convolution(model: Model, ctx: PassContext, found: Product) -> Disguised | str:
    """Return the convolution in the first layout that the target takes, or the first obstacle."""
    import numpy as np

    dims = query.shape(found.source)
    assert dims is not None
    reason = type_obstacle(found.weight)
    weight = np.ascontiguousarray(found.weight)[:, :, None, None]
    for layout in () if reason else found.layouts:
        win = considered(weight.shape, layout.seen(dims))
        against = obstacle(model, ctx, layout, win)
        if not against:
            return Disguised(found.source, layout, win, weight)
        reason = reason or against
    return reason


def _replace(
    model: Model, ctx: PassContext, node: Node, found: Product, convolution: Disguised
) -> None:
    """Put the convolution there, with the addends that it can take."""
    from dataclasses import replace

    rank = query.rank(found.source) or 0
    bias, rest = _addend(found, rank)
    behind = _bias_behind(model, node, found, rank) if rest is None else None
    nodes = [node] if behind is None else [node, behind[0]]
    if behind is not None:
        bias = behind[1] if bias is None else bias + behind[1]
    if bias is not None:
        convolution = replace(convolution, bias=bias.astype(found.weight.dtype))
    before, after = " + ".join(n.op for n in nodes), convolution.text()
    # A small K would not fit the weights, so the extents are the real ones.
    with ctx.rewrite(model, nodes, before, after, modulus=None):
        edit.inherit(model, node, *nodes[1:])
        result = convolve(model, node, convolution)
        if rest is not None:
            result = _add(model, node, result, found, rest)
        edit.hand_over(result, nodes[-1].outputs[0])
        for each in nodes:
            edit.disconnect(each)


def _addend(found: Product, rank: int) -> tuple[np.ndarray | None, Tensor | None]:
    """The addend of a Gemm: as bias, or as what must be added behind."""
    array = query.value(found.addend)
    if array is None:
        return None, found.addend
    bias = per_output(array, found, rank)
    return (None, found.addend) if bias is None else (bias * found.factor, None)


def _bias_behind(
    model: Model, node: Node, found: Product, rank: int
) -> tuple[Node, np.ndarray] | None:
    """An Add per output channel that alone reads the product, and what it adds."""
    add = query.sole_consumer(model, node.outputs[0])
    if add is None or add.op != "Add" or not any(add is n for n in model.nodes("Add")):
        return None
    arrays = (query.constant_input(add, index) for index in (0, 1))
    array = next((a for a in arrays if a is not None), None)
    bias = None if array is None else per_output(array, found, rank)
    return None if bias is None else (add, bias)


def _add(model: Model, node: Node, result: Tensor, found: Product, rest: Tensor) -> Tensor:
    """``result + beta * rest``, on the host."""
    if found.factor != 1.0:
        array, stem = query.value(rest), f"{model.label(node)}/beta"
        factor = found.weight.dtype.type(found.factor)
        if array is not None:
            rest = edit.constant(model, stem, array * factor)
        else:
            beta, dims = edit.constant(model, stem, factor), query.shape(rest)
            rest = edit.insert(model, "Mul", [rest, beta], origin=[node], shape=dims)
    return edit.insert(model, "Add", [result, rest], origin=[node], shape=result.shape)
