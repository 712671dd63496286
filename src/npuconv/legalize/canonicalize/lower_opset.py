"""Call a new model by the older opset it could as well be written in.

Where the model is of a newer opset than `--opset` or the target asks for (else 21), and
every operator of it reads the same in that one, its number is lowered, so that older
runtimes load the result. If one does not, it is named and the opset stays.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.opset import reads_the_same
from npuconv.model import Model


@register_pass(Phase.CANONICALIZE, after=("name-nodes",))
def lower_opset(model: Model, device: TargetDevice, log: Log) -> int:
    target = device.options.opset
    if model.opset <= target:
        return 0
    for node, _ in model.walk():
        if not reads_the_same(model, node, target):
            obstacle = f"{node.op} at {model.label(node)!r} is not in the older one"
            log.annotations.opset_obstacle = obstacle
            return log.refuse(model, node, f"{node.op} of opset {model.opset} is not in {target}")
    with log.rewrite(model, [], f"opset {model.opset}", f"opset {target}", measure=False):
        model.graph.opset = target
    log.annotations.opset_obstacle = ""
    return 1
