"""Call a new model by the older opset it could as well be written in.

Where the model is of a newer opset than `--opset` or the target asks for (else 21), and
every operator of it reads the same in that one, its number is lowered, so that older
runtimes load the result. If one does not, it is named and the opset stays.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.opset import newer_node
from npuconv.model import Model


@register_pass(Phase.CANONICALIZE, after=("name-nodes",))
def lower_opset(model: Model, device: TargetDevice, log: Log) -> int:
    target = device.options.opset
    if model.opset <= target:
        return 0
    if (node := newer_node(model, target)) is not None:
        return log.refuse(model, node, f"{node.op} of opset {model.opset} is not in {target}")
    with log.rewrite(model, [], f"opset {model.opset}", f"opset {target}", measure=False):
        model.graph.opset = target
    return 1
