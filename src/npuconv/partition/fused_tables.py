"""Chains of functions of one value that the device computes as one table, rounded once.

HardSwish as exporters spell it, ``x * clip(x + 3, 0, 6) / 6``, is four operators and one table of
256 entries: every result is a function of what one tensor holds. The tensors within such a region
are never stored, so they have no scale and are not rounded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.partition.operators import is_table, values_of

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.target import Target

_CUTTING = ("Clip", "Relu")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def fuse(model: Model, target: Target, chosen: Collection[int]) -> tuple[set[int], set[str]]:
    """Find the regions that are one table each.

    Args:
        model: a legalized model.
        target: the device; a Relu or Clip within a region must be listed, too.
        chosen: ids of the operators that it computes.

    Returns:
        The chosen nodes with every Relu and Clip that ends or continues a region, and the names
        of the tensors within regions.
    """
    root: dict[int, int] = {}  # of what a region makes: the tensor that the region reads
    inside: set[int] = set()
    for node in model.nodes():
        if not (id(node) in chosen and _is_pointwise(node)) and not _continues(node, target, root):
            continue
        roots = {root.get(id(t), id(t)) for t in values_of(node)}
        if len(roots) == 1:
            inside.add(id(node))
            root[id(node.outputs[0])] = roots.pop()
    names = {
        tensor.name
        for node in model.nodes()
        if id(node) in inside and not model.is_output(tensor := node.outputs[0])
        if tensor.outputs and all(id(reader) in inside for reader in tensor.outputs)
    }
    return {*chosen, *inside}, names


def _is_pointwise(node: Node) -> bool:
    """Return whether every value of the result follows from one value of each input."""
    if is_table(node):
        return True
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    return node.op in _ARITHMETIC and all(c is not None and c.size == 1 for c in constants)


def _continues(node: Node, target: Target, root: dict[int, int]) -> bool:
    """Return whether a Relu or Clip with constant bounds reads what a region makes."""
    if node.op not in _CUTTING or target.operator(node.op, node.domain or "") is None:
        return False
    given = values_of(node)
    return len(given) == 1 and id(given[0]) in root and query.is_standard(node)
