"""Padding of convolutions and pools: SAME or VALID where equal, and a PAD before it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.conv import conv_pads
from npuconv.tflite.draft import Draft
from npuconv.tflite.flatbuffer import Array, enumerator


def pads_of(attrs: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return the explicit pads of a node: top, left, bottom, right."""
    y_begin, x_begin, y_end, x_end = attrs.get("pads", (0, 0, 0, 0))
    return int(y_begin), int(x_begin), int(y_end), int(x_end)


def named_padding(
    extents: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> str:
    """Return ``VALID`` or ``SAME`` if TFLite pads the same under that name, else ``""``.

    SAME makes ``ceil(extent / stride)`` values, with half of the padding, rounded down, before.

    Args:
        extents: height and width of the input.
        window: height and width of the dilated kernel.
        strides: of both axes.
        pads: top, left, bottom, right.
    """
    if not any(pads):
        return "VALID"
    for axis, row in enumerate(zip(extents, window, strides, strict=True)):
        if conv_pads("SAME_UPPER", *row, dilation=1) != (pads[axis], pads[axis + 2]):
            return ""
    return "SAME"


def padded(
    draft: Draft,
    source: int,
    window: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    fill: Array | None = None,
    *,
    explicit: bool = False,
) -> tuple[int, int]:
    """Return the input of a window, behind a PAD if need be, and the ``Padding`` of the window.

    Args:
        draft: the graph.
        source: number of a tensor with its channels last.
        window: height and width of the dilated kernel.
        strides: of both axes.
        pads: top, left, bottom, right.
        fill: the value that is padded; None for the real number 0.
        explicit: whether to append a PAD even if TFLite has a name for the padding.
    """
    stored = draft.graph.tensors[source]
    named = named_padding(stored.shape[1:3], window, strides, pads)
    if named and not explicit:
        return source, enumerator("Padding", named)
    y_begin, x_begin, y_end, x_end = pads
    amounts = np.asarray([[0, 0], [y_begin, y_end], [x_begin, x_end], [0, 0]], np.int32)
    shape = [n + int(amounts[k].sum()) for k, n in enumerate(stored.shape)]
    output = draft.add(f"{stored.name}/padded", shape, stored.dtype, None, stored.quantization)
    pad(draft, source, output, amounts, fill)
    return output, enumerator("Padding", "VALID")


def pad(draft: Draft, source: int, output: int, amounts: Array, fill: Array | None) -> None:
    """Append a PAD, or a PADV2 where the value is not the real number 0."""
    places = draft.number("paddings", amounts)
    if fill is None:
        draft.emit("PAD", [source, places], [output], "PadOptions")
        return
    value = draft.number("fill", fill.reshape(()), draft.quantization(source))
    draft.emit("PADV2", [source, places, value], [output], "PadV2Options")


def ends_of(draft: Draft, node: onnx.NodeProto, rank: int) -> Array:
    """Return the padding before and after each axis, int64 [rank, 2]."""
    pads = draft.constant(node.input[1])
    if pads is None:
        raise ModelError("pads are not constant")
    axes = draft.constant(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    places = np.arange(rank) if axes is None else axes % rank
    amounts = np.zeros((rank, 2), np.int64)
    amounts[places] = pads.reshape(2, -1).T
    return amounts


def pool_options(kernel: Sequence[int], strides: Sequence[int], padding: int) -> dict[str, int]:
    """Return the fields of ``Pool2DOptions``."""
    return {
        "Padding": padding,
        "StrideH": int(strides[0]),
        "StrideW": int(strides[1]),
        "FilterHeight": int(kernel[0]),
        "FilterWidth": int(kernel[1]),
        "FusedActivationFunction": enumerator("ActivationFunctionType", "NONE"),
    }
