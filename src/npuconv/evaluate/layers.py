"""The layers of a conversion: convolutions on the device, and where their results are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from npuconv.evaluate.matching import LayerPair
from npuconv.model import nhwc, query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.partition import Plan
    from npuconv.quantize.oversampling import Oversampled


class Layer(NamedTuple):
    """A convolution on the device."""

    shown: str  # its label, with a number where several stand for one source node
    label: str
    tensor: str  # its result
    node: str  # its name in the float model


def layers_of(model: Model, plan: Plan) -> list[Layer]:
    """Return every device convolution with the tensor that is its layer's result."""
    labels = [model.label(conv) for conv in plan.device]
    total, number = Counter(labels), Counter[str]()
    rows = []
    for conv, label in zip(plan.device, labels, strict=True):
        number[label] += 1
        part = f" ({number[label]} of {total[label]})" if total[label] > 1 else ""
        rows.append(Layer(label + part, label, _result(model, plan, conv).name, conv.name))
    return rows


def _result(model: Model, plan: Plan, conv: Node) -> Tensor:
    """Return the end of a layer, behind its activation: clipping there is no loss.

    A max pool in between does not matter: it and a clip may change places.
    """
    found = tensor = conv.outputs[0]
    while (reader := query.sole_consumer(model, tensor)) is not None:
        if reader.op not in ("Relu", "Clip", "MaxPool") or not plan.is_passthrough(reader):
            break
        tensor = reader.outputs[0]
        if reader.op != "MaxPool":
            return tensor
    return found


def layer_pairs(
    model: Model,
    layers: list[Layer],
    oversampled: Oversampled,
    stored: Mapping[str, str],
    notes: Mapping[str, str],
) -> list[LayerPair]:
    """Return where the layers' results are in the converted model, in the order of the layers.

    Args:
        model: the converted model.
        layers: of the float model.
        oversampled: layers and channels that are made several times.
        stored: name of the int8 tensor by float tensor.
        notes: by label of a layer.
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
            stored=stored[own],
            scale=encodings[own].scales,
            zero_point=encodings[own].zeros,
            note=notes.get(label, "") or _copied(channels.get(own, ())),
            channels_last=stored[own] in last,
            channels=channels.get(own, ()),
        )
        for shown, label, tensor, _ in layers
        if (own := several.get(tensor, tensor)) in stored
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
