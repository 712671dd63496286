"""Tensors whose channels must share a scale, whatever they hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.partition.channels import trace

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor
    from npuconv.partition.channels import Channels
    from npuconv.partition.placement import Plan

CUTTING = ("Relu", "Clip")


def upper_bound(node: Node) -> float:
    """Return the upper bound of a Relu or Clip; infinite where there is none."""
    bound = query.scalar_input(node, 2) if node.op == "Clip" else None
    return math.inf if bound is None else bound


def uniform(plan: Plan) -> list[str]:
    """Return tensors that need one scale: what int8 saturates to cannot stand for their bounds.

    Those of a Clip whose lower bound is not 0, or whose upper bound holds only for a part of
    what shares its scales; and those of a Pad that does not fill with 0.
    """
    names = []
    slots = trace(plan)
    made = [(c.outputs[0], frozenset(slots.slots(c.outputs[0].name))) for c in plan.device]
    for node in plan.carried:
        low = query.scalar_input(node, 1) if node.op == "Clip" else 0.0
        fill = (query.scalar_input(node, 2) if node.op == "Pad" else 0.0) or 0.0
        if low != 0 or fill != 0 or not _binds_all(plan, slots, made, node):
            names += [t.name for t in (node.inputs[0], *node.outputs)]
    return names


def _binds_all(
    plan: Plan, slots: Channels, made: list[tuple[Tensor, frozenset[int]]], clip: Node
) -> bool:
    """Return whether all that shares scales with the Clip has its upper bound, where it is read."""
    upper = upper_bound(clip) if clip.op in CUTTING else math.inf
    if not math.isfinite(upper):
        return True
    own = set(slots.slots(clip.outputs[0].name))
    makers = [tensor for tensor, theirs in made if not own.isdisjoint(theirs)]
    ends = {name for group in plan.groups for name in group.ends}
    return not any(_unbound(plan, maker, upper) & ends for maker in makers)


def _unbound(plan: Plan, start: Tensor, upper: float) -> set[str]:
    """Return the tensor, and what carried operators make of it, up to those with the bound."""
    found, stack = set[str](), [start]
    while stack:
        tensor = stack.pop()
        if tensor.name in found:
            continue
        found.add(tensor.name)
        for node in filter(plan.is_carried, query.consumers(tensor)):
            if node.op != "Clip" or upper_bound(node) != upper:
                stack.extend(node.outputs)
    return found
