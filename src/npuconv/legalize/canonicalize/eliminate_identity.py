"""Take out Identity nodes, and a Concat, Sum, Mean, Max or Min of one tensor.

One that copies an input of the model, or a tensor that is an output itself, to an output
stays: both names belong to the user.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model.core import Model
from npuconv.model.types import Node

_OF_SEVERAL = ("Concat", "Max", "Mean", "Min", "Sum")  # with a single input they are the identity


@node_pass(Phase.CANONICALIZE, "Identity", *_OF_SEVERAL, after=("raise-opset",))
def eliminate_identity(model: Model, log: Log, node: Node) -> int:
    return eliminate(model, log, node, node.op) if len(node.inputs) == 1 else 0
