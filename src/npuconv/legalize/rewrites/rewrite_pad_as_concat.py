"""Rewrite a Pad that repeats cells as Slice and Concat.

Mode `edge` repeats the outermost cells, mode `wrap` those of the other end. Only where the
form or the target lacks such a Pad, and the target takes both Slice and Concat, which pass
int8 on unchanged, or the form is TFLite, whose MIRROR_PAD only reflects.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, facts, query
from npuconv.model.conv import flat_pads
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

OPSET = 11  # the opset since which amounts are an input, as the bounds of a Slice are
TO_THE_END = 2**63 - 1


@model_pass(Phase.LEGALIZE, after=("split-pad",), infers=True)
def rewrite_pad_as_concat(model: Model, ctx: PassContext) -> int:
    pads = [node for node in model.nodes("Pad") if query.pad_mode(node) in ("edge", "wrap")]
    moves = all(ctx.target.operator(op) is not None for op in ("Slice", "Concat"))
    if model.opset < OPSET or not (moves or ctx.options.format == "tflite"):
        return 0
    return sum(_rewrite(model, ctx, node) for node in pads)


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    operator, amounts = ctx.target.operator("Pad"), query.pad_amounts(node)
    taken = operator is not None and not operator.objections(facts.settled(node))
    dims = query.shape(node.inputs[0])
    if taken and ctx.options.format != "tflite":
        return 0
    if amounts is None or dims is None or len(dims) != len(amounts) or min(map(min, amounts)) < 0:
        return 0
    mode, padded = query.pad_mode(node), [axis for axis, pair in enumerate(amounts) if any(pair)]
    extents = {axis: dim for axis in padded if isinstance(dim := dims[axis], int)}
    if mode == "wrap" and any(max(amounts[axis]) > extents.get(axis, 0) for axis in padded):
        ctx.refuse(model, node, "it wraps around more cells than an axis is known to have")
        return 0
    if not padded:
        return 0
    with ctx.rewrite(
        model, [node], f"Pad {flat_pads(amounts)} of mode {mode}", "Slice + Concat", modulus=None
    ):
        result = node.inputs[0]
        for axis in padded:
            result = _padded(model, node, result, axis, amounts[axis])
        edit.hand_over(result, node.outputs[0])
        edit.disconnect(node)
    return 1


def _padded(model: Model, node: Node, x: Tensor, axis: int, amounts: tuple[int, int]) -> Tensor:
    """Return a tensor that is padded along one axis."""

    def cells(start: int, end: int) -> Tensor:
        bounds = [edit.integers(model, f"{node.name}/bounds", [v]) for v in (start, end, axis)]
        return edit.insert(model, "Slice", [x, *bounds], origin=[node])

    begin, end = amounts
    if query.pad_mode(node) == "edge":
        parts = [*[cells(0, 1)] * begin, x, *[cells(-1, TO_THE_END)] * end]
    else:
        parts = [cells(-begin, TO_THE_END)] * bool(begin) + [x] + [cells(0, end)] * bool(end)
    return edit.insert(model, "Concat", parts, origin=[node], attrs={"axis": axis})
