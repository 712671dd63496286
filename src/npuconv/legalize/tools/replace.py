"""Removal of nodes without effect, and activations as nodes of their own."""

from __future__ import annotations

from typing import Any

from npuconv.lazy import np
from npuconv.legalize.log import Log
from npuconv.legalize.region import identity
from npuconv.model import Model, Node, Tensor, edit, nhwc, query

_CLIP_WITH_INPUTS = 11  # first opset in which the bounds of a Clip are inputs


def eliminate(model: Model, log: Log, node: Node, before: str, *, first: Node | None = None) -> int:
    """Remove a node without effect, measured; with ``first``, both nodes together.

    Returns:
        1, or 0 where it cannot go because it copies an input or constant to an output.
    """
    nodes = [node] if first is None else [first, node]
    source, outputs = nodes[0].inputs[0], [node.outputs[0]]
    if not edit.can_bypass(model, node, source):
        return log.refuse(
            model, node, "it copies an input or a shared tensor to an output of the model"
        )
    modulus = None if first is None else 1
    with log.rewrite(model, nodes, before, "nothing", outputs=outputs, modulus=modulus) as record:
        if record.old is not None:
            record.new = identity(record.old, source.name)
        edit.set_input(node, 0, source)
        edit.bypass(model, node)
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
    inputs, attrs = [source], {key: float(value) for key, value in bounds.items()}
    if model.opset >= _CLIP_WITH_INPUTS:
        dtype, attrs = source.dtype if isinstance(source.dtype, np.dtype) else np.float32, {}
        for key, value in bounds.items():
            array = np.asarray(value, dtype)
            inputs.append(edit.constant(model, f"{node.name}/{key}", array))
    shape = query.shape(source)
    return edit.insert(model, "Clip", inputs, origin=[node], shape=shape, attrs=attrs)
