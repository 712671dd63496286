"""Put the branch that a constant condition takes in the place of an If.

The condition is an initializer, or was computed from constants. The nodes of the branch
become nodes of the model, where convolutions are converted; the other branch goes.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Graph, Model, Node, edit, query
from npuconv.model.core import with_inner


@register_pass(Phase.CANONICALIZE, "If", after=("fold-constants",), infers=True)
def inline_constant_if(model: Model, log: Log, node: Node) -> int:
    condition = query.constant_input(node, 0)
    if condition is None or condition.size != 1:
        return 0
    key = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    with log.rewrite(model, [node], "If on a constant", f"its {key}", measure=False):
        branch = node.attrs.pop(key)  # keeps its nodes when the If is removed
        _rename(model, node, branch)
        model.graph.nodes.extend(branch.nodes)
        model.forget_inner()
        pairs = list(zip(branch.outputs, node.outputs, strict=True))
        node.outputs.clear()
        for source, result in pairs:
            if result.name:
                edit.add_node(model, "Identity", [source], [result], origin=[node])
        edit.disconnect(node)
    return 1


def _rename(model: Model, node: Node, branch: Graph) -> None:
    """Give nodes and tensors of a branch names that nothing else in the model has."""
    outside = {id(t) for n in model.nodes() for t in (*n.inputs, *n.outputs)}
    outside |= {id(t) for t in model.graph.inputs}
    renamed: set[int] = set()
    for inner in branch.nodes:
        inner.name = model.fresh_name(f"{node.name}/{inner.name or inner.op}")
        for tensor in (t for n in with_inner(inner) for t in (*n.inputs, *n.outputs)):
            if tensor.name and id(tensor) not in outside | renamed:
                tensor.name = model.fresh_name(f"{node.name}/{tensor.name}")
                renamed.add(id(tensor))
