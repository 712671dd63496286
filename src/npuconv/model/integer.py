"""Integer and fused operators seen as the float operators whose work they do.

To count what a quantized model multiplies, and to show its convolutions as one shows those
of a float model: neither asks for scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from npuconv.model import nhwc, query

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor

# (domain, operator) -> the float operator, and which input its weight is.
_FLOAT: dict[tuple[str, str], tuple[str, int]] = {
    ("", "QLinearConv"): ("Conv", 3),
    ("", "ConvInteger"): ("Conv", 1),
    ("", "QLinearMatMul"): ("MatMul", 3),
    ("", "MatMulInteger"): ("MatMul", 1),
    ("com.microsoft", "QLinearConv"): ("Conv", 3),
    ("com.microsoft", "FusedConv"): ("Conv", 1),
    ("com.microsoft", "NhwcFusedConv"): ("Conv", 1),
    ("com.microsoft", "QGemm"): ("Gemm", 3),
    (nhwc.DOMAIN, "Conv"): ("Conv", 1),
    (nhwc.DOMAIN, "ConvTranspose"): ("ConvTranspose", 1),
}


@dataclass(frozen=True)
class _Shaped:
    """A tensor of which only the shape is asked."""

    name: str
    shape: Any


@dataclass(frozen=True)
class _Float:
    """Stand-in for a node, with the fields that queries read; it belongs to no graph."""

    op: str
    inputs: list[Any]
    outputs: list[Any]
    attrs: dict[str, Any]
    domain: str = ""


def as_float(node: Node) -> Node:
    """A view of the node as the float operator it does the work of, channels first.

    Any other node is given back as it is. The view may be asked, not changed.
    """
    domain = "" if query.is_standard(node) else node.domain
    found = _FLOAT.get((domain, node.op))
    if found is None or len(node.inputs) <= found[1] or not node.outputs:
        return node
    op, weight = found
    inputs = [_first(node, node.inputs[0]), node.inputs[weight]]
    view = _Float(op, inputs, [_first(node, node.outputs[0])], dict(node.attrs))
    return cast("Node", view)


def _first(node: Node, tensor: Tensor) -> Any:
    """The tensor with its channels at axis 1."""
    last = nhwc.is_nhwc(node) or node.op == "NhwcFusedConv"
    last = last or bool(query.attribute(node, "channels_last", 0))
    dims = query.shape(tensor)
    if not last or dims is None or len(dims) < 3:
        return tensor
    return _Shaped(tensor.name, list(nhwc.channels_first(dims)))
