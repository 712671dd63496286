"""Take out Identity nodes, a Concat, Sum, Mean, Max or Min of one tensor, and a Pad by nothing.

One that copies an input of the model, or a tensor that is an output itself, to an output
stays: both names belong to the user.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import Model, Node, query

_OF_SEVERAL = ("Concat", "Max", "Mean", "Min", "Sum")  # with a single input they are the identity


@register_pass(Phase.CANONICALIZE, "Identity", "Pad", *_OF_SEVERAL, after=("raise-opset",))
def eliminate_identity(model: Model, log: Log, node: Node) -> int:
    if node.op == "Pad":
        amounts = query.pad_amounts(node)
        copies = amounts is not None and not any(map(any, amounts))
    else:
        copies = len(node.inputs) == 1
    return eliminate(model, log, node, node.op) if copies else 0
