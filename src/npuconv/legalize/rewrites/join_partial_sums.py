"""Join the parts of a convolution whose sums the device adds in its accumulator.

Where the target says ``accumulate: int32``, the convolutions that one layer was fitted
into by input channels, or by parts of its window, are quantized as one: no partial sum
is an int8 tensor, and none is rounded. The written model has the parts again, as
ConvInteger whose int32 results are added, and one requantization behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.partial_sums import SUMS, PartialSum, partial_sum
from npuconv.model.types import Node

if TYPE_CHECKING:
    import numpy as np


@model_pass(Phase.ACCUMULATE)
def join_partial_sums(model: Model, ctx: PassContext) -> int:
    if not ctx.accumulates:
        return 0
    joined, gone = 0, set[int]()
    for node in model.nodes(*SUMS)[::-1]:  # the last sum has all others of its layer in it
        found = partial_sum(model, node.outputs[0]) if id(node) not in gone else None
        if found is not None and not found.constants and _is_one_layer(ctx, found):
            gone |= {id(one) for one in found.nodes(node.outputs[0])}
            joined += _join(model, ctx, node, found)
        elif id(node) not in gone and _adds_parts(ctx, node):
            ctx.refuse(model, node, "what it adds are no parts of one Conv: it adds int8 tensors")
    return joined


def _join(model: Model, ctx: PassContext, node: Node, found: PartialSum) -> int:
    result, convs = node.outputs[0], list(found.convs)
    before, after = f"{len(convs)} Conv, added", "Conv, its parts added in int32"
    nodes = found.nodes(result)
    with ctx.rewrite(model, nodes, before, after, outputs=[result], modulus=None) as record:
        weights, bias = [query.constant_input(conv, 1) for conv in convs], _bias(convs)
        weight = found.joined([own for own in weights if own is not None])
        inputs = [found.source, edit.constant(model, f"{convs[0].name}/joined", weight)]
        inputs += [] if bias is None else [edit.constant(model, f"{convs[0].name}/bias", bias)]
        joined = edit.insert(
            model, "Conv", inputs, origin=convs, shape=query.shape(result), attrs=found.attrs
        )
        maker = query.producer(joined)
        assert maker is not None, "it has just been made"
        _note(ctx, maker, found)
        edit.hand_over(joined, result)
        record.note = "no partial sum is rounded"
    return 1


def _adds_parts(ctx: PassContext, node: Node) -> bool:
    """Return whether a convolution in parts is among what a node adds."""
    makers = [maker for t in node.inputs if (maker := query.producer(t)) is not None]
    known = [ctx.fragments.get(maker.name) for maker in makers]
    return any(one is not None and one.summed for one in known)


def _is_one_layer(ctx: PassContext, found: PartialSum) -> bool:
    """Return whether one layer was fitted into these parts, and all have constant weights."""
    every = [ctx.fragments.get(conv.name) for conv in found.convs]
    layers = {one.whole.name for one in every if one is not None and one.summed}
    constant = all(query.constant_input(conv, 1) is not None for conv in found.convs)
    return None not in every and len(layers) == 1 and constant


def _bias(convs: list[Node]) -> np.ndarray | None:
    """Return the sum of the biases; None where no part has one."""
    found = [bias for conv in convs if (bias := query.constant_input(conv, 2)) is not None]
    total = found[0] if found else None
    for bias in found[1:]:
        total = total + bias
    return total


def _note(ctx: PassContext, joined: Node, found: PartialSum) -> None:
    """Note the parts of a convolution, and which weights of its layer it has."""
    from npuconv.legalize.fitting.builder import Fragment

    own = [ctx.fragments[conv.name] for conv in found.convs]
    places = found.joined([one.places + 1 for one in own]) - 1
    biased = any(one.biased for one in own)
    ctx.parts[joined.name] = found.parts
    ctx.fragments[joined.name] = Fragment(own[0].whole, places, biased=biased)
