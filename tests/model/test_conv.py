"""A convolution or pool as a value: attributes, shapes and costs."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import conv
from npuconv.model.conv import flat_pads, resolved_pads, window
from support.asserts import read
from support.builders import Net


def win(op="Conv", weight=(4, 3, 3, 3), shape=(1, 3, 8, 8), opset=17, **attrs):
    """The only node of a model as a Window."""
    net = Net(x=shape, opset=opset)
    built = net.conv("x", weight, op=op, **attrs) if weight else net.op(op, "x", **attrs)
    return window(read(built.model()).nodes()[0])


def test_defaults():
    """Defaults: kernel from the weight, ones, and no padding."""
    found = win()
    assert (found.kernel, found.strides, found.dilations) == ((3, 3), (1, 1), (1, 1))
    assert (found.pads, found.auto_pad, found.group) == (((0, 0), (0, 0)), "NOTSET", 1)
    assert (found.axes, found.in_channels, found.out_channels) == (2, 3, 4)
    assert (found.input, found.output) == ((1, 3, 8, 8), (1, 4, 6, 6))


def test_a_node_that_changed_is_another_window():
    """Windows are kept, but by what they say; the same in other types is the same."""
    (node,) = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()).nodes()
    first = window(node)
    node.attrs["strides"] = [2, 2]
    assert window(node).strides == (2, 2)
    node.attrs["strides"], node.inputs[0].shape = [1, 1], [1, 3, 9, "w"]
    assert window(node).input == (1, 3, 9, "w")
    node.inputs[0].shape, node.attrs["group"] = (np.int64(1), 3, 8, 8), np.int64(1)
    assert window(node) == first
    assert {type(d) for d in window(node).input} == {int}


def test_attributes():
    """The fields are the attributes; pads are pairs per axis."""
    found = win(strides=[2, 1], dilations=[1, 2], pads=[1, 2, 3, 4], kernel_shape=[3, 3])
    assert (found.strides, found.dilations) == ((2, 1), (1, 2))
    assert found.pads == ((1, 3), (2, 4))
    assert flat_pads(found.pads) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("op", "weight", "channels", "group", "mode", "sizes"),
    [
        ("Conv", (4, 3, 3, 3), 3, 1, "plain", (3, 4)),
        ("Conv", (8, 1, 3, 3), 4, 4, "depthwise", (4, 8)),
        ("Conv", (8, 2, 3, 3), 4, 2, "grouped", (4, 8)),
        ("ConvTranspose", (3, 4, 3, 3), 3, 1, "transposed", (3, 4)),
        ("ConvTranspose", (4, 2, 3, 3), 4, 2, "transposed", (4, 4)),
    ],
)
def test_modes_and_channels(op, weight, channels, group, mode, sizes):
    """Channels come from the weight, whose order a transposed convolution turns round."""
    found = win(op, weight, (1, channels, 8, 8), group=group)
    assert found.mode == mode
    assert (found.in_channels, found.out_channels) == sizes


def test_pools():
    """A pool has no weights and as many channels out as in."""
    found = win("MaxPool", None, kernel_shape=[2, 2], strides=[2, 2])
    assert (found.weight, found.parameters(), found.macs) == (None, 0, 0)
    assert (found.in_channels, found.out_channels) == (3, 3)
    assert found.kernel == (2, 2)


@pytest.mark.parametrize(
    ("op", "weight", "shape", "attrs", "macs"),
    [
        ("Conv", (4, 3, 3, 3), (1, 3, 8, 8), {}, 4 * 27 * 36),
        ("Conv", (4, 3, 3, 3), (2, 3, 8, 8), {"strides": [2, 2]}, 2 * 4 * 27 * 9),
        ("Conv", (4, 1, 3, 3), (1, 4, 8, 8), {"group": 4}, 4 * 9 * 36),
        ("Conv", (8, 2, 1, 1), (1, 4, 8, 8), {"group": 2}, 8 * 2 * 64),
        ("Conv", (4, 3, 5), (1, 3, 12), {}, 4 * 15 * 8),
        ("ConvTranspose", (3, 4, 2, 2), (1, 3, 8, 8), {"strides": [2, 2]}, 48 * 64),
        ("Conv", (4, 3, 3, 3), ("N", 3, 8, 8), {}, 4 * 27 * 36),
        ("Conv", (4, 3, 3, 3), (1, 3, "h", 8), {}, None),
    ],
)
def test_macs(op, weight, shape, attrs, macs):
    """A MAC for each weight and output cell; a symbolic batch counts once."""
    assert win(op, weight, shape, **attrs).macs == macs


def test_macs_of_an_output_stated_as_a_scalar():
    """A file may state what no convolution has: the MACs are unknown."""
    (node,) = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()).nodes()
    node.outputs[0].shape = []
    assert window(node).macs is None


def test_what_slides_no_kernel():
    """Other operators are no windows, and neither is a node of unknown rank."""
    model = read(Net(x=(1, 3, 8, 8)).op("Relu").model())
    assert window(model.nodes()[0]) is None
    net = Net(x=(1, 3, 8, 8)).op("Thing", domain="com.example")
    model = read(net.op("MaxPool", kernel_shape=[2, 2]).model())
    (pool,) = model.nodes("MaxPool")
    assert window(pool).axes == 2
    del pool.attrs["kernel_shape"]
    assert window(pool) is None
    pool.inputs.clear()
    assert window(pool) is None


def test_weights_of_unknown_size():
    """The kernel is what the node says, if it says one."""

    def dynamic(**attrs):
        net = Net(x=(1, 3, 8, 8), w=("m", 3, "kh", "kw")).op("Conv", "x", "w", **attrs)
        return window(read(net.model()).nodes()[0])

    assert dynamic().kernel is None
    assert dynamic().axes == 2
    assert dynamic().in_channels == 3
    assert resolved_pads(dynamic()) == 0
    assert dynamic(kernel_shape=[3, 3]).kernel == (3, 3)


def test_no_shape_at_all():
    """Rank and channels are unknown where neither input nor output says them."""
    model = read(Net(x=(1, 3, 8, 8), w=("m", 3, "kh", "kw")).op("Conv", "x", "w").model())
    conv = model.nodes()[0]
    found = window(conv)
    from dataclasses import replace

    bare = replace(found, input=None, output=None)
    assert (bare.axes, bare.in_channels, bare.extent(0)) == (None, None, None)
    assert replace(found, input=(1, 3)).extent(1) is None
    assert replace(found, input=(1, 3, "h", 8)).extent(0) is None


def test_pads_of_the_wrong_length():
    """A rule reports them; a Window has no pads then."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model())
    (conv,) = model.nodes()
    conv.attrs["pads"] = [1, 1, 1]
    assert window(conv).pads == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("attrs", "pads", "extra"),
    [
        ({"pads": [1, 2, 3, 4]}, ((1, 3), (2, 4)), (0, 0)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, ((0, 1), (0, 1)), (0, 0)),
        ({"auto_pad": "VALID"}, ((0, 0), (0, 0)), (0, 0)),
    ],
)
def test_resolved_pads(attrs, pads, extra):
    """Written pads stay; auto_pad becomes numbers."""
    assert resolved_pads(win(**attrs)) == (pads, extra)


