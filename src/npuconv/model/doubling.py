"""Lists that are joined with themselves, over and over.

ONNX's shape inference computes short lists, which may be shapes, by itself: sixty nodes that
each join the last result with itself keep it busy for years, and no limit reaches it there.
"""

from __future__ import annotations

import math

import onnx

from npuconv.errors import ModelError

MOST = 1 << 20  # elements of a list; shapes have ten
_KNOWN = 512  # elements of a constant that inference looks into
_OTHER = 64  # of whatever is made by an operator that it does not compute
_KEEPS = frozenset(
    {"Add", "Cast", "Concat", "Gather", "Identity", "Max", "Min", "Mul", "Reshape", "Slice"}
    | {"Squeeze", "Sub", "Transpose", "Unsqueeze"}
)


def check(proto: onnx.ModelProto, name: str) -> None:
    """Refuse a model that joins a list with itself without end.

    Raises:
        ModelError: names the node.
    """
    lengths = {t.name: math.prod(t.dims) for t in proto.graph.initializer}
    lengths = {name: min(length, _KNOWN) for name, length in lengths.items()}
    for node in proto.graph.node:
        if node.op_type not in _KEEPS:
            continue
        read = [lengths.get(one, _OTHER) for one in node.input]
        length = sum(read) if node.op_type == "Concat" else max(read, default=0)
        if length > MOST:
            where = f"{name}: node {node.name or node.op_type!r}"
            raise ModelError(f"{where} joins a list of up to {length} elements")
        lengths.update(dict.fromkeys(node.output, length))
