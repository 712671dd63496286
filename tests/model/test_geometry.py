"""Arithmetic of one spatial axis, on cases worked out by hand."""

from __future__ import annotations

import pytest

from npuconv.model import conv


@pytest.mark.parametrize(("kernel", "dilation", "reach"), [(1, 3, 1), (3, 1, 3), (3, 2, 5)])
def test_effective_kernel(kernel, dilation, reach):
    """A dilated kernel has gaps between its cells, and none after the last."""
    assert conv.effective_kernel(kernel, dilation) == reach


@pytest.mark.parametrize(
    ("mode", "halves"), [("SAME_UPPER", (1, 2)), ("SAME_LOWER", (2, 1)), ("NOTSET", (2, 1))]
)
def test_the_odd_cell(mode, halves):
    """It goes to the end only with SAME_UPPER."""
    assert conv.split_total(3, mode) == halves


@pytest.mark.parametrize(
    ("mode", "extent", "kernel", "stride", "dilation", "pads"),
    [
        ("VALID", 224, 7, 2, 1, (0, 0)),
        ("SAME_UPPER", 224, 7, 2, 1, (2, 3)),
        ("SAME_LOWER", 224, 7, 2, 1, (3, 2)),
        ("SAME_UPPER", 225, 7, 2, 1, (3, 3)),
        ("SAME_UPPER", 224, 3, 2, 1, (0, 1)),
        ("SAME_UPPER", 8, 3, 1, 2, (2, 2)),
        ("SAME_LOWER", 8, 2, 1, 3, (2, 1)),
        ("SAME_UPPER", 9, 1, 3, 1, (0, 0)),  # the kernel never reaches over the edge
    ],
)
def test_conv_pads(mode, extent, kernel, stride, dilation, pads):
    """The first layer of a ResNet, dilated and strided kernels."""
    assert conv.conv_pads(mode, extent, kernel, stride, dilation) == pads


def test_an_unknown_extent_matters_only_with_a_stride():
    """With stride 1 the total is the same for every extent."""
    assert conv.conv_pads("SAME_UPPER", None, 4, 1, 2) == (3, 3)
    assert conv.conv_pads("SAME_UPPER", None, 4, 2, 2) is None
    assert conv.conv_pads("VALID", None, 4, 2, 2) == (0, 0)


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "dilation", "pads", "out"),
    [(224, 7, 2, 1, (2, 3), 112), (8, 3, 1, 2, (0, 0), 4), (5, 3, 2, 1, (1, 1), 3)],
)
def test_conv_output(extent, kernel, stride, dilation, pads, out):
    """The output extent is rounded down."""
    assert conv.conv_output(extent, kernel, stride, dilation, pads) == out


def test_transpose_same_gives_extent_times_stride():
    """The input extent cancels out, so it need not be known."""
    for extent in (None, 1, 5, 100):
        assert conv.transpose_pads("SAME_UPPER", extent, 4, 2, 1) == (1, 1, 0)
        assert conv.transpose_pads("SAME_LOWER", extent, 3, 2, 1) == (1, 0, 0)
    assert conv.transpose_output(5, 4, 2, 1, (1, 1), 0) == 10


def test_transpose_valid_and_plain_pad_nothing():
    """Without an extent to reach there is nothing to distribute."""
    assert conv.transpose_pads("VALID", 5, 3, 2, 1) == (0, 0, 0)
    assert conv.transpose_pads("NOTSET", None, 3, 2, 1, 1) == (0, 0, 1)


@pytest.mark.parametrize(
    ("mode", "output", "expected"),
    [
        ("NOTSET", 8, (2, 1, 0)),  # all but SAME_UPPER put the odd cell first
        ("SAME_LOWER", 8, (2, 1, 0)),
        ("SAME_UPPER", 8, (1, 2, 0)),
        ("NOTSET", 11, (0, 0, 0)),
    ],
)
def test_transpose_output_shape(mode, output, expected):
    """5 cells at stride 2 under a kernel of 3 are 11; the rest is cut off."""
    assert conv.transpose_pads(mode, 5, 3, 2, 1, 0, output) == expected


def test_a_negative_total_is_appended_at_the_end():
    """Cells that no kernel reaches hold only the bias."""
    assert conv.transpose_pads("SAME_UPPER", 5, 3, 2, 1, 0, 13) == (0, 0, 2)
    assert conv.transpose_pads("SAME_LOWER", 5, 1, 3, 1) == (0, 0, 2)
    assert conv.transpose_output(5, 1, 3, 1, (0, 0), 2) == 15


def test_output_shape_needs_the_input_extent():
    """An output extent alone does not tell how much is cut off."""
    assert conv.transpose_pads("NOTSET", None, 3, 2, 1, 0, 8) is None


def test_output_padding_counts_towards_the_total():
    """What is appended is there to be cut off as well."""
    assert conv.transpose_total(5, 3, 2, 1, 1, 10) == 2
    assert conv.transpose_pads("SAME_UPPER", 5, 3, 2, 1, 1, 10) == (1, 1, 1)
