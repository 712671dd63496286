"""Operators beside the convolution that the device computes in int8, where its target lists them.

Each reads and makes int8 tensors of one scale, rounds once (docs/arithmetic.md), and may change
the scale. What only moves or compares integers is not among them: see ``passthrough``. Which of
them it computes where: see ``regions``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import cache

from npuconv.model import facts, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.target import Target

TABLES = frozenset({
    "Abs", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu",
    "Reciprocal", "Sigmoid", "Softplus", "Sqrt", "Swish", "Tanh",
})  # fmt: skip


def is_table(node: Node) -> bool:
    """Return whether the operator is a function of one value; a PRelu has one slope for all."""
    if node.op != "PRelu":
        return node.op in TABLES and len(values_of(node)) == 1
    slope = query.constant_input(node, 1)
    return slope is not None and slope.size == 1


def _has_slopes(node: Node) -> bool:
    """Return whether a PRelu has one constant slope, or one for each channel (axis 1)."""
    slope, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if slope is None or rank is None or slope.ndim > rank:
        return False
    dims = [1] * (rank - slope.ndim) + list(slope.shape)
    return slope.size == 1 or (rank > 1 and dims[1] == slope.size)


def _is_binary(node: Node) -> bool:
    return len(node.inputs) == 2 and len(values_of(node)) > 0


def _is_division(node: Node) -> bool:
    divisor = query.constant_input(node, 1)
    return divisor is not None and bool((divisor != 0).all())


def _is_of_images(node: Node) -> bool:
    """Return whether the node reads height and width, and nothing deeper: its sums are of both."""
    return query.rank(node.inputs[0]) == 4


def _is_spatial_mean(node: Node) -> bool:
    """Return whether height and width are reduced, by axes that are known, of rank 4."""
    return _is_of_images(node) and query.reduced_axes(node) == (2, 3)


def _is_normalization(node: Node) -> bool:
    """Return whether a LayerNormalization has constant parameters, and axes of known extents."""
    dims, axis = query.shape(node.inputs[0]), int(query.attribute(node, "axis", -1))
    constant = all(query.is_constant(t) for t in list(node.inputs)[1:] if t.name)
    return constant and dims is not None and all(isinstance(n, int) for n in dims[axis:])


def _always(_: Node) -> bool:
    return True


# Operator -> whether a node of it is one that int8 semantics are defined for.
_DEFINED: dict[str, Callable[[Node], bool]] = {
    **dict.fromkeys(TABLES, is_table),
    "PRelu": _has_slopes,
    **dict.fromkeys(("Add", "Sub", "Mul"), _is_binary),
    "Div": _is_division,
    "AveragePool": lambda node: _is_of_images(node) and not query.attribute(node, "ceil_mode", 0),
    "GlobalAveragePool": _is_of_images,
    "ReduceMean": _is_spatial_mean,
    "Resize": lambda node: _is_of_images(node) and query.attribute(node, "mode", "") == "linear",
    "MatMul": lambda node: len(values_of(node)) == 2,
    "Softmax": _always,
    "LayerNormalization": _is_normalization,
    "Concat": lambda node: len(values_of(node)) == len(node.inputs),
}


def _rises(node: Node) -> bool:
    """Return whether the slope of values below 0 is not negative."""
    return float(query.attribute(node, "alpha", 0.01)) >= 0


def _counts_padding(node: Node) -> bool:
    """Return whether a pool pads nothing, or numbers 0."""
    return bool(query.attribute(node, "count_include_pad", 0)) or not any(
        query.attribute(node, "pads", ()) or ()
    )


def _is_last_axis(node: Node) -> bool:
    """Return whether a Softmax runs along the last axis, as all versions of it understand it."""
    rank = query.rank(node.inputs[0])
    axis = query.attribute(node, "axis", -1)
    return rank is not None and int(axis) % rank == rank - 1


def _is_bilinear(node: Node) -> bool:
    """Return whether a Resize changes height and width only, in a way that TFLite has."""
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    mode = str(query.attribute(node, "coordinate_transformation_mode", "half_pixel"))
    if before is None or after is None or not len(before) == len(after) == 4:
        return False
    return before[:2] == after[:2] and mode in _BILINEAR


_BILINEAR = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


@cache
def _held_by_tflite() -> dict[str, Callable[[Node], bool]]:
    """Return operators that TFLite holds in int8, and of which of their nodes."""
    from npuconv.arithmetic import litert  # numpy, which help and explain start without

    return {
        **dict.fromkeys(litert.OPERATORS, _always),
        "LeakyRelu": _rises,
        "AveragePool": _counts_padding,
        "Softmax": _is_last_axis,
        "Resize": _is_bilinear,
    }


def is_held(node: Node, form: str) -> bool:
    """Return whether a form of the written model can hold the node in int8; ONNX holds all."""
    checks = _held_by_tflite() if form == "tflite" else None
    return checks is None or (node.op in checks and checks[node.op](node))


def values_of(node: Node) -> list[Tensor]:
    """Return the inputs of an operator that are values and no constants, shapes or factors."""
    inputs = node.inputs[:1] if node.op in ("Resize", "ReduceMean") else node.inputs
    return [t for t in inputs if t.name and not query.is_constant(t)]


def constants_of(node: Node, *, every: bool = False) -> list[int]:
    """Return the places of constants that are int8 on the device: those of several values.

    One value is in a factor, or in a table, unless ``every`` constant is a tensor there.
    """
    if node.op not in ("Add", "Sub", "Mul"):
        return []
    constants = [(k, query.constant_input(node, k)) for k in range(len(node.inputs))]
    return [k for k, value in constants if value is not None and (every or value.size > 1)]


_MASKING = ("Add", "Sub", "Where")
_MOVEMENTS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")


def softmax_behind(model: Model, tensor: Tensor) -> Node | None:
    """Return the Softmax that alone reads the values of a tensor, moved or as they are."""
    reader = query.sole_consumer(model, tensor)
    while reader is not None and reader.op in _MOVEMENTS:
        reader = query.sole_consumer(model, reader.outputs[0])
    return reader if reader is not None and reader.op == "Softmax" else None


def masked_softmaxes(model: Model) -> Iterator[Node]:
    """Yield each Softmax that alone reads a sum or a choice, of which one part may be a mask."""
    for node in model.nodes(*_MASKING):
        softmax = softmax_behind(model, node.outputs[0])
        if softmax is not None:
            yield softmax


def _is_bounded(model: Model, node: Node) -> bool:
    """Return whether constants are finite, or are a mask: a Softmax ignores what is far below."""
    constants = [
        v for t in node.inputs if (v := query.value(t)) is not None and v.dtype.kind == "f"
    ]
    if all(abs(value).max(initial=0.0) < math.inf for value in constants):
        return True
    return node.op in _MASKING and softmax_behind(model, node.outputs[0]) is not None


def candidates(model: Model, target: Target, off: Collection[str], form: str = "") -> list[Node]:
    """Return the operators that the target lists, within its limits, in the order of the model.

    Args:
        model: a legalized model.
        target: the device.
        off: names of nodes that stay on the host.
        form: of the written model.
    """
    if not any(op in _DEFINED for op in target.operators):
        return []
    computed = []
    for node in model.nodes():
        operator = target.operator(node.op, node.domain or "")
        if node.name in off or operator is None or not is_defined(node):
            continue
        if node.op == "Concat" and not operator.requantizes:
            continue
        if operator.objections(facts.settled(node)) or not is_held(node, form):
            continue
        if _is_bounded(model, node):
            computed.append(node)
    return computed


def is_defined(node: Node) -> bool:
    """Return whether int8 semantics are defined for the node, whatever the target lists."""
    check = _DEFINED.get(node.op)
    tensors = [*values_of(node), *node.outputs]
    floats = all(query.dtype_name(t) == "float32" for t in tensors)
    alone = len(node.outputs) == 1 and floats and query.is_standard(node)
    return alone and check is not None and check(node)
