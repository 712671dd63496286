"""The layers of a conversion: convolutions on the device, and where their results are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from npuconv.evaluate.matching import LayerPair
from npuconv.model import nhwc, query

if TYPE_CHECKING:
    from npuconv.emit.context import EmitContext
    from npuconv.legalize.legal import LegalModel
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.quantize.oversampling import Oversampled


class Layer(NamedTuple):
    """A convolution on the device."""

    shown: str  # its label, with a number where several stand for one source node
    label: str
    tensor: str  # its result
    node: str  # its name in the float model


def layers_of(legal: LegalModel) -> list[Layer]:
    """Every device convolution with the tensor that is its layer's result."""
    labels = [legal.model.label(conv) for conv in legal.plan.device]
    total, number = Counter(labels), Counter[str]()
    rows = []
    for conv, label in zip(legal.plan.device, labels, strict=True):
        number[label] += 1
        part = f" ({number[label]} of {total[label]})" if total[label] > 1 else ""
        rows.append(Layer(label + part, label, _result(legal, conv).name, conv.name))
    return rows


def _result(legal: LegalModel, conv: Node) -> Tensor:
    """A layer ends behind its activation: what that cuts off is no loss.

    A max pool in between does not matter: it and a clip may change places.
    """
    found = tensor = conv.outputs[0]
    while (reader := query.sole_consumer(legal.model, tensor)) is not None:
        if reader.op not in ("Relu", "Clip", "MaxPool") or not legal.plan.is_passthrough(reader):
            break
        tensor = reader.outputs[0]
        if reader.op != "MaxPool":
            return tensor
    return found


def stored(
    model: Model, ctx: EmitContext, layers: list[Layer], oversampled: Oversampled
) -> list[LayerPair]:
    """Return where the layers' results are in the converted model, in the order of the layers.

    Args:
        model: the emitted graph.
        ctx: of the passes that emitted it.
        layers: of the float model.
        oversampled: layers and channels that are made several times.
    """
    encodings = oversampled.state.encodings
    times = {one.node: sum(conv for _, _, conv in one.copies) for one in oversampled.repeated}
    channels = {t: one.index for one in oversampled.duplicated for t in one.path.tensors}
    made = {t.name: t for node in model.nodes() for t in node.outputs}
    last = {name for name, t in made.items() if nhwc.holds_channels_last(t)}
    several = {old: new for one in oversampled.duplicated for new, old in one.old.items()}
    found = [
        LayerPair(
            name=shown,
            tensor=tensor,
            stored=ctx.stored[own],
            scale=encodings[own].scales,
            zero_point=encodings[own].zeros,
            note=ctx.notes.get(label, "") or _copied(channels.get(own, ())),
            channels_last=ctx.stored[own] in last,
            channels=channels.get(own, ()),
        )
        for shown, label, tensor, _ in layers
        if (own := several.get(tensor, tensor)) in ctx.stored
    ] + [
        LayerPair(
            name=layer.shown,
            tensor=layer.tensor,
            stored=layer.tensor,  # the mean of the copies, which the host takes in float
            scale=1.0,
            note=f"the mean of {times[layer.node]} copies",
            channels=channels.get(layer.tensor, ()),
        )
        for layer in layers
        if layer.node in times
    ]
    order = {layer.shown: place for place, layer in enumerate(layers)}
    return sorted(found, key=lambda one: order[one.name])


def _copied(channels: tuple[int, ...]) -> str:
    count = len(channels) - len(set(channels))
    what = "1 channel is" if count == 1 else f"{count} channels are"
    return f"{what} duplicated, so that steps are finer" if count else ""
