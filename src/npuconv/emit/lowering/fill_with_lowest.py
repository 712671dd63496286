"""Let a Pad fill with the integer that represents 0.

If the same integer represents 0 in every channel, as the lowest does behind a Relu, a Pad
between int8 tensors fills with this integer. The biases of the consumers account for it.
If the zero point is stored in the file, rounding maps a fill of 0 to it.
"""

from __future__ import annotations

from npuconv.emit.emission import Emission
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model


@model_pass(Phase.QUANTIZE)
def fill_with_lowest(model: Model, emission: Emission) -> int:
    fired = 0
    for node in emission.plan.passthrough if emission.encodings else ():
        encoding = emission.encodings.get(node.outputs[0].name) if node.op == "Pad" else None
        zeros = {0} if encoding is None else set(encoding.zeros.tolist())
        if encoding is None or len(zeros) > 1 or zeros == {encoding.nominal_zero}:
            continue
        value = np.asarray((zeros.pop() - encoding.nominal_zero) * encoding.nominal, np.float32)
        if query.scalar_input(node, 2) != value:
            edit.set_input(node, 2, edit.constant(model, f"{node.name}/lowest", value))
            fired += 1
    return fired
