"""Peak bytes of the tensors between the nodes during one inference.

A tensor lives from the node that makes it to the last one that reads it; nodes run in the
order of the file, and none works in place. A symbolic batch counts as one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@dataclass(frozen=True)
class Peak:
    """The worst moment."""

    bytes: int
    int8_bytes: int  # if what is float were int8
    node: str  # that runs then


def peak(model: Model) -> Peak | None:
    """The worst moment; None where an extent or a type is not known, or nothing runs."""
    nodes = model.nodes()
    ends = _ends(model, nodes)
    alive = {id(t): _size(t) for t in model.graph.inputs}
    worst: Peak | None = None
    for at, node in enumerate(nodes):
        if any(id(tensor) in alive for tensor in _read(node)):
            # What nobody reads, as the mask of a Dropout, is not made; it may have no shape.
            alive |= {id(tensor): _size(tensor) for tensor in node.outputs if id(tensor) in ends}
        if None in alive.values():
            return None
        sizes = [size for size in alive.values() if size is not None]
        now = Peak(sum(s[0] for s in sizes), sum(s[1] for s in sizes), model.label(node))
        worst = now if worst is None or now.bytes > worst.bytes else worst
        alive = {key: size for key, size in alive.items() if ends.get(key, -1) > at}
    return worst


def _ends(model: Model, nodes: list[Node]) -> dict[int, int]:
    """Return, by tensor, the position of its last reader; outputs of the model outlive all."""
    ends = {id(tensor): at for at, node in enumerate(nodes) for tensor in _read(node)}
    return ends | {id(tensor): len(nodes) for tensor in model.graph.outputs}


def _read(node: Node) -> list[Tensor]:
    """The tensors that a node reads; those that its branches read are among them."""
    from npuconv.model.core import subgraphs

    inner = [t for _, graph in subgraphs(node) for one in graph.nodes for t in _read(one)]
    return [*node.inputs, *inner]


def _size(tensor: Tensor) -> tuple[int, int] | None:
    """Bytes as it is, and as int8; None where it is not known."""
    import numpy as np

    dims, dtype = query.shape(tensor), query.dtype_name(tensor)
    if dims is None or not dtype:
        return None
    cells = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
    extents = [d for d in cells if isinstance(d, int)]
    if len(extents) != len(cells):
        return None
    try:
        stored = np.dtype(dtype)
    except TypeError:  # a type that numpy has no name for
        return None
    if stored.kind == "O":  # strings
        return None
    count, width = math.prod(extents), stored.itemsize
    return count * width, count * (1 if "float" in dtype else width)
