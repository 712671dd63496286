"""Join the parts of a convolution whose sums the device adds in its accumulator.

Where the target says ``accumulate: int32``, the convolutions that one layer was fitted
into by input channels, or by parts of its window, are quantized as one: no partial sum
is an int8 tensor, and none is rounded. The written model has the parts again, as
ConvInteger whose int32 results are added, and one requantization behind.
"""

from __future__ import annotations

from dataclasses import replace

from npuconv.legalize.annotations import Annotations, Splits
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.partial_sums import SUMS, PartialSum, partial_sum
from npuconv.model.types import Node


@model_pass(Phase.ACCUMULATE)
def join_partial_sums(
    model: Model, device: TargetDevice, log: Log, annotations: Annotations
) -> tuple[int, Annotations]:
    if not device.accumulates:
        return 0, annotations
    splits, fired, removed = annotations.splits, 0, set[int]()
    for node in model.nodes(*SUMS)[::-1]:  # the last sum has all others of its layer in it
        total = partial_sum(model, node.outputs[0]) if id(node) not in removed else None
        if total is not None and not total.constants and _is_one_layer(splits, total):
            removed |= {id(part) for part in total.nodes(node.outputs[0])}
            splits, fired = _join(model, log, splits, node, total), fired + 1
        elif id(node) not in removed and _adds_parts(splits, node):
            log.refuse(model, node, "what it adds are no parts of one Conv: it adds int8 tensors")
    return fired, replace(annotations, splits=splits)


def _join(model: Model, log: Log, splits: Splits, node: Node, total: PartialSum) -> Splits:
    from npuconv.legalize.fitting.builder import Fragment

    result, convs = node.outputs[0], list(total.convs)
    before, after = f"{len(convs)} Conv, added", "Conv, its parts added in int32"
    nodes = total.nodes(result)
    with log.rewrite(model, nodes, before, after, outputs=[result], modulus=None) as record:
        weights, biases = (
            [array for conv in convs if (array := query.constant_input(conv, i)) is not None]
            for i in (1, 2)
        )
        weight = total.joined(weights)
        bias = sum(biases[1:], biases[0]) if biases else None
        inputs = [total.source, edit.constant(model, f"{convs[0].name}/joined", weight)]
        inputs += [] if bias is None else [edit.constant(model, f"{convs[0].name}/bias", bias)]
        joined = edit.insert(
            model, "Conv", inputs, origin=convs, shape=query.shape(result), attrs=total.attrs
        )
        maker = query.producer(joined)
        assert maker is not None, "it has just been made"
        # The weights of the layer that the joined convolution has.
        fragments = [splits.fragments[conv.name] for conv in convs]
        places = total.joined([fragment.places + 1 for fragment in fragments]) - 1
        biased = any(fragment.biased for fragment in fragments)
        fragment = Fragment(fragments[0].whole, places, biased=biased)
        edit.hand_over(joined, result)
        record.note = "no partial sum is rounded"
    return replace(
        splits,
        fragments={**splits.fragments, maker.name: fragment},
        parts={**splits.parts, maker.name: total.parts},
    )


def _adds_parts(splits: Splits, node: Node) -> bool:
    """Return whether a node adds outputs of a split convolution."""
    makers = [maker for t in node.inputs if (maker := query.producer(t)) is not None]
    fragments = [splits.fragments.get(maker.name) for maker in makers]
    return any(fragment is not None and fragment.summed for fragment in fragments)


def _is_one_layer(splits: Splits, total: PartialSum) -> bool:
    """Return whether one layer was fitted into these parts, and all have constant weights."""
    fragments = [splits.fragments.get(conv.name) for conv in total.convs]
    layers = {part.whole.name for part in fragments if part is not None and part.summed}
    constant = all(query.constant_input(conv, 1) is not None for conv in total.convs)
    return None not in fragments and len(layers) == 1 and constant
