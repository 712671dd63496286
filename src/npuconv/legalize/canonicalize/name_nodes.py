"""Give every node a name of its own.

Nodes without a name, and all but the first of several that share a name, are called by
their operator and a number, so that a report can point at them. No number changes.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model


@register_pass(Phase.CANONICALIZE)
def name_nodes(model: Model, log: Log) -> int:
    names: set[str] = set()
    fired = 0
    for node in model.nodes():
        if not node.name or node.name in names:
            with log.rewrite(model, [node], f"name {node.name!r}", "a unique name", measure=False):
                node.name = model.fresh_name(model.label(node))
            fired += 1
        names.add(node.name)
    return fired
