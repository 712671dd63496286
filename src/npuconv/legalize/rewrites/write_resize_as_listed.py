"""Write a Resize in a coordinate mode that the target lists, if it is the same function.

With whole factors, nearest cells in mode asymmetric are those in mode half_pixel, as in the
upsampling of YOLO; pytorch_half_pixel and half_pixel differ only for results of one cell. The cells
and weights along every axis decide, so all extents that change must be known.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, query
from npuconv.model.facts import settled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDINGS = ("round_prefer_floor", "floor", "round_prefer_ceil", "ceil")
_MOST_WEIGHTS = 2**22  # largest number of weights along an axis that are compared


@register_pass(Phase.LEGALIZE, "Resize", least_opset=11)
def write_resize_as_listed(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    operator, mode = device.target.operator("Resize"), str(query.attribute(node, "mode", "nearest"))
    if operator is None or mode not in ("nearest", "linear") or query.attribute(node, "antialias"):
        return 0
    facts = settled(node)
    if not operator.objections(facts):
        return 0
    coordinates = str(query.attribute(node, "coordinate_transformation_mode", "half_pixel"))
    rounding = str(query.attribute(node, "nearest_mode", "round_prefer_floor"))
    weights = _weights(node, coordinates, rounding)
    if weights is None:
        return 0
    for new_mode, new_rounding in product(_MODES, _ROUNDINGS if mode == "nearest" else [rounding]):
        if operator.objections({**facts, "coordinate_mode": new_mode}):
            continue
        new_weights = _weights(node, new_mode, new_rounding)
        if new_weights is not None and all(map(np.array_equal, weights, new_weights)):
            before = f"{mode}, {coordinates}, {rounding}"
            after = f"{mode}, {new_mode}, {new_rounding}"
            with log.rewrite(model, [node], before, after, modulus=None):
                node.attrs["coordinate_transformation_mode"] = new_mode
                node.attrs["nearest_mode"] = new_rounding
            return 1
    return 0


def _weights(node: Node, coordinates: str, rounding: str) -> list[NDArray[np.generic]] | None:
    """Return the cells (nearest) or weights (linear) along every axis that changes.

    None if an extent of such an axis is open, or the mode has no fixed cells.
    """
    from npuconv.ops import resize

    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    scales = query.constant_input(node, 2)
    axes = query.attribute(node, "axes") or range(len(before or ()))
    if before is None or after is None or coordinates not in _MODES:
        return None
    weights: list[NDArray[np.generic]] = []
    for position, axis in enumerate(axes):
        length, count = before[axis], after[axis]
        scale = float(scales[position]) if scales is not None and scales.size else 0.0
        if scale == 1.0 or (length == count and not scale):
            continue
        if not isinstance(length, int) or not isinstance(count, int):
            return None
        if length * count > _MOST_WEIGHTS:
            return None
        if str(query.attribute(node, "mode", "nearest")) == "nearest":
            weights.append(resize.nearest(length, count, coordinates, scale, rounding))
        else:
            weights.append(resize.interpolation(length, count, coordinates, scale))
    return weights
