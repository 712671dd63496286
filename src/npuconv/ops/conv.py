"""Conv and ConvTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuconv.ops.operator import Operator, register
from npuconv.ops.tape import Gradients, Tape, Visit, cells_behind


def _conv_adjoint(tape: Tape, at: Visit) -> Gradients:
    attributes, weight = _window_of(at), at.shape(1)
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], attributes["dilations"], strict=True)]
    pads = [e - 1 - p for e, p in zip(reach * 2, attributes["pads"], strict=True)]
    depthwise = (
        attributes["group"] == at.shape()[1] == weight[0] > 1 and max(attributes["strides"]) == 1
    )
    if depthwise and min(pads) >= 0 and (values := tape.value(at.inputs[1])) is not None:
        flipped = tape.constant(np.flip(values, tuple(range(2, values.ndim))))
        return {0: tape.add("Conv", at.dy, flipped, **{**attributes, "pads": pads})}
    padding = cells_behind(at, attributes["strides"], reach, attributes["pads"])
    return {0: tape.add("ConvTranspose", at.dy, at.inputs[1], output_padding=padding, **attributes)}


def _window_of(at: Visit) -> dict[str, Any]:
    ones = [1] * (len(at.shape(1)) - 2)
    default = {"strides": ones, "dilations": ones, "pads": [0, 0] * len(ones), "group": 1}
    return {name: at.attributes.get(name, value) for name, value in default.items()}


def _transposed_adjoint(tape: Tape, at: Visit) -> Gradients:
    return {0: tape.add("Conv", at.dy, at.inputs[1], **_window_of(at))}


register(
    Operator(name="Conv", adjoint=_conv_adjoint),
    Operator(name="ConvTranspose", adjoint=_transposed_adjoint),
)
