"""Placement of nodes, choice of int8 tensors, and their cost."""

from npuconv.partition.costs import Cost, Peak, cost, macs, parameters, peak, weight_bytes
from npuconv.partition.crossings import (
    Crossings,
    Detours,
    Port,
    Subgraph,
    bytes_of,
    crossings,
    detours,
    readers,
    subgraphs,
    transitions,
)
from npuconv.partition.placement import Group, Placement, Plan, make_plan

__all__ = [
    "Cost",
    "Crossings",
    "Detours",
    "Group",
    "Peak",
    "Placement",
    "Plan",
    "Port",
    "Subgraph",
    "bytes_of",
    "cost",
    "crossings",
    "detours",
    "macs",
    "make_plan",
    "parameters",
    "peak",
    "readers",
    "subgraphs",
    "transitions",
    "weight_bytes",
]