@pytest.mark.parametrize(
    ("attrs", "pads", "extra"),
    [
        ({"pads": [1, 1, 1, 1], "output_padding": [1, 1]}, ((1, 1), (1, 1)), (1, 1)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, ((0, 1), (0, 1)), (0, 0)),
        ({"output_shape": [16, 16], "strides": [2, 2]}, ((1, 0), (1, 0)), (0, 0)),
    ],
)
def test_resolved_pads_of_a_transposed_convolution(attrs, pads, extra):
    """output_shape gives the pads; output_padding is kept."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (3, 4, 3, 3), op="ConvTranspose")
    node = read(net.model()).nodes()[0]
    node.attrs.update(attrs)
    assert resolved_pads(window(node)) == (pads, extra)


def test_the_axis_that_is_not_known():
    """The first axis without a known extent is named if it has a stride."""
    found = win(shape=(1, 3, 8, "w"), auto_pad="SAME_UPPER", strides=[2, 2])
    assert resolved_pads(found) == 1
    assert isinstance(resolved_pads(win(shape=(1, 3, 8, "w"), auto_pad="SAME_UPPER")), tuple)


@pytest.mark.parametrize(("kernel", "dilation", "reach"), [(1, 3, 1), (3, 1, 3), (3, 2, 5)])
def test_effective_kernel(kernel, dilation, reach):
    """A dilated kernel has gaps between its cells, and none after the last."""
    assert conv.effective_kernel(kernel, dilation) == reach


@pytest.mark.parametrize(
    ("mode", "halves"), [("SAME_UPPER", (1, 2)), ("SAME_LOWER", (2, 1)), ("NOTSET", (2, 1))]
)
def test_the_odd_cell(mode, halves):
    """The odd cell is at the end only with SAME_UPPER."""
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
    """The total at stride 1 is the same for every extent."""
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
    """No padding is distributed if there is no extent to reach."""
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
    """Appended cells are cut off as well."""
    assert conv.transpose_total(5, 3, 2, 1, 1, 10) == 2
    assert conv.transpose_pads("SAME_UPPER", 5, 3, 2, 1, 1, 10) == (1, 1, 1)


def test_block_diagonal():
    """Zeros where an output channel does not read an input channel."""
    found = conv.block_diagonal(np.arange(1, 9, dtype=np.float32).reshape(4, 2, 1), 2)[:, :, 0]
    assert found.tolist() == [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_blocks_of_a_diagonal(group):
    """The inverse of ``block_diagonal``."""
    blocks = np.random.default_rng(0).normal(size=(6, 6 // group, 3, 3)).astype(np.float32)
    dense = conv.block_diagonal(blocks, group)
    assert conv.diagonal_groups(dense) == group
    assert np.array_equal(conv.diagonal_blocks(dense, group), blocks)


def test_no_groups_where_a_weight_is_outside():
    """A single weight between two groups is enough."""
    dense = conv.block_diagonal(np.ones((6, 2, 1, 1), np.float32), 3)
    dense[2, 5] = 1e-9
    assert conv.diagonal_groups(dense) == 1
    assert conv.diagonal_groups(np.zeros((0, 4, 1, 1), np.float32)) == 1
