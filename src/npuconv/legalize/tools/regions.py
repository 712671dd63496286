"""Regions that read one tensor: operators that together are one operator, spelled out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.model import edit, facts, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

Places = Mapping[int, int]  # position in the order of the model, by id of the node


@dataclass(frozen=True)
class SpelledOperator:
    """The operator that a region spells out."""

    op: str
    opset: int  # opset of the operator
    attributes: Mapping[str, float | str] = field(default_factory=dict)


def places(model: Model) -> Places:
    """Return the position of every node."""
    return {id(node): number for number, node in enumerate(model.nodes())}


def growing(
    node: Node, place: Places, is_member: Callable[[Node], bool], longest: int
) -> Iterator[tuple[list[Node], Tensor]]:
    """Yield growing regions that end in a node and read one tensor, in order, with that tensor.

    Args:
        node: the last of the region, a member.
        place: position of every node in the order of the model.
        is_member: whether a node may be in a region.
        longest: nodes of a region, at most.
    """
    region = [node]
    for _ in range(longest):
        internal = {id(member.outputs[0]) for member in region}
        read = {id(t): t for member in region for t in values(member) if id(t) not in internal}
        if len(region) > 1 and len(read) == 1:
            yield list(region), next(iter(read.values()))
        producers = [query.producer(tensor) for tensor in read.values()]
        last = max(producers, key=lambda n: -1 if n is None else place.get(id(n), -1), default=None)
        if last is None or id(last) not in place or not is_member(last):
            return
        region.insert(0, last)
        region.sort(key=lambda member: place[id(member)])


def values(node: Node) -> list[Tensor]:
    """Return the inputs that are not constant."""
    return [t for t in node.inputs if t.name and not query.is_constant(t)]


def write(
    model: Model,
    device: TargetDevice,
    log: Log,
    region: Sequence[Node],
    inputs: Sequence[Tensor],
    spelled: SpelledOperator,
) -> int:
    """Write a region as the operator that it spells out.

    Args:
        model: the model of the region.
        device: device whose target lists the operator, or whose format has it.
        log: gets the rewrite, or the reason against it.
        region: nodes in order, of which the last makes the result.
        inputs: inputs of the operator.
        spelled: operator that the region spells out.

    Returns:
        1, or 0 if there is an obstacle, which the report shows.
    """
    if reason := _obstacle(model, device, region, inputs[0], spelled):
        log.refuse(model, region[-1], f"it is {spelled.op} spelled out{reason}")
        return 0
    before, dims = " + ".join(member.op for member in region), query.shape(inputs[0])
    axis = spelled.attributes.get("axis")  # constants have the extents from this axis on
    exact = range(int(axis), len(dims or ())) if axis is not None else ()
    with log.rewrite(model, region, before, spelled.op, exact=exact):
        attrs = dict(spelled.attributes)
        fused = edit.insert(model, spelled.op, inputs, origin=region, shape=dims, attrs=attrs)
        edit.hand_over(fused, region[-1].outputs[0])
        for node in region:
            edit.disconnect(node)
    return 1


def _obstacle(
    model: Model,
    device: TargetDevice,
    region: Sequence[Node],
    source: Tensor,
    spelled: SpelledOperator,
) -> str:
    """Return why a region cannot become the operator, or ''."""
    inside, between = {id(node) for node in region}, [node.outputs[0] for node in region[:-1]]
    consumers = [consumer for tensor in between for consumer in query.consumers(tensor)]
    if any(map(model.is_output, between)) or any(
        id(consumer) not in inside for consumer in consumers
    ):
        return ", but a value in between is read elsewhere, too"
    if model.opset < spelled.opset:
        return f", which opset {model.opset} does not have"
    operator = device.target.operator(spelled.op)
    measured = facts.considered(source, spelled.attributes)
    objections = [] if operator is None else operator.objections(measured)
    return f": {objections[0]}" if objections else ""
