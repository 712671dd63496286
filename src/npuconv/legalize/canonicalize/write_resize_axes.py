"""Let a Resize that names some axes, or keeps the aspect ratio, say what it does to every axis.

Since opset 18 `axes` says what `scales` or `sizes` are about. Without it they are about
every axis in its order, which is what devices and layout changes understand: an axis that
is not resized has scale 1, or its own extent for size. Sizes that are only bounds
(`keep_aspect_ratio_policy`) become the one scale that they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

_SCALES, _SIZES = 2, 3  # inputs


@model_pass(Phase.CANONICALIZE, after=("fold-constants",), infers=True)
def write_resize_axes(model: Model, ctx: PassContext) -> int:
    return sum(_write(model, ctx, node) for node in model.nodes("Resize"))


def _write(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    axes, dims = query.attribute(node, "axes"), query.shape(node.inputs[0])
    policy = str(query.attribute(node, "keep_aspect_ratio_policy", "stretch"))
    index = _SIZES if query.input_of(node, _SIZES) is not None else _SCALES
    amounts = query.constant_input(node, index)
    if dims is None or amounts is None or query.input_of(node, 1) is not None:
        return 0
    if not axes and policy == "stretch":
        return 0
    axes = axes or range(len(dims))
    scales = np.ones(len(dims), np.float32)
    if index == _SCALES:
        scales[axes] = amounts
    elif policy != "stretch":
        # onnxruntime applies the policy to no axis that is counted from the end.
        scale = _common_scale(dims, [axis for axis in axes if axis >= 0], amounts, policy)
        if scale is None:
            ctx.refuse(model, node, f"the extents of {policy!r} are open, or no scale has them")
            return 0
        scales[[axis for axis in axes if axis >= 0]] = scale
    stretches = index == _SIZES and policy == "stretch"
    text = f"{list(amounts)} for axes {list(axes)}, {policy}"
    with ctx.rewrite(model, [node], text, "all axes", modulus=None if index == _SIZES else 1):
        tensor = (
            _all_sizes(model, node, dict(zip(axes, amounts, strict=True)))
            if stretches
            else edit.constant(model, f"{node.name}/all_axes", scales)
        )
        edit.drop_inputs(node, _SCALES)
        edit.set_input(node, _SIZES if stretches else _SCALES, tensor)
        for name in ("axes", "keep_aspect_ratio_policy"):
            node.attrs.pop(name, None)
    return 1


def _common_scale(
    dims: Sequence[int | str | None], axes: Sequence[int], bounds: np.ndarray, policy: str
) -> np.float32 | None:
    """Return the scale of all axes that bounds allow; None where extents would round up."""
    import numpy as np

    extents = np.asarray([dims[a] if isinstance(dims[a], int) else 0 for a in axes], np.float32)
    if not extents.all():
        return None
    if not axes:
        return np.float32(1)
    ratios = bounds.astype(np.float32) / extents
    scale = np.float32(ratios.min() if policy == "not_larger" else ratios.max())
    # A runtime may multiply in float32 or in float64.
    exact = np.outer([1.0, 1.0], scale * extents)
    exact[1] = float(scale) * extents.astype(np.float64)
    return scale if (np.floor(exact) == np.floor(exact[0] + 0.5)).all() else None


def _all_sizes(model: Model, node: Node, sizes: dict[int, np.integer]) -> Tensor:
    """Return the sizes of all axes: those that are given, else extents of the input."""
    import numpy as np

    source, origin = node.inputs[0], [node]
    dims = query.shape(source) or ()
    whole = [sizes.get(i, sizes.get(i - len(dims), dim)) for i, dim in enumerate(dims)]
    if all(isinstance(size, int | np.integer) for size in whole):
        return edit.integers(model, f"{node.name}/all_axes", [int(str(size)) for size in whole])
    parts = []
    for axis, size in enumerate(whole):
        if isinstance(size, int | np.integer):
            parts.append(edit.integers(model, f"{node.name}/size", [int(size)]))
            continue
        parts.append(edit.variable(model, f"{node.name}/extent", dtype=np.int64))
        attrs = {"start": axis, "end": axis + 1}
        edit.add_node(model, "Shape", [source], parts[-1:], origin=origin, attrs=attrs)
    return edit.insert(model, "Concat", parts, origin=origin, shape=[len(whole)], attrs={"axis": 0})
