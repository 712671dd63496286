"""Facts of a node: every name that a target file can use is measured."""

from __future__ import annotations

import pytest

from npuconv.model import facts
from npuconv.model.facts import measure
from npuconv.target.facts import FACTS
from support.asserts import read
from support.builders import Net

# Decided by quantization, the same as another under ONNX's name, or of other operators.
LATER = {"weight_abs_sum_max"} | {name for name, fact in FACTS.items() if fact.alias_of}
LATER |= {"ceil_mode", "count_include_pad", "pad_mode", "pad_outside_hw", "blocksize"}
LATER |= {
    "axis",
    "axes",
    "perm",
    "all_but_two",
    "broadcast",
    "step_max",
    "resize_mode",
    "coordinate_mode",
}
LATER |= {"constant_operand", "depth", "alpha", "beta", "indices_rank"}


def conv(weight=(4, 3, 3, 3), shape=(1, 3, 8, 10), op="Conv", **attrs):
    bias = attrs.pop("bias", True)
    net = Net(x=shape).conv("x", weight, op=op, bias=bias, **attrs)
    return measure(read(net.model()).nodes()[0])


def test_every_fact_of_a_convolution():
    """A depthwise convolution has all of them, and none under a name nobody knows."""
    found = conv((8, 1, 3, 3), (1, 4, 8, 8), group=4)
    assert {name for name, value in found.items() if value is not None} == set(FACTS) - LATER


def test_values():
    """Each number is where it belongs: height first, width last."""
    found = conv(
        (4, 3, 3, 5), strides=[2, 1], dilations=[2, 1], pads=[1, 2, 3, 4], kernel_shape=[3, 5]
    )
    assert {
        "rank": 4, "mode": "plain", "layout": "nchw", "dtype": "float32", "bias": True,
        "weight_dtype": "float32", "bias_dtype": "float32", "auto_pad": "NOTSET", "group": 1,
        "kernel_h": 3, "kernel_w": 5, "stride_h": 2, "stride_w": 1, "dilation_h": 2,
        "dilation_w": 1, "pad_top": 1, "pad_left": 2, "pad_bottom": 3, "pad_right": 4,
        "pad_max": 4, "in_n": 1, "in_c": 3, "in_h": 8, "in_w": 10, "out_n": 1, "out_c": 4,
        "weight_n": 4, "weight_c": 3, "weight_h": 3, "weight_w": 5, "dilated_kernel_h": 5,
        "dilated_kernel_w": 5, "kernel_area": 15, "kernel_volume": 45, "in_c_per_group": 3,
        "out_c_per_group": 4, "weight_constant": True, "pad_value": 0,
    }.items() <= found.items()  # fmt: skip


def test_kinds():
    """A fact has the type that its definition says, and one of its choices."""
    for name, value in conv((8, 1, 3, 3), (1, 4, 8, 8), group=4).items():
        kind = {"int": int, "str": str, "bool": bool}[FACTS[name].kind]
        assert type(value) is kind, name
        assert not FACTS[name].choices or value in FACTS[name].choices


@pytest.mark.parametrize(
    ("weight", "channels", "group", "multiplier"),
    [((8, 1, 1, 1), 4, 4, 2), ((8, 2, 1, 1), 4, 2, None)],
)
def test_groups(weight, channels, group, multiplier):
    """Only a depthwise convolution has a channel multiplier."""
    found = conv(weight, (1, channels, 8, 8), group=group)
    assert found.get("channel_multiplier") == multiplier
    assert found["in_c_per_group"] == weight[1]


def test_a_convolution_of_one_axis():
    """A kernel of one axis has a width and no height."""
    found = conv((4, 3, 5), (1, 3, 12), pads=[1, 2])
    assert found["rank"] == 3
    assert (found["kernel_w"], found["pad_left"], found["pad_right"]) == (5, 1, 2)
    assert "kernel_h" not in found
    assert "in_h" not in found


