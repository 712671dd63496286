"""Take out Casts to the type a tensor already has, and back to it from a wider one.

Exporters leave them behind; each stands between two operators that could fuse.
"""

from __future__ import annotations

from npuconv.lazy import np, onnx
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import Model, Node, Tensor, query


@register_pass(Phase.CANONICALIZE, "Cast", after=("raise-opset", "widen-convolutions"))
def eliminate_cast(model: Model, log: Log, node: Node) -> int:
    if _becomes(node, node.inputs[0]) and eliminate(
        model, log, node, f"Cast to {node.inputs[0].dtype}"
    ):
        return 1
    first = query.producer(node.inputs[0])
    if first is None or first.op != "Cast" or not query.is_standard(first):
        return 0
    source, wider = first.inputs[0], first.outputs[0]
    if not (_becomes(node, source) and _is_wider(wider, source)):
        return 0
    return eliminate(model, log, node, "Cast and Cast", first=first)


def _becomes(node: Node, tensor: Tensor) -> bool:
    try:
        is_typed = tensor.dtype is not None
        return is_typed and onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype) == node.attrs["to"]
    except (KeyError, ValueError, TypeError):
        return False  # a type that numpy lacks


def _is_wider(tensor: Tensor, source: Tensor) -> bool:
    """Return whether the type of a tensor holds every number of another's, both of one kind."""
    if not all(isinstance(t.dtype, np.dtype) for t in (tensor, source)):
        return False
    return tensor.dtype.kind == source.dtype.kind and np.can_cast(source.dtype, tensor.dtype)
