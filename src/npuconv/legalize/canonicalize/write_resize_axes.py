"""Let a Resize that names some axes name all of them.

Since opset 18 `axes` says what `scales` or `sizes` are about. Without it they are about
every axis in its order, which is what devices and layout changes understand: an axis that
is not resized has scale 1, or its own extent for size.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node

_SCALES, _SIZES = 2, 3  # inputs


@model_pass(Phase.CANONICALIZE, after=("fold-constants",))
def write_resize_axes(model: Model, ctx: PassContext) -> int:
    return sum(_write(model, ctx, node) for node in model.nodes("Resize"))


def _write(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    axes, dims = query.attribute(node, "axes"), query.shape(node.inputs[0])
    if not axes or dims is None:
        return 0
    index = _SIZES if query.input_of(node, _SIZES) is not None else _SCALES
    given = query.constant_input(node, index)
    others: list[int | str | None] = [1] * len(dims) if index == _SCALES else list(dims)
    if given is None or query.input_of(node, 1) is not None or _keeps_aspect(node):
        return 0
    for axis, value in zip(axes, given, strict=True):
        others[int(axis)] = value
    if any(not isinstance(value, int | np.number) for value in others):
        return 0
    whole = np.asarray(others, given.dtype)
    with ctx.rewrite(model, [node], f"axes={list(axes)}", f"{whole.tolist()} for all axes"):
        edit.set_input(node, index, edit.constant(model, f"{node.name}/all_axes", whole))
        del node.attrs["axes"]
    return 1


def _keeps_aspect(node: Node) -> bool:
    """Return whether sizes are only bounds."""
    return str(query.attribute(node, "keep_aspect_ratio_policy", "stretch")) != "stretch"
