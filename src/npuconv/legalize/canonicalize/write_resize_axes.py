"""Write scales or sizes of a Resize for every axis, without `axes` or an aspect ratio policy.

Since opset 18 `axes` selects the axes of `scales` or `sizes`. Without it they hold every
axis in order, the form that devices and layout changes understand: an axis that is not
resized has scale 1, or its own extent for size. Sizes that are only bounds
(`keep_aspect_ratio_policy`) become the single scale that they imply.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, Tensor, edit, query

_SCALES, _SIZES = 2, 3  # indices of inputs


@register_pass(Phase.CANONICALIZE, "Resize", after=("fold-constants",), infers=True)
def write_resize_axes(model: Model, log: Log, node: Node) -> int:
    axes, dims = query.attribute(node, "axes"), query.shape(node.inputs[0])
    policy = str(query.attribute(node, "keep_aspect_ratio_policy", "stretch"))
    index = _SIZES if query.input_of(node, _SIZES) is not None else _SCALES
    amounts = query.constant_input(node, index)
    if dims is None or amounts is None or query.input_of(node, 1) is not None:
        return 0
    if not axes and policy == "stretch":
        return 0
    axes, text = axes or range(len(dims)), f"{policy} {list(amounts)} for axes {axes}"
    if index == _SIZES and policy != "stretch":
        axes = [axis for axis in axes if axis >= 0]  # onnxruntime keeps extents of negative axes
        amounts = _common_scale([dims[axis] for axis in axes], amounts, policy)
        if amounts is None:
            return log.refuse(
                model, node, f"the extents of {policy!r} are open, or no scale has them"
            )
    with log.rewrite(model, [node], text, "all axes", modulus=None if index == _SIZES else 1):
        if index == _SIZES and policy == "stretch":
            amounts_input = _all_sizes(model, node, dict(zip(axes, amounts, strict=True)))
        else:
            index, scales = _SCALES, np.ones(len(dims), np.float32)
            scales[list(axes)] = amounts
            amounts_input = edit.constant(model, f"{node.name}/all_axes", scales)
        edit.drop_inputs(node, _SCALES)
        edit.set_input(node, index, amounts_input)
        for name in ("axes", "keep_aspect_ratio_policy"):
            node.attrs.pop(name, None)
    return 1


def _common_scale(
    dims: Sequence[int | str | None], bounds: np.ndarray, policy: str
) -> np.ndarray | None:
    """Return the scale that keeps the bounds; None if an extent is open or would round up."""
    extents = np.asarray([dim if isinstance(dim, int) else 0 for dim in dims], np.float32)
    if not extents.size or not extents.all():
        return None if extents.size else extents
    ratios = bounds.astype(np.float32) / extents
    scale = ratios.min() if policy == "not_larger" else ratios.max()
    # A runtime may multiply in float32 or in float64.
    exact = np.asarray([scale * extents, scale.astype(np.float64) * extents])
    return scale if (np.floor(exact) == np.floor(exact[0] + 0.5)).all() else None


def _all_sizes(model: Model, node: Node, sizes: dict[int, np.integer]) -> Tensor:
    """Return the sizes of all axes: given sizes, else extents of the input."""
    dims, parts = query.shape(node.inputs[0]) or (), []
    all_sizes = [sizes.get(i, sizes.get(i - len(dims), dim)) for i, dim in enumerate(dims)]
    for axis, size in enumerate(all_sizes):
        if isinstance(size, int | np.integer):
            parts.append(edit.integers(model, f"{node.name}/size", [int(size)]))
            continue
        parts.append(edit.variable(model, f"{node.name}/extent", dtype=np.int64))
        attrs = {"start": axis, "end": axis + 1}
        edit.add_node(model, "Shape", node.inputs[:1], parts[-1:], origin=[node], attrs=attrs)
    if all(map(query.is_constant, parts)):
        values = np.concatenate([part.values for part in parts])
        return edit.constant(model, f"{node.name}/all_axes", values)
    return edit.insert(model, "Concat", parts, origin=[node], shape=[len(dims)], attrs={"axis": 0})
