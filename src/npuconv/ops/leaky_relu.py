"""LeakyRelu, and PRelu with one slope or one for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.rescaling import HIGHEST, LOWEST, Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import W, WholeArray
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.functions import is_of_one_value
from npuconv.ops.operator import Attributes, Operator, always, register
from npuconv.ops.tables import SOURCE, Step, look_up, lookup, table
from npuconv.ops.tape import Gradients, Tape, Visit

_LEAST_SLOPE = 1e-6  # from which the scale of slopes that are all 0 follows


def _rises(node: Node) -> bool:
    """Return whether the slope of values below 0 is not negative."""
    return float(query.attribute(node, "alpha", 0.01)) >= 0


def _has_slopes(node: Node) -> bool:
    """Return whether a PRelu has one constant slope, or one for each channel (axis 1)."""
    slope, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if slope is None or rank is None or slope.ndim > rank:
        return False
    dims = [1] * (rank - slope.ndim) + list(slope.shape)
    return slope.size == 1 or (rank > 1 and dims[1] == slope.size)


def _leaky(x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope, x)


def _prelu_kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], _: Any
) -> W:
    """Look each channel (axis 1) up in the table of its slope."""
    slopes = np.asarray(attributes["alpha"]).reshape(-1)
    entries = [table([Step("PRelu", (SOURCE, float(slope)))], *scales) for slope in slopes]
    if len(entries) == 1:
        return values[0].looked_up(entries[0])
    channels = zip(entries, np.moveaxis(values[0].known(), 1, 0), strict=True)
    return values[0].like(np.stack([look_up(row, channel) for row, channel in channels], axis=1))


def _tflite_leaky(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    """Two multipliers: one above the zero point, one below, with a slope that is not negative."""
    x_at, y_at = scales
    slope = float(np.asarray(attributes.get("alpha", 0.01)).item())
    whole = x_at.centred(WholeArray.of(range(LOWEST, HIGHEST + 1)))
    above = how.rescaled((whole, ratio(x_at.scale, over=y_at.scale))).values
    below = how.rescaled((whole, ratio(x_at.scale, slope, over=y_at.scale))).values
    bent = WholeArray(np.where(whole.values >= 0, above, below))
    return values[0].looked_up(y_at.stored(bent).values)


def is_leaky(values: ArrayLike) -> bool:
    """Return whether slopes of a PRelu are one that a LEAKY_RELU has, which is float there."""
    return np.size(values) == 1 and bool(np.min(values) >= 0)


def slopes_of(values: ArrayLike) -> tuple[NDArray[np.int8], np.float32]:
    """Return the slopes of a PRELU as int8, with their scale; the zero point is 0."""
    real = np.asarray(values, np.float32)
    scale = np.float32(max(float(np.abs(real).max(initial=0.0)), _LEAST_SLOPE) / HIGHEST)
    return np.rint(real / scale).astype(np.int8), scale


def _tflite_prelu(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    """Two multipliers as well; below the zero point of the product with the slope in int8."""
    (x,), (x_at, y_at) = values, scales
    if is_leaky(attributes["alpha"]):
        return _tflite_leaky(attributes, values, scales, how)
    stored, scale = slopes_of(attributes["alpha"])
    whole, reach = x_at.centred(x), HIGHEST - LOWEST
    above = how.rescaled((whole.clipped(0, reach), ratio(x_at.scale, over=y_at.scale)))
    product = whole.clipped(-reach, 0).times(stored.astype(np.int64))
    below = how.rescaled((product, ratio(x_at.scale, float(scale), over=y_at.scale)))
    return y_at.stored(above.plus(below))


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    slope = at.inputs[1] if at.op == "PRelu" else ""
    slope = slope or tape.constant(at.attributes.get("alpha", 0.01))
    positive = tape.add("Greater", at.x, tape.constant(0.0))
    return {0: tape.add("Where", positive, at.dy, tape.add("Mul", at.dy, slope))}


register(
    Operator(
        name="LeakyRelu",
        adjoint=_adjoint,
        is_defined=is_of_one_value,
        is_table=True,
        function=lambda x, alpha=0.01, **_: _leaky(x, alpha),
        kernel=lookup("LeakyRelu"),
        integer_form="QLinearLeakyRelu",
        in_tflite=_rises,
        tflite_kernel=_tflite_leaky,
    ),
    Operator(
        name="PRelu",
        adjoint=_adjoint,
        parameters={1: "alpha"},
        takes=lambda attributes: "alpha" in attributes,
        is_defined=_has_slopes,
        is_table=True,
        function=lambda x, slope, **_: _leaky(x, slope),
        kernel=_prelu_kernel,
        in_tflite=always,
        tflite_kernel=_tflite_prelu,
    ),
)
