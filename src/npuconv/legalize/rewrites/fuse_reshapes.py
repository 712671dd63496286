"""Make one Reshape of two in a row, or none where they lead back to the shape a tensor had.

A Flatten, Squeeze or Unsqueeze beside a Reshape counts as one. Exporters write ``view`` after
``view``, and operators that these keep apart can fuse. Nothing is done if another node reads the
tensor in between, or if dimensions are open that only the shape in between determines.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.replace import cancel
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node

_SQUEEZES = frozenset({"Squeeze", "Unsqueeze"})  # two of these are for cancel-squeezes
_OPS = ("Reshape", "Flatten", *sorted(_SQUEEZES))


@node_pass(Phase.LEGALIZE, *_OPS, after=("cancel-squeezes",))
def fuse_reshapes(model: Model, log: Log, node: Node) -> int:
    import numpy as np

    first = query.producer(node.inputs[0])
    if first is None or first.op not in _OPS or not query.is_standard(first):
        return 0
    if {first.op, node.op} <= _SQUEEZES or query.sole_consumer(model, node.inputs[0]) is None:
        return 0
    dims = _target(node)
    if dims is None:
        return 0
    source, result = first.inputs[0], node.outputs[0]
    if dims == query.static_shape(source) and cancel(model, log, first, node, modulus=None):
        return 1
    before = f"{first.op} and {node.op}"
    with log.rewrite(model, [first, node], before, "Reshape", outputs=[result], modulus=None):
        edit.disconnect(node)
        shape = edit.constant(model, f"{result.name}/shape", np.asarray(dims, np.int64))
        edit.add_node(model, "Reshape", [source, shape], [result], origin=[first, node])
    return 1


def _target(node: Node) -> tuple[int, ...] | None:
    """Return the target of the Reshape; None if it depends on the input of the node."""
    dims = query.static_shape(node.outputs[0])
    if dims is not None:
        return None if 0 in dims else dims
    target = query.value(node.inputs[1]) if node.op == "Reshape" else None
    if target is None or (target == 0).any():  # 0 copies a dimension
        return None
    return tuple(int(n) for n in target)
