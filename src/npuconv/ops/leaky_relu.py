"""LeakyRelu, and PRelu with a single slope or a slope for each channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.rescaling import HIGHEST, INT8_VALUES, LOWEST, ratio
from npuconv.arithmetic.whole import WholeArray
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Arguments, W, always, register
from npuconv.ops.tables import SOURCE, TableStep, register_table, table
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft
from npuconv.tflite.flatbuffer import TensorScales

_LEAST_SLOPE = 1e-6  # slope that sets the scale if all slopes are 0


def _rises(node: Node) -> bool:
    """Return whether the slope of values below 0 is not negative."""
    return float(query.attribute(node, "alpha", 0.01)) >= 0


def _has_slopes(node: Node) -> bool:
    """Return whether a PRelu has a constant slope, for all channels or for each (axis 1)."""
    slope, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if slope is None or rank is None or slope.ndim > rank:
        return False
    dims = [1] * (rank - slope.ndim) + list(slope.shape)
    return slope.size == 1 or (rank > 1 and dims[1] == slope.size)


def _leaky(x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope, x)


def _prelu_kernel(call: Arguments[W]) -> W:
    """Look each channel (axis 1) up in the table of its slope."""
    slopes = np.asarray(call.attributes["alpha"]).reshape(-1)
    entries = [
        table([TableStep("PRelu", (SOURCE, float(slope)))], *call.scales) for slope in slopes
    ]
    if len(entries) == 1:
        return call.values[0].looked_up(entries[0])
    channels = zip(entries, np.moveaxis(call.values[0].array(), 1, 0), strict=True)
    return call.values[0].like(np.stack([row[x + 128] for row, x in channels], axis=1))


def _tflite_leaky(call: Arguments[W]) -> W:
    """Requantize by two multipliers: above the zero point, and below it; no negative slope."""
    x_at, y_at = call.scales
    slope = float(np.asarray(call.attributes.get("alpha", 0.01)).item())
    whole = x_at.centred(INT8_VALUES)
    above = call.rescaling.rescaled((whole, ratio(x_at.scale, over=y_at.scale))).values
    below = call.rescaling.rescaled((whole, ratio(x_at.scale, slope, over=y_at.scale))).values
    bent = WholeArray(np.where(whole.values >= 0, above, below))
    return call.values[0].looked_up(y_at.stored(bent).values)


def is_leaky(values: ArrayLike) -> bool:
    """Return whether a PRelu has a single slope that is not negative, as LEAKY_RELU takes it."""
    return np.size(values) == 1 and bool(np.min(values) >= 0)


def slopes_of(values: ArrayLike) -> tuple[NDArray[np.int8], np.float32]:
    """Return the slopes of a PRELU as int8, with their scale; the zero point is 0."""
    real = np.asarray(values, np.float32)
    scale = np.float32(max(float(np.abs(real).max(initial=0.0)), _LEAST_SLOPE) / HIGHEST)
    return np.rint(real / scale).astype(np.int8), scale


def _tflite_prelu(call: Arguments[W]) -> W:
    """Requantize by two multipliers; below the zero point, values are first times int8 slopes."""
    (x,), (x_at, y_at) = call.values, call.scales
    if is_leaky(call.attributes["alpha"]):
        return _tflite_leaky(call)
    stored, scale = slopes_of(call.attributes["alpha"])
    whole, reach = x_at.centred(x), HIGHEST - LOWEST
    above = call.rescaling.rescaled((whole.clipped(0, reach), ratio(x_at.scale, over=y_at.scale)))
    product = whole.clipped(-reach, 0).times(stored.astype(np.int64))
    below = call.rescaling.rescaled((product, ratio(x_at.scale, float(scale), over=y_at.scale)))
    return y_at.stored(above.plus(below))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    slope = visit.inputs[1] if visit.op == "PRelu" else ""
    slope = slope or tape.constant(visit.attributes.get("alpha", 0.01))
    positive = tape.add("Greater", visit.x, tape.constant(0.0))
    return {0: tape.add("Where", positive, visit.dy, tape.add("Mul", visit.dy, slope))}


def _leaky_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    source, order = draft.stored_view(node.input[0])
    alpha = float(attributes_of(node).get("alpha", 0.01))
    output = draft.store(node.output[0], order)
    draft.emit("LEAKY_RELU", [source], [output], "LeakyReluOptions", Alpha=alpha)


def _prelu_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a PRELU, whose slopes have all axes but the first; an int8 PRELU has int8 slopes."""
    source, order = draft.stored_view(node.input[0])
    rank, slopes = len(order), draft.constant(node.input[1])
    if slopes is None:
        raise ModelError("slopes are not constant")
    quantization = None
    if draft.dtype(node.input[0]) == np.int8:
        if is_leaky(slopes):
            output = draft.store(node.output[0], order)
            alpha = slopes.item()
            draft.emit("LEAKY_RELU", [source], [output], "LeakyReluOptions", Alpha=alpha)
            return
        slopes, scale = slopes_of(slopes)
        quantization = TensorScales.from_scale(scale, 0)
    wide = slopes.reshape((1,) * (rank - slopes.ndim) + slopes.shape).transpose(order)
    stored = wide[0] if order[0] == 0 and rank > 1 else wide
    number = draft.number(node.input[1], stored, quantization)
    draft.emit("PRELU", [source, number], [draft.store(node.output[0], order)])


register_table(
    "LeakyRelu",
    lambda x, alpha=0.01, **_: _leaky(x, alpha),
    adjoint=_adjoint,
    integer_form="QLinearLeakyRelu",
    in_tflite=_rises,
    tflite_kernel=_tflite_leaky,
    to_tflite=_leaky_to_tflite,
)
register(
    "PRelu",
    is_defined=_has_slopes,
    parameters={1: "alpha"},
    function=lambda x, slope, **_: _leaky(x, slope),
    is_table=True,
    takes=lambda attributes: "alpha" in attributes,
    kernel=_prelu_kernel,
    adjoint=_adjoint,
    in_tflite=always,
    tflite_kernel=_tflite_prelu,
    to_tflite=_prelu_to_tflite,
)