def test_a_convolution_of_three_axes():
    """Height and width are the last two axes."""
    found = conv((4, 3, 2, 3, 5), (1, 3, 8, 8, 8))
    assert (found["rank"], found["kernel_h"], found["kernel_w"]) == (5, 3, 5)
    assert found["kernel_area"] == 30


def test_transposed():
    """Channels are read from a weight of the other order."""
    found = conv((3, 4, 3, 3), op="ConvTranspose", strides=[2, 2], output_padding=[1, 0])
    assert (found["mode"], found["in_c"], found["out_c"]) == ("transposed", 3, 4)
    assert (found["output_padding_h"], found["output_padding_w"]) == (1, 0)


def test_what_is_not_known():
    """A symbol or a missing bias is None or false, never a guess."""
    found = conv(shape=("N", 3, "h", "w"), bias=False)
    assert (found["in_n"], found["in_h"], found["out_w"]) == (None, None, None)
    assert (found["bias"], found["bias_dtype"]) == (False, None)


def test_weights_that_are_computed():
    """Computed weights are not constant and may have no known shape."""
    net = Net(x=(1, 3, 8, 8), w=("m", 3, "kh", "kw")).op("Conv", "x", "w")
    found = measure(read(net.model()).nodes()[0])
    assert found["weight_constant"] is False
    assert "kernel_h" not in found
    assert "kernel_area" not in found


def test_a_group_of_nothing():
    """A group of 0 is a mistake in the model; nothing is divided by it."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model())
    model.nodes()[0].attrs["group"] = 0
    assert "in_c_per_group" not in measure(model.nodes()[0])


def test_pools_have_windows_and_no_weights():
    """A pool is measured too."""
    net = Net(x=(1, 3, 8, 8)).op("MaxPool", kernel_shape=[2, 3], strides=[2, 1])
    found = measure(read(net.model()).nodes()[0])
    assert (found["kernel_h"], found["stride_h"], found["in_c"]) == (2, 2, 3)
    assert found["weight_constant"] is False
    assert (found["kernel_area"], found["ceil_mode"]) == (6, False)
    assert "kernel_volume" not in found
    assert "count_include_pad" not in found


@pytest.mark.parametrize("counted", [0, 1])
def test_an_average_pool_may_count_its_padding(counted):
    """The attribute is 0 where it is not written."""
    attrs = {"count_include_pad": 1} if counted else {}
    net = Net(x=(1, 3, 8, 8)).op("AveragePool", kernel_shape=[2, 2], ceil_mode=1, **attrs)
    found = measure(read(net.model()).nodes()[0])
    assert (found["count_include_pad"], found["ceil_mode"]) == (bool(counted), True)


def first(net):
    return facts.measure(read(net.model()).nodes()[0])


def test_other_operators_have_rank_and_extents():
    """Operators without a kernel have the facts of their tensors."""
    assert first(Net(x=(1, 3, 8, "w")).op("Relu")) == {
        "rank": 4, "dtype": "float32", "in_n": 1, "in_c": 3, "in_h": 8, "in_w": None,
        "out_n": 1, "out_c": 3, "out_h": 8, "out_w": None,
    }  # fmt: skip
    assert first(Net(x=(2, 3)).op("Relu")) == {"rank": 2, "dtype": "float32"}
    assert first(Net(x=None).op("Relu")) == {}


def test_broadcasting_takes_the_largest_input():
    """The largest input counts in any place; a constant does not count."""
    found = first(Net(x=(1, 3, 1, 1), y=(1, 3, 8, 6)).op("Add", "x", "y"))
    assert (found["in_h"], found["out_w"]) == (8, 6)
    net = Net(x=(1, 3, 1, 1))
    found = first(net.op("Mul", net.random(1, 3, 8, 6), "x"))
    assert (found["in_h"], found["out_w"]) == (1, 6)


def test_pad():
    """Amounts of the last two axes, and what is padded besides."""
    found = first(Net(x=(1, 3, 8, 8)).pad([0, 2, 1, 3, 0, 0, 4, 5]))
    names = ("pad_top", "pad_left", "pad_bottom", "pad_right", "pad_max", "pad_outside_hw")
    assert [found[name] for name in names] == [1, 3, 4, 5, 5, 2]
    assert found["pad_mode"] == "constant"
    assert first(Net(x=(1, 3, 8)).pad([0, 0, 1, 0, 0, 1], mode="edge"))["pad_mode"] == "edge"


def test_pad_with_computed_amounts():
    """Only the mode is known of a Pad with computed amounts."""
    net = Net(x=(1, 3, 8, 8)).op("Shape").op("Pad", "x", "t0", mode="reflect")
    found = facts.measure(read(net.model()).nodes("Pad")[0])
    assert found["pad_mode"] == "reflect"
    assert "pad_top" not in found


def test_blocksize():
    """The blocksize of DepthToSpace is a fact."""
    assert first(Net(x=(1, 4, 8, 8)).op("DepthToSpace", blocksize=2))["blocksize"] == 2


def test_layout():
    """The domain of a Conv gives its layout."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model())
    model.nodes()[0].domain = "com.ms.internal.nhwc"
    assert measure(model.nodes()[0])["layout"] == "nhwc"


