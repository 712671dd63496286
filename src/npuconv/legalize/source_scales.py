"""Groups of a plan that have encodings of a model that was quantized before it came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from npuconv.model import Model, Node, query
from npuconv.partition.operators import passes_int8
from npuconv.partition.placement import Group, Plan
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding

_RENAMING = ("Conv", "Relu", "Clip")  # operators whose outputs rewrites rename
_COMPARING = ("Relu", "Clip", "Concat")  # operators that change numbers, or join tensors
_ALWAYS_MOVING = ("Pad", "Cast", "Identity")  # operators that move integers at any zero point
_DEPTHWISE = 1  # input channels of each group: their scales move into the weights' scales


@dataclass
class ImportedScales:
    """Encodings of the source for the groups of a plan."""

    groups: dict[str, Encoding] = field(default_factory=dict)  # encoding by name of the group
    # Reason why a tensor or layer lacks the scales of the source, by name.
    changed: dict[str, str] = field(default_factory=dict)


def match_groups(model: Model, plan: Plan) -> ImportedScales:
    """Find the encoding of every group of int8 tensors.

    A tensor with consumers other than passthrough operators comes first: it is the last
    rounding. A tensor that a rewrite has renamed is known by its producer.
    """
    source, used = model.source_scales, set[str]()
    producers = {t.name: node for node in model.nodes() for t in node.outputs}
    imported = ImportedScales(changed=dict(source.lost))
    for group in plan.groups:
        names = list(dict.fromkeys(_tensors_of(model, group, producers)))
        used.update(names)
        if not names:
            continue
        imported.groups[group.name] = encoding = source.tensors[names[0]]
        for name in names[1:]:
            if not encoding.equals(source.tensors[name]):
                imported.changed[name] = f"it shares the scale of {names[0]!r} on the device"
    for name in source.tensors:
        if name not in used:
            reason = "the host computes it in float, or it is merged with another"
            imported.changed[name] = reason
    return imported


def _tensors_of(model: Model, group: Group, producers: Mapping[str, Node]) -> Iterator[str]:
    """Yield names of tensors of the source that a group represents, decisive tensors first."""
    source = model.source_scales
    for name in (*group.outputs, *reversed(group.tensors)):
        producer = producers.get(name)
        tensors = (t for t in (name, *_moved(producer)) if t in source.tensors)
        if (tensor := next(tensors, None)) is not None:
            yield tensor
        elif producer is not None and producer.op in _RENAMING:
            labels = reversed(model.origin(producer))
            by_producer = source.tensor_by_producer
            yield from (by_producer[label] for label in labels if label in by_producer)


def is_complete(model: Model, plan: Plan) -> bool:
    """Return whether every int8 tensor of a plan has a scale from the source."""
    groups = match_groups(model, plan).groups if model.source_scales else {}
    return bool(groups) and all(group.name in groups for group in plan.groups)


def uniform_tensors(model: Model, plan: Plan) -> list[str]:
    """Return tensors with one scale because of the scales or the integer weights of the source.

    Integer weights of a dense convolution stay unchanged only if all of its input channels
    have the same scale; depthwise weights stay unchanged at any scales.
    """
    if not model.source_scales:
        return []
    groups = match_groups(model, plan).groups
    names = [name for group in plan.groups if group.name in groups for name in group.tensors]
    for conv in plan.convolutions:
        dims = query.shape(conv.inputs[1])
        is_depthwise = dims is not None and dims[1] == _DEPTHWISE
        if model.source_scales.weights_of(model.origin(conv)) is not None and not is_depthwise:
            names.append(conv.inputs[0].name)
    return names


def _moved(producer: Node | None) -> Iterator[str]:
    """Yield the tensors from which operators only move numbers into a tensor, nearest first."""
    while producer is not None:
        if producer.op not in _ALWAYS_MOVING and (
            producer.op in _COMPARING or not passes_int8(producer, {id(t) for t in producer.inputs})
        ):
            return
        yield producer.inputs[0].name
        producer = query.producer(producer.inputs[0])
