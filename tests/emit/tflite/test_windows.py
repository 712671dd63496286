"""Padding by name: equal to the explicit pads of ONNX, or not named."""

from __future__ import annotations

import pytest

from npuconv.tflite.windows import named_padding


@pytest.mark.parametrize(
    ("extents", "window", "strides", "pads", "name"),
    [
        ((8, 8), (3, 3), (1, 1), (0, 0, 0, 0), "VALID"),
        ((8, 8), (3, 3), (1, 1), (1, 1, 1, 1), "SAME"),
        ((8, 8), (3, 3), (2, 2), (0, 0, 1, 1), "SAME"),
        ((8, 8), (3, 3), (2, 2), (1, 1, 1, 1), ""),
        ((9, 9), (3, 3), (2, 2), (1, 1, 1, 1), "SAME"),
        ((8, 8), (2, 2), (1, 1), (1, 1, 0, 0), ""),  # SAME_LOWER
        ((8, 8), (5, 3), (1, 1), (2, 1, 2, 1), "SAME"),
        ((8, 8), (1, 3), (1, 1), (0, 1, 0, 1), "SAME"),
        ((8, 8), (3, 3), (1, 1), (1, 1, 1, 2), ""),
    ],
)
def test_names(extents, window, strides, pads, name):
    """SAME puts the odd cell behind."""
    assert named_padding(extents, window, strides, pads) == name
