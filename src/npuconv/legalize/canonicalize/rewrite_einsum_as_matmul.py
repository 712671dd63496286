"""Write an Einsum of one operand as a Transpose, and of two operands as a MatMul.

Labels that both operands and the result have are the batch of the MatMul, labels of the result
that one operand has are its rows or columns, and labels that are summed its depth. Several labels
of one kind are joined to one axis by a Reshape, so their extents must be known. An Einsum stays
if it has an ellipsis, a label twice in one operand (a diagonal), a label that is summed in one
operand alone, or an extent that is broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.layout import reshape, transpose
from npuconv.model import Model, Node, Tensor, edit, query

Extents = dict[str, int | str | None]


@register_pass(Phase.CANONICALIZE, "Einsum", least_opset=13, infers=True)
def rewrite_einsum_as_matmul(model: Model, log: Log, node: Node) -> int:
    terms, arrow, result = str(node.attrs["equation"]).replace(" ", "").partition("->")
    operands = terms.split(",")
    if not arrow:  # the output has the labels that occur once, sorted
        result = "".join(sorted(label for label in {*terms} - {","} if terms.count(label) == 1))
    extents = _extents(node, operands)
    if extents is None or len(operands) > 2:
        return 0
    if len(operands) == 1:
        if sorted(terms) != sorted(result):
            return 0
        with log.rewrite(model, [node], f"Einsum {terms}->{result}", "Transpose", modulus=None):
            _finish(model, node, node.inputs[0], terms, result, extents)
        return 1
    a, b = operands
    rows = "".join(label for label in result if label in a and label not in b)
    columns = "".join(label for label in result if label in b and label not in a)
    tensors = list(node.inputs)
    if rows and columns and result.index(columns[0]) < result.index(rows[0]):
        a, b, rows, columns, tensors = b, a, columns, rows, tensors[::-1]
    batch = "".join(label for label in result if label in a and label in b)
    depth = "".join(label for label in a if label in b and label not in result)
    if {*a} != {*batch, *rows, *depth} or {*b} != {*batch, *columns, *depth}:
        return 0
    numbers = {label: dim for label, dim in extents.items() if isinstance(dim, int)}
    joins = any(len(labels) != 1 for labels in (rows, columns, depth))
    if joins and not numbers.keys() >= {*rows, *columns, *depth}:
        return log.refuse(model, node, f"extents of {terms} that a Reshape joins are open")
    with log.rewrite(model, [node], f"Einsum {terms}->{result}", "MatMul", modulus=None):
        factors = [
            _matrices(model, node, tensor, labels, (batch, *kinds), numbers)
            for tensor, labels, kinds in zip(
                tensors, (a, b), ((rows, depth), (depth, columns)), strict=True
            )
        ]
        ordered = batch + rows + columns
        product = edit.insert(model, "MatMul", factors, origin=[node])
        if len(rows) != 1 or len(columns) != 1:
            shape = [*(0 for _ in batch), *(numbers[label] for label in rows + columns)]
            product = reshape(model, node, product, shape)
        product.shape = [extents[label] for label in ordered]
        _finish(model, node, product, ordered, result, extents)
    return 1


def _extents(node: Node, operands: Sequence[str]) -> Extents | None:
    """Return the extents by label; None unless every axis has its own label."""
    extents: Extents = {}
    for term, tensor in zip(operands, node.inputs, strict=False):
        dims = query.shape(tensor)
        if dims is None or len(dims) != len(term) or len({*term}) != len(term) or "." in term:
            return None
        for label, dim in zip(term, dims, strict=True):
            if extents.setdefault(label, dim) != dim:
                return None  # extent 1 and a larger extent: broadcast
    return extents if query.dtype_name(node.inputs[0]) == "float32" else None


def _matrices(
    model: Model,
    node: Node,
    tensor: Tensor,
    labels: str,
    kinds: tuple[str, str, str],
    extents: dict[str, int],
) -> Tensor:
    """Return an operand with the axes of each kind joined: batch, and the two of a matrix."""
    ordered = "".join(kinds)
    perm = [labels.index(label) for label in ordered]
    tensor = transpose(model, node, tensor, perm, query.shape(tensor))
    batch, *matrix = kinds
    if all(len(kind) == 1 for kind in matrix):
        return tensor
    sides = [math.prod(extents[label] for label in kind) for kind in matrix]
    return reshape(model, node, tensor, [*(0 for _ in batch), *sides])


def _finish(
    model: Model, node: Node, tensor: Tensor, labels: str, result: str, extents: Extents
) -> None:
    """Bring the axes into the order of the result, and write the output of the node."""
    perm = [labels.index(label) for label in result]
    attrs, shape = {"perm": perm}, [extents[label] for label in result]
    if perm != sorted(perm) or tensor is node.inputs[0]:
        tensor = edit.insert(model, "Transpose", [tensor], origin=[node], shape=shape, attrs=attrs)
    edit.replace(tensor, node)
