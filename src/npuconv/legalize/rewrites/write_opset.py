"""Raise a legal model to the opset that is asked for.

That is `--opset`, by default the `opset` of the target, else 21. Other runtimes want a new
one: ONNX's reference evaluator takes int8 conversions from opset 19 on. Operators are
converted as by raise-opset; if one cannot be, the model is raised to the newest opset that
all reach, and MDL006 names the node.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.opset import raise_to
from npuconv.model import Model
from npuconv.version import OLDEST_OPSET


@register_pass(Phase.LEGALIZE, infers=True)
def write_opset(model: Model, device: TargetDevice, log: Log) -> int:
    if not OLDEST_OPSET <= model.opset < device.options.opset:
        return 0  # raise-opset could not even reach the oldest: MDL003 says so
    return raise_to(model, log, device.options.opset, least=model.opset + 1)
