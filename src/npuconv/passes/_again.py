"""Rows and columns of convolutions some of whose channels are made several times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from npuconv.model.core import Model
    from npuconv.model.types import Node


def repeat_rows(model: Model, conv: Node, index: Sequence[int]) -> None:
    """Let a convolution make these of its channels: one with many groups reads them, too."""
    from npuconv.model import query
    from npuconv.plan.levels import parameters

    weight, bias = parameters(conv)
    rows = list(index)
    if int(query.attribute(conv, "group", 1)) > 1:
        conv.attrs["group"] = len(rows)
    _write(model, conv, weight[rows], bias[rows])


def share_columns(
    model: Model, conv: Node, index: Sequence[int], levels: np.ndarray | None = None
) -> None:
    """Let a convolution read these channels, every copy with its share of the weights.

    Args:
        model: the model.
        conv: of one group.
        index: the channel that each of those it reads is.
        levels: what channels are worth [C] that the index leaves out; the bias takes it over.
    """
    import numpy as np

    from npuconv.plan.levels import parameters

    weight, bias = parameters(conv)
    columns = list(index)
    times = np.bincount(columns, minlength=weight.shape[1])
    if levels is not None:
        flat = weight.reshape(*weight.shape[:2], -1).sum(axis=2)
        bias = bias + flat @ np.where(times == 0, levels, 0.0)
    along = (1, -1, *[1] * (weight.ndim - 2))
    _write(model, conv, weight[:, columns] / times[columns].reshape(along), bias)


def _write(model: Model, conv: Node, weight: np.ndarray, bias: np.ndarray) -> None:
    import numpy as np

    from npuconv.model import edit, query

    stem, dtype = conv.inputs[1].name, conv.inputs[1].dtype
    edit.set_input(conv, 1, edit.constant(model, f"{stem}/again", np.asarray(weight, dtype)))
    if query.input_of(conv, 2) is not None or bias.any():
        edit.set_input(conv, 2, edit.constant(model, f"{stem}/bias", np.asarray(bias, dtype)))
