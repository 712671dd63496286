"""HardSwish: ``x * min(max(x / 6 + 1 / 2, 0), 1)``."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.rescaling import INT8_VALUES
from npuconv.arithmetic.whole import WholeArray, shifted_right
from npuconv.ops.operator import Arguments, W, always
from npuconv.ops.tables import register_table
from npuconv.ops.tape import Tape, Visit, pointwise
from npuconv.tflite.elementwise import unary


def _tflite_kernel(call: Arguments[W]) -> W:
    """Return the product of 16-bit numbers: the input times 128, ``min(max(x / 3, -1), 1)``."""
    x_at, y_at = call.scales
    fine = np.float32(1 / 128) * np.float32(x_at.scale)
    result = gemmlowp.nearest(np.float32(fine / np.float32(y_at.scale)))
    slope = gemmlowp.nearest(np.float32(fine / np.float32(3 / 32768)))
    wide = x_at.centred(INT8_VALUES).times(128)
    places = int(slope.exponent)
    ramp = wide
    if places > 0:
        ramp = _short(ramp.times(1 << (places - 1)))
    ramp = _short_product(ramp, slope)
    if places > 0:
        ramp = _short(ramp.times(2))
    ramp = shifted_right(ramp, max(-places, 0), "half_away").plus(1 << 15).shifted(1)
    product = _short(ramp.times(_short_product(wide, result)).over(1 << 15))
    whole = shifted_right(product, max(-int(result.exponent), 0), "half_away")
    return call.values[0].looked_up(y_at.stored(whole).values)


def _short(whole: WholeArray) -> WholeArray:
    return whole.clipped(-(2**15), 2**15 - 1)


def _short_product(whole: WholeArray, factor: gemmlowp.Multipliers) -> WholeArray:
    """Return the product with the upper 16 bits of a multiplier, half a step upwards."""
    high = min((int(factor.multiplier) + (1 << 15)) >> 16, 2**15 - 1)
    return whole.times(high).plus(1 << 14).shifted(15)


def _slope(tape: Tape, visit: Visit) -> str:
    three = tape.constant(3.0)
    inner = tape.add("Mul", tape.add("Add", visit.x, tape.constant(1.5)), tape.constant(1 / 3))
    inside = tape.add("Less", tape.add("Abs", visit.x), three)
    beyond = tape.add("Cast", tape.add("Greater", visit.x, three), to=onnx.TensorProto.FLOAT)
    return tape.add("Where", inside, inner, beyond)


register_table(
    "HardSwish",
    lambda x, **_: x * np.clip(x / 6 + 0.5, 0, 1),
    adjoint=pointwise(_slope),
    in_tflite=always,
    tflite_kernel=_tflite_kernel,
    to_tflite=unary("HARD_SWISH", "HardSwishOptions"),
)
