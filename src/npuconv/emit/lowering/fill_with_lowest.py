"""Let a Pad fill with the integer that represents 0.

If the same integer represents 0 in every channel, as the lowest does behind a Relu, a Pad
between int8 tensors fills with this integer. The biases of the consumers account for it.
If a zero point other than 0 is stored in the file, the fill of 0 is written: QNN fills with 127
where none is.
"""

from __future__ import annotations

from npuconv.emit.emission import Emission
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, register_pass
from npuconv.model import Model, edit, query


@register_pass(Phase.QUANTIZE)
def fill_with_lowest(model: Model, emission: Emission) -> int:
    fired = 0
    for node in emission.plan.passthrough if emission.encodings else ():
        encoding = emission.encodings.get(node.outputs[0].name) if node.op == "Pad" else None
        if encoding is None:
            continue
        fill, zero, zeros = query.scalar_input(node, 2), encoding.nominal_zero, encoding.zeros
        if len(set(zeros.tolist())) == 1 and zeros[0] != zero:
            value = np.asarray((int(zeros[0]) - zero) * encoding.nominal, np.float32)
        elif zero and fill is None:
            value = np.zeros((), np.float32)
        else:
            continue
        if fill != value:
            edit.set_input(node, 2, edit.constant(model, f"{node.name}/lowest", value))
            fired += 1
    return fired
