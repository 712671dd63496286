"""Write nodes in a row that only move data as the shortest sequence that does the same.

Reshapes, Flattens, Squeezes, Unsqueezes and Transposes in a row become nothing, one Reshape,
one Transpose, or a Transpose between Reshapes; a shuffle of whole channels, as in ShuffleNets,
becomes one Gather, through which every channel keeps a scale of its own. A Gather of one
place is followed, too. Where the target lists these operators, the sequence is the one of which it
takes most. Extents may have names as long as the order of the elements is known.
"""

from __future__ import annotations

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.compose import compose
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("raise-opset",), infers=True)
def compose_layout(model: Model, device: TargetDevice, log: Log) -> int:
    return compose(model, device, log)
