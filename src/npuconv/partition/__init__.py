"""Placement of nodes, choice of int8 tensors, and their cost."""

from npuconv.partition.costs import Cost, cost, macs, parameters, weight_bytes
from npuconv.partition.crossings import Crossings, Port, bytes_of, crossings, readers, transitions
from npuconv.partition.groups import Group
from npuconv.partition.memory import Peak, peak
from npuconv.partition.passthrough import EXACT_ON_INT8, data_inputs
from npuconv.partition.placement import Placement, Plan, make_plan
from npuconv.partition.subgraphs import Subgraph, subgraphs

__all__ = [
    "EXACT_ON_INT8",
    "Cost",
    "Crossings",
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
    "macs",
    "make_plan",
    "parameters",
    "peak",
    "readers",
    "subgraphs",
    "transitions",
    "weight_bytes",
]
