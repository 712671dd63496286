"""What crosses between device and host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.plan.placement import Plan


def transitions(model: Model, plan: Plan) -> int:
    """Tensors that cross between device and host, each counted once per direction."""
    crossings: set[tuple[str, bool]] = set()
    for node in model.nodes():
        here = plan.placement[id(node)] == "device"
        for tensor in node.inputs:
            maker = query.producer(tensor)
            if query.is_constant(tensor) or not tensor.name:
                continue
            there = maker is not None and plan.placement.get(id(maker)) == "device"
            if here != there:
                crossings.add((tensor.name, here))
        for tensor in node.outputs:
            if here and model.is_output(tensor):
                crossings.add((tensor.name, False))
    return len(crossings)
