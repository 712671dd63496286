"""Operators of onnxruntime's domains in terms of ONNX's: channels last, integer and fused.

onnxruntime writes the domain ``com.ms.internal.nhwc`` for devices with channels last. Its
operators are ONNX's, at the same versions, but the first input and the first output are
N x D1 x ... x Dn x C. Weights stay M x C/group x k1 x ... x kn, as in the text of its Conv.
An ``activation``, with ``activation_params``, may follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TypeVar

from npuconv.lazy import onnx
from npuconv.model import query
from npuconv.model.attributes import contradictions, window_rank
from npuconv.model.core import Node, Tensor

T = TypeVar("T")

DOMAIN = "com.ms.internal.nhwc"
INTEGER_DOMAIN = "com.microsoft"  # domain of QLinearConv with channels_last, NhwcMaxPool
GLOBAL_POOLS = ("GlobalMaxPool", "GlobalAveragePool")
OPERATORS = (*query.CONVOLUTIONS, "MaxPool", "AveragePool", *GLOBAL_POOLS)
# The names of the parameters of each activation, in the order of activation_params.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
}
FUSED = ("activation", "activation_params")
_OF_ONE_LAYOUT = ("Relu", "Clip", "Concat", "Slice", "Pad", "QLinearAdd")
# (domain, operator) -> the float operator, and the index of the input that is its weight.
_FLOAT_OPERATORS: dict[tuple[str, str], tuple[str, int]] = {
    ("", "QLinearConv"): ("Conv", 3),
    ("", "ConvInteger"): ("Conv", 1),
    ("", "QLinearMatMul"): ("MatMul", 3),
    ("", "MatMulInteger"): ("MatMul", 1),
    ("com.microsoft", "QLinearConv"): ("Conv", 3),
    ("com.microsoft", "FusedConv"): ("Conv", 1),
    ("com.microsoft", "NhwcFusedConv"): ("Conv", 1),
    ("com.microsoft", "QGemm"): ("Gemm", 3),
    ("com.microsoft", "FusedGemm"): ("Gemm", 1),
    ("com.microsoft", "FusedMatMul"): ("MatMul", 1),
    ("com.microsoft", "MatMulIntegerToFloat"): ("MatMul", 1),
    ("com.microsoft", "DynamicQuantizeMatMul"): ("MatMul", 1),
    (DOMAIN, "Conv"): ("Conv", 1),
    (DOMAIN, "ConvTranspose"): ("ConvTranspose", 1),
}


def is_nhwc(node: Node) -> bool:
    """Return whether the domain of the node is ``DOMAIN``."""
    return (node.domain or "") == DOMAIN


def to_first(rank: int) -> list[int]:
    """Return the perm of a Transpose that moves the channels to axis 1."""
    return [0, rank - 1, *range(1, rank - 1)]


def to_last(rank: int) -> list[int]:
    """Return the perm of a Transpose that moves the channels to the end."""
    return [0, *range(2, rank), 1]


def channels_first(dims: Sequence[T]) -> tuple[T, ...]:
    """Return the extents of a tensor with its channels moved to axis 1."""
    return tuple(dims[axis] for axis in to_first(len(dims)))


def channels_last(dims: Sequence[T]) -> tuple[T, ...]:
    """Return the extents of a tensor with its channels moved to the end."""
    return tuple(dims[axis] for axis in to_last(len(dims)))


def holds_channels_last(tensor: Tensor) -> bool:
    """Return whether channels-last convolutions produce it, joined, cut or with an activation."""
    producer = query.producer(tensor)
    while producer is not None and producer.op in _OF_ONE_LAYOUT:
        producer = query.producer(producer.inputs[0])
    return producer is not None and bool(query.attribute(producer, "channels_last", 0))


def activation(node: Node) -> str:
    """Return the activation of a node, or ''."""
    return str(query.attribute(node, "activation", "") or "")


def parameters(node: Node) -> list[float]:
    """Return the parameters of the activation of a node."""
    return [float(v) for v in query.attribute(node, "activation_params", None) or ()]


def obstacle(node: Node, opset: int) -> str:
    """Return why no standard operator of this opset can replace a node of the domain, or ''."""
    return next(_obstacles(node, opset), "")


def _obstacles(node: Node, opset: int) -> Iterator[str]:
    if node.op not in OPERATORS:
        yield f"no more than {', '.join(OPERATORS)} of {DOMAIN} are read"
        return
    if query.input_of(node, 1 if node.op in query.CONVOLUTIONS else 0) is None:
        yield "an input that it needs is missing"
        return
    if any(t.name for t in list(node.outputs)[1:]):
        yield "the layout of its second output is not defined"
    yield from activation_faults(node)
    yield from _shape(node)
    yield from contradictions(node)  # contradictions may crash a runtime
    if node.op in query.POOLS and not query.attribute(node, "kernel_shape"):
        yield "it has no kernel_shape"
    mode = query.attribute(node, "auto_pad") or "NOTSET"
    if mode != "NOTSET" and any(query.attribute(node, "pads") or ()):
        yield f"auto_pad={mode} together with non-zero pads"
    allowed = {*FUSED, *onnx.defs.get_schema(node.op, opset, "").attributes}
    unknown = sorted(set(node.attrs) - allowed)
    if unknown:
        yield f"{node.op} of opset {opset} has no attribute {unknown[0]!r}"


def activation_faults(node: Node) -> Iterator[str]:
    """Yield why no standard operator can replace the activation of the node."""
    name, values = activation(node), parameters(node)
    names = ACTIVATIONS.get(name, ())
    if name and name not in ACTIVATIONS:
        yield f"its activation is {name!r}, none of {', '.join(ACTIVATIONS)}"
    elif len(values) != len(names):
        subject = f"activation {name}" if name else "no activation"
        yield f"{subject} takes {len(names)} activation_params, not {len(values)}"


def _shape(node: Node) -> Iterator[str]:
    dims, needed = query.shape(query.input_of(node, 0)), window_rank(node)
    if needed is None:
        yield "the number of its dimensions is not known"
        return
    if needed < 3:
        yield f"it has {needed} dimensions, which leaves no spatial axis"
    if dims is not None and len(dims) != needed:
        yield f"its input has {len(dims)} dimensions where {needed} are needed"
    weight = query.static_shape(query.input_of(node, 1)) if node.op in query.CONVOLUTIONS else None
    if weight is None or not dims or not isinstance(dims[-1], int):
        return
    group = int(query.attribute(node, "group", 1))
    channels = weight[0] if node.op == "ConvTranspose" else weight[1] * group
    if channels != dims[-1]:
        yield f"its input has {dims[-1]} channels, its weights take {channels}"


def as_float(node: Node) -> Node:
    """Return a read-only view of an integer or fused node as a float node, channels first.

    Any other node is returned itself. Scales are left out: the view serves to count
    multiplications and to show convolutions.
    """
    domain = "" if query.is_standard(node) else node.domain
    operator = _FLOAT_OPERATORS.get((domain, node.op))
    if operator is None or len(node.inputs) <= operator[1] or not node.outputs:
        return node
    op, weight = operator
    inputs = [_view(node, node.inputs[0]), node.inputs[weight]]
    outputs = [_view(node, node.outputs[0])]
    return SimpleNamespace(op=op, inputs=inputs, outputs=outputs, attrs=dict(node.attrs), domain="")


def _view(node: Node, tensor: Tensor) -> Tensor:
    last = is_nhwc(node) or node.op == "NhwcFusedConv"
    last = last or bool(query.attribute(node, "channels_last", 0))
    dims = query.shape(tensor)
    if not last or dims is None or len(dims) < 3:
        return tensor
    return SimpleNamespace(name=tensor.name, shape=list(channels_first(dims)))
