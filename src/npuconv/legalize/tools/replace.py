"""Removal of nodes without effect, and activations as nodes of their own."""

from __future__ import annotations

from typing import Any

from npuconv.legalize.log import Log
from npuconv.legalize.region import identity
from npuconv.model import edit, nhwc, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

_CLIP_WITH_INPUTS = 11  # the opset since which the bounds of a Clip are inputs


def eliminate(model: Model, log: Log, node: Node, before: str) -> int:
    """Remove a node whose output equals its first input, measured.

    Returns:
        1, or 0 where it cannot go because it copies an input or constant to an output.
    """
    if not edit.can_bypass(model, node):
        log.refuse(model, node, "it copies an input or a shared tensor to an output of the model")
        return 0
    source, outputs = node.inputs[0], [node.outputs[0]]
    # A Reshape holds for its own extents only, so they must not be made smaller.
    with log.rewrite(model, [node], before, "nothing", outputs=outputs, modulus=None) as record:
        if record.old is not None:
            record.new = identity(record.old, source.name)
        edit.bypass(model, node)
    return 1


def cancel(model: Model, log: Log, first: Node, node: Node, *, modulus: int | None = 1) -> int:
    """Remove two nodes that undo each other, measured; the first stays if something else reads it.

    For ``modulus`` see ``Log.rewrite``.

    Returns:
        1, or 0 where the second makes an output of the model.
    """
    source, result = first.inputs[0], node.outputs[0]
    if model.is_output(result):
        return 0
    before, results = f"{first.op} and {node.op}", [result]
    with log.rewrite(
        model, [first, node], before, "nothing", outputs=results, modulus=modulus
    ) as record:
        if record.old is not None:
            record.new = identity(record.old, source.name)
        edit.redirect(result, source)
        edit.disconnect(node)
    return 1


def activate(model: Model, node: Node, tensor: Tensor) -> Tensor:
    """Append the activation that a fused ``node`` names, which must have one.

    Returns:
        The result.
    """
    name = nhwc.activation(node)
    attrs: dict[str, Any] = dict(zip(nhwc.ACTIVATIONS[name], nhwc.parameters(node), strict=True))
    if name == "Clip":
        return clip(model, node, tensor, **attrs)
    shape = query.shape(tensor)
    return edit.insert(model, name, [tensor], origin=[node], shape=shape, attrs=attrs)


def clip(model: Model, node: Node, source: Tensor, **bounds: Any) -> Tensor:
    """Insert a Clip in the place of ``node`` and return its result.

    The bounds ``min`` and ``max`` are numbers, or arrays of one.
    """
    import numpy as np

    inputs, attrs = [source], {key: float(value) for key, value in bounds.items()}
    if model.opset >= _CLIP_WITH_INPUTS:
        dtype, attrs = source.dtype if isinstance(source.dtype, np.dtype) else np.float32, {}
        for key, value in bounds.items():
            array = np.asarray(value, dtype)
            inputs.append(edit.constant(model, f"{node.name}/{key}", array))
    shape = query.shape(source)
    return edit.insert(model, "Clip", inputs, origin=[node], shape=shape, attrs=attrs)
