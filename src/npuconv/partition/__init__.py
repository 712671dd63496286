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
from npuconv.partition.passthrough import EXACT_ON_INT8, data_inputs
from npuconv.partition.placement import Group, Placement, Plan, make_plan

__all__ = [
    "EXACT_ON_INT8",
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
    "data_inputs",
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
