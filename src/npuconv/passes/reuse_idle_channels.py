"""Let channels that say nothing make others again, where that makes these finer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.passes import Phase, model_pass
from npuconv.passes._again import repeat_rows, share_columns

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.passes._context import PassContext
    from npuconv.plan.strands import Strand


@model_pass(Phase.REPEAT)
def reuse_idle_channels(model: Model, ctx: PassContext) -> int:
    """Let channels that say nothing make others again, where that makes these finer.

    Training leaves channels behind that have one value whatever the model is given: their
    weights have decayed to nothing, and mostly a Relu cuts off the bias. The device
    multiplies them all the same. Of the other channels a few often make most of the noise.
    Those are made twice or more, in place of the idle ones, each copy with its own
    rounding: a share of a step apart, so that together they are as fine as steps of half
    the size or less. What mixes the channels reads each copy with its share of the weights.

    It costs nothing: no multiplication is added, and no tensor changes its shape. In float
    the model computes the same. Which channels are worth it is measured in the outputs.
    """
    wanted, ctx.reuse = ctx.reuse, {}
    if ctx.plan is None or not wanted:
        return 0
    from npuconv.plan.strands import strand

    makers = [conv for conv in ctx.plan.device if conv.name in wanted]
    for maker in makers:
        found = strand(model, ctx.plan, maker)
        assert found is not None, "it was one when the channels were chosen"
        _reuse(model, ctx, found, wanted[maker.name])
    return len(makers)


def _reuse(model: Model, ctx: PassContext, found: Strand, index: tuple[int, ...]) -> None:
    from npuconv.plan.levels import Levels, levels, parameters

    _, bias = parameters(found.maker)
    held = levels(found, Levels(bias, bias))  # of those that are idle
    nodes = [found.maker, *found.between, *found.readers]
    kept = [t for node in found.readers for t in node.outputs]
    ctx.channels.update(dict.fromkeys(found.tensors, index))
    with ctx.rewrite(model, nodes, _names(nodes), _said(index), outputs=kept):
        for conv in found.makers:
            repeat_rows(model, conv, index)
        for conv in found.readers:
            share_columns(model, conv, index, held[conv.inputs[0].name].low)


def _names(nodes: list[Node]) -> str:
    return " + ".join(node.op for node in nodes)


def _said(index: tuple[int, ...]) -> str:
    """How many channels are made again, and which."""
    copies = [channel for place, channel in enumerate(index) if place != channel]
    several = ", ".join(map(str, sorted(set(copies))))
    if len(copies) == 1:
        return f"1 idle channel is a copy of {several}"
    return f"{len(copies)} idle channels are copies of {several}"
