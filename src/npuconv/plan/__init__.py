"""Which node runs where, which tensors are int8, and what that costs."""

from npuconv.plan.costs import Cost, cost, macs, parameters, weight_bytes
from npuconv.plan.crossings import transitions
from npuconv.plan.placement import EXACT_ON_INT8, Group, Placement, Plan, data_inputs, make_plan

__all__ = [
    "EXACT_ON_INT8",
    "Cost",
    "Group",
    "Placement",
    "Plan",
    "cost",
    "data_inputs",
    "macs",
    "make_plan",
    "parameters",
    "transitions",
    "weight_bytes",
]