def test_axes_of_operators():
    """Axes are counted from the front; what is not written is what ONNX takes instead."""
    images = (1, 3, 8, 8)
    assert first(Net(x=images).op("Softmax"))["axis"] == 3
    assert first(Net(x=images).op("Concat", "x", "x", axis=-3))["axis"] == 1
    assert first(Net(x=images).op("Transpose", perm=[0, 2, 3, 1]))["perm"] == "0,2,3,1"
    assert first(Net(x=(3, 8)).op("Transpose"))["perm"] == "1,0"
    assert first(Net(x=(2, 3, 8, 5)).op("Transpose"))["all_but_two"] == 40
    assert first(Net(x=(3, 8)).op("Transpose"))["all_but_two"] == 1
    assert first(Net(x=("N", 3, 8, 5)).op("Transpose"))["all_but_two"] == 40
    net = Net(x=images)
    assert first(net.op("ReduceSum", "x", net.constant([-1, 2])))["axes"] == "2,3"
    assert first(Net(x=images).op("ReduceMax"))["axes"] is None


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1, 3, 8, 6), "none"), ((3, 1, 1), "hw"), ((), "chw"), ((1, 1, 8, 1), "cw"), ((6,), "ch")],
)
def test_axes_that_are_broadcast(shape, axes):
    """Axes along which one value is repeated; a missing axis counts as one of extent 1."""
    net = Net(x=(1, 3, 8, 6))
    found = first(net.op("Mul", "x", net.random(*shape)))
    assert (found["broadcast"], found["constant_operand"]) == (axes, True)


def test_slice_and_resize():
    """The largest step, forwards or backwards; mode and coordinates of a Resize."""
    net = Net(x=(1, 3, 8, 8))
    ends = [net.constant([value]) for value in (7, -9, 2, -2)]
    assert first(net.op("Slice", "x", *ends))["step_max"] == 2
    net = Net(x=(1, 3, 8, 8))
    scales = net.constant([1.0, 1.0, 2.0, 2.0])
    found = first(net.op("Resize", "x", "", scales, mode="linear"))
    assert (found["resize_mode"], found["coordinate_mode"]) == ("linear", "half_pixel")


def test_numbers_of_activations_and_products():
    """Alpha and beta as text, also where they are not written; the depth of a product."""
    found = first(Net(x=(1, 3)).op("HardSigmoid", alpha=1 / 6))
    assert (found["alpha"], found["beta"]) == ("0.1667", "0.5")
    net = Net(x=(5, 3))
    assert first(net.op("Gemm", "x", net.random(5, 2), transA=1))["depth"] == 5


def test_a_result_of_fewer_axes_than_an_input():
    """A model that states one contradicts itself, and nothing is said of what is broadcast."""
    node = read(Net(x=(1, 3, 8, 8), y=(3, 8, 8)).op("Add", "x", "y").model()).nodes()[0]
    node.outputs[0].shape = [3, 8, 8]
    assert measure(node)["broadcast"] is None
