"""Replace nodes in a row that only move data by the shortest equal sequence.

Reshapes, Flattens, Squeezes, Unsqueezes and Transposes in a row become nothing, one Reshape,
one Transpose, or a Transpose between Reshapes; a shuffle of whole channels, as in ShuffleNets,
becomes one Gather, through which every channel keeps a scale of its own. A Gather of one
place is followed, too. Where the target lists these operators, the sequence is chosen of which it
takes most nodes. Equal nodes are merged. Symbolic extents stay if the order of elements is known.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.compose import compose
from npuconv.model import Model


@register_pass(Phase.CANONICALIZE, after=("raise-opset",), infers=True)
def compose_layout(model: Model, device: TargetDevice, log: Log) -> int:
    return compose(model, device, log)
