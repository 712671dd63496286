"""Take out Identity nodes, and a Concat, Sum, Mean, Max or Min of one tensor.

One that copies an input of the model, or a tensor that is an output itself, to an output
stays: both names belong to the user.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model.core import Model

_OF_SEVERAL = ("Concat", "Max", "Mean", "Min", "Sum")  # with a single input they are the identity


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_identity(model: Model, log: Log) -> int:
    alone = (node for node in model.nodes(*_OF_SEVERAL) if len(node.inputs) == 1)
    nodes = (*model.nodes("Identity"), *alone)
    return sum(eliminate(model, log, node, node.op) for node in nodes)
