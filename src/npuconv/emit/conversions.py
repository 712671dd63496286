"""The QuantizeLinear and DequantizeLinear nodes around a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


def dequantizer(tensor: Tensor) -> Node | None:
    """The DequantizeLinear that makes a tensor, if one does."""
    maker = query.producer(tensor)
    return maker if maker is not None and maker.op == "DequantizeLinear" else None


def quantizer(model: Model, tensor: Tensor) -> Node | None:
    """The QuantizeLinear that alone reads a tensor, if one does."""
    reader = query.sole_consumer(model, tensor)
    return reader if reader is not None and reader.op == "QuantizeLinear" else None


def same_scale(a: Node, b: Node) -> bool:
    """Return whether two conversions have the same scale and zero point."""
    import numpy as np

    pairs = [(query.constant_input(a, i), query.constant_input(b, i)) for i in (1, 2)]
    return all(x is not None and y is not None and np.array_equal(x, y) for x, y in pairs)
