"""The activation that a fused convolution names, as a node of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuconv.model import edit, nhwc, query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

_CLIP_WITH_INPUTS = 11


def activate(model: Model, node: Node, tensor: Tensor) -> Tensor:
    """Append the activation that ``node`` names, which must have one.

    Returns:
        The result.
    """
    import numpy as np

    name = nhwc.activation(node)
    attrs: dict[str, Any] = dict(zip(nhwc.ACTIVATIONS[name], nhwc.parameters(node), strict=True))
    inputs = [tensor]
    if name == "Clip" and model.opset >= _CLIP_WITH_INPUTS:
        dtype = np.dtype(tensor.dtype or np.float32)
        bounds = {key: np.asarray(value, dtype) for key, value in attrs.items()}
        inputs += [edit.constant(model, f"{node.name}/{key}", b) for key, b in bounds.items()]
        attrs = {}
    shape = query.shape(tensor)
    return edit.insert(model, name, inputs, origin=[node], shape=shape, attrs=attrs)
