"""Tensors that a run of the model would make: none larger than a tensor may be."""

from __future__ import annotations

import math

import numpy as np

from npuconv import limits
from npuconv.model import query
from npuconv.model.claims import MOST_AXES, check_shape
from npuconv.model.core import Model
from npuconv.model.types import Tensor


def check(model: Model) -> None:
    """Refuse a model of which one tensor would be too large.

    Extents that are open count as 1.

    Raises:
        ModelError: names the tensor and its shape.
    """
    most = limits.present().tensor_mib * 2**20
    for tensor in model.graph.inputs:
        _check(tensor, f"{model.name}: input {tensor.name!r}", most)
    for node in model.nodes():
        for tensor in node.outputs:
            _check(tensor, f"{model.name}: result {tensor.name!r}", most)


def _check(tensor: Tensor, where: str, most: int) -> None:
    dims = query.shape(tensor) or ()
    fixed = [dim for dim in dims if isinstance(dim, int) and dim > 1]
    size = _item_size(tensor)
    if len(dims) > MOST_AXES or math.prod(fixed) * size > most:
        check_shape([dim if isinstance(dim, int) else 1 for dim in dims], where, size)


def _item_size(tensor: Tensor) -> int:
    """Return the bytes of an element; 2 if numpy has no name for its type."""
    dtype = tensor.dtype
    return 2 if isinstance(dtype, int) else int(np.dtype(dtype or np.float32).itemsize)
