"""A convolution of several groups as several convolutions, or as one without groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import edit, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


def make_dense(model: Model, node: Node, win: Window) -> None:
    """Write zeros for what the groups leave out."""
    array = query.constant_input(node, 1)
    assert array is not None
    edit.set_input(node, 1, edit.constant(model, node.inputs[1].name, dense(array, win.group)))
    node.attrs["group"] = 1


def dense(array: np.ndarray, group: int) -> np.ndarray:
    """Block-diagonal weights.

    Args:
        array: O x I/group x kernel.
        group: number of groups.

    Returns:
        O x I x kernel, zero where an output channel does not read an input channel.
    """
    outputs, inputs = array.shape[0] // group, array.shape[1]
    result = np.zeros((array.shape[0], inputs * group, *array.shape[2:]), array.dtype)
    for number in range(group):
        rows = slice(number * outputs, (number + 1) * outputs)
        result[rows, number * inputs : (number + 1) * inputs] = array[rows]
    return result


def split(model: Model, node: Node, win: Window) -> None:
    """One convolution for each group, between a Split and a Concat."""
    parts = _slices(model, node, win)
    results = [_convolve(model, node, win, number, part) for number, part in enumerate(parts)]
    result = edit.insert(
        model, "Concat", results, origin=[node], shape=win.output, attrs={"axis": 1}
    )
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)


def _slices(model: Model, node: Node, win: Window) -> list[Tensor]:
    source = node.inputs[0]
    each = (win.in_channels or 0) // win.group
    parts = [
        edit.variable(model, f"{node.name}/group_{number}", dtype=source.dtype)
        for number in range(win.group)
    ]
    for part in parts:
        part.shape = _with_channels(win.input, each)
    sizes = edit.integers(model, f"{node.name}/split", [each] * win.group)
    attrs = {"axis": 1}
    edit.add_node(model, "Split", [source, sizes], parts, origin=[node], attrs=attrs)
    return parts


def _convolve(model: Model, node: Node, win: Window, number: int, part: Tensor) -> Tensor:
    weight, bias = query.constant_input(node, 1), query.constant_input(node, 2)
    assert weight is not None
    outputs = weight.shape[0] // win.group
    rows = slice(number * outputs, (number + 1) * outputs)
    stem = f"{node.name}/group_{number}"
    inputs = [part, edit.constant(model, f"{stem}/weight", weight[rows])]
    if bias is not None:
        inputs.append(edit.constant(model, f"{stem}/bias", bias[rows]))
    attrs = {**node.attrs, "group": 1}
    shape = _with_channels(win.output, outputs)
    return edit.insert(
        model, "Conv", inputs, origin=[node], shape=shape, attrs=attrs, name=f"{stem}/Conv"
    )


def _with_channels(
    dims: Sequence[int | str | None] | None, channels: int
) -> list[int | str | None] | None:
    return None if dims is None else [dims[0], channels, *dims[2:]]
