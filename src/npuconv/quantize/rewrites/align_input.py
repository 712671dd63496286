"""Move an input of the device by part of a step, so that int8 holds its values exactly.

Pixels that were normalized are whole steps apart, but 0 is often between two of them:
with ``pixel / 127.5 - 1`` it is half a step from both, and a zero point, which is an
integer, rounds every second pair of neighbours to the same integer. So the host takes
the part of a step off before it rounds, and the bias of what reads the tensor makes up
for it. That is done where calibration samples lie on such a grid, and for convolutions
that do not pad: a pad is 0, and not 0 less than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.conv import window
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.partition import Plan
from npuconv.partition.crossings import readers

if TYPE_CHECKING:
    import numpy as np


@model_pass(Phase.HOST_PREP, after=("pad-on-host",))
def align_input(
    model: Model, ctx: PassContext, plan: Plan, offsets: Mapping[str, np.ndarray]
) -> int:
    found = readers(plan)
    return sum(_align(model, ctx, found[name], by) for name, by in offsets.items())


def _align(model: Model, ctx: PassContext, convs: list[Node], offsets: np.ndarray) -> int:
    import numpy as np

    weights = [query.constant_input(conv, 1) for conv in convs]
    if any(weight is None or weight.ndim != 4 for weight in weights):
        return 0
    if said := [text for conv in convs for text in _objections(ctx, conv)]:
        ctx.refuse(model, convs[0], said[0])
        return 0
    source = convs[0].inputs[0]
    after = f"Sub of {_numbers(offsets)} on the host + Conv with another bias"
    with ctx.rewrite(model, convs, "Conv", after) as record:
        values = np.asarray(offsets, weights[0].dtype).reshape(1, -1, 1, 1)  # type: ignore[union-attr]
        constant = edit.constant(model, f"{source.name}/offset", values)
        moved = edit.insert(
            model, "Sub", [source, constant], origin=convs, shape=query.shape(source)
        )
        for conv, weight in zip(convs, weights, strict=True):
            assert weight is not None
            bias = query.constant_input(conv, 2)
            made = _added(weight, offsets, _groups(conv)) + (0.0 if bias is None else bias)
            edit.set_input(conv, 0, moved)
            label = f"{model.label(conv)}/bias"
            edit.set_input(conv, 2, edit.constant(model, label, made.astype(weight.dtype)))
        record.note = "int8 holds the values that samples showed exactly"
    return 1


def _objections(ctx: PassContext, conv: Node) -> list[str]:
    """Return the objections of the target to adding a bias, if the convolution has none."""
    if query.input_of(conv, 2) is not None:
        return []
    return [text for win in ctx.windows(conv) for text in ctx.objections(win)]


def _groups(conv: Node) -> int:
    win = window(conv)
    return 1 if win is None else win.group


def _added(weight: np.ndarray, offsets: np.ndarray, groups: int) -> np.ndarray:
    """Return what the offsets of the input add to every output channel, float64 [M]."""
    from npuconv.arithmetic.layer import per_weight

    each = weight * per_weight(offsets, weight.shape, groups)
    return each.reshape(len(weight), -1).sum(axis=1)


def _numbers(offsets: np.ndarray) -> str:
    different = dict.fromkeys(f"{value:.4g}" for value in offsets)
    return ", ".join(list(different)[:4]) + (", ..." if len(different) > 4 else "")
