"""Tests of rewrite-conv-transpose-as-conv."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npuconv
from npuconv.config import Options
from npuconv.legalize.rewrites.rewrite_conv_transpose_as_conv import Axis, sub_pixel, zero_insertion
from npuconv.model.conv import Window, window
from npuconv.partition.costs import cost
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-conv-transpose-as-conv"
X = (1, 4, 5, 6)


def transposed(weight=(4, 3, 3, 3), x=X, **attrs) -> Net:
    return Net(x=x).conv("x", weight, op="ConvTranspose", **attrs)


def shared_weights() -> Net:
    """Two layers with the same weights and strides that differ."""
    net = Net(x=X)
    weight = net.random(4, 4, 2, 2)
    net.op("ConvTranspose", "x", weight, strides=[2, 2])
    return net.op("ConvTranspose", net.last, weight, strides=[1, 3])


def in_the_middle() -> Net:
    """An output of the model that another layer reads."""
    net = transposed(strides=[2, 2]).output()
    return net.op("Relu").output()


FIRES = [
    lambda: transposed().model(),
    lambda: transposed(pads=[1, 1, 1, 1], dilations=[2, 1]).model(),
    lambda: transposed(strides=[2, 2]).model(),
    lambda: transposed((4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]).model(),
    lambda: transposed((4, 3, 5, 2), strides=[3, 3], pads=[2, 0, 1, 0]).model(),
    lambda: transposed(strides=[2, 2], output_padding=[1, 1], pads=[1, 1, 1, 1]).model(),
    lambda: transposed(strides=[1, 2], dilations=[2, 2]).model(),
    lambda: transposed(strides=[3, 2], bias=False).model(),
    lambda: transposed((4, 3, 1, 1), strides=[2, 2]).model(),
    lambda: transposed((4, 1, 3, 3), group=4, strides=[2, 2]).model(),
    lambda: transposed((4, 2, 3, 3), group=4, strides=[1, 2]).model(),
    lambda: transposed((4, 3, 3, 3), group=2, strides=[2, 2]).model(),
    lambda: transposed((4, 3, 3, 3), group=2, strides=[2, 3]).model(),
    lambda: transposed(pads=[3, 3, 3, 3]).model(),
    lambda: transposed(strides=[2, 2], pads=[4, 3, 3, 4]).model(),
    lambda: transposed(x=("N", 4, "H", "W"), strides=[2, 2], pads=[1, 1, 0, 0]).model(),
    lambda: transposed(x=("N", 4, "H", "W"), strides=[1, 2]).model(),
    lambda: transposed((4, 2, 3, 3), x=("N", 4, "H", "W"), strides=[3, 2], group=2).model(),
    lambda: shared_weights().model(),
    lambda: in_the_middle().model(),
]


def fed() -> Net:
    net = Net(x=X, w=(4, 3, 3, 3))
    return net.op("ConvTranspose", "x", "w", strides=[2, 2])


SILENT = [
    lambda: Net(x=X).conv("x", (4, 4, 3, 3)).model(),
    lambda: fed().model(),
    lambda: transposed(auto_pad="SAME_UPPER", strides=[2, 2]).model(),
    lambda: transposed(output_shape=[10, 12], strides=[2, 2]).model(),
    lambda: Net(x=(1, 4, 9)).conv("x", (4, 3, 3), op="ConvTranspose").model(),
    lambda: Net(opset=11, x=X).conv("x", (4, 3, 3, 3), op="ConvTranspose").model(),
]


def rewritten(proto, target=None, **options):
    """The model after the pass, and the record of its one rewrite."""
    ctx = Passes(target, Options(**options)) if target else context(**options)
    model = read(proto)
    assert run_pass(NAME, model, ctx) == 1
    same_numbers(proto, model)
    return model, ctx.rewrites[0]


def ops(model) -> list[str]:
    return [node.op for node in model.nodes()]


def test_stride_1_is_one_convolution():
    """The kernel is turned around; nothing else is needed."""
    model, record = rewritten(transposed(pads=[1, 1, 1, 1]).model())
    assert ops(model) == ["Conv"]
    assert window(model.nodes()[0]).pads == ((1, 1), (1, 1))
    assert record.after == "Conv 3x3, 3 channels"


def test_equal_strides_are_depth_to_space():
    """Two by two cells of the output are four channels."""
    model, _ = rewritten(transposed((4, 3, 2, 2), strides=[2, 2]).model())
    assert ops(model) == ["Conv", "DepthToSpace"]
    assert (window(model.nodes()[0]).kernel, window(model.nodes()[0]).out_channels) == ((1, 1), 12)
    assert cost(model.nodes()).macs == 4 * 12 * 30


def test_a_crop_is_cheaper_than_a_larger_kernel():
    """Kernel 4, stride 2, pad 1: 2x2 taps and a Slice, not 3x3."""
    model, record = rewritten(transposed((4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]).model())
    assert ops(model) == ["Conv", "DepthToSpace", "Slice"]
    assert window(model.nodes()[0]).kernel == (2, 2)
    assert record.after == "sub-pixel form: Conv 2x2, 12 channels + DepthToSpace + Slice"


def test_unequal_strides():
    """DepthToSpace has one block size; Reshape and Transpose have none."""
    model, _ = rewritten(transposed((4, 3, 2, 3), strides=[2, 3]).model())
    assert ops(model) == ["Conv", "Reshape", "Transpose", "Reshape"]


def test_a_depthwise_one_stays_depthwise():
    """Its phases are further outputs of each channel."""
    model, _ = rewritten(transposed((4, 1, 3, 3), group=4, strides=[2, 2]).model())
    win = window(model.nodes()[0])
    assert (win.mode, win.out_channels) == ("depthwise", 16)


def test_zero_insertion_on_request():
    """The record has both forms and the choice."""
    proto = transposed(strides=[2, 2]).model()
    model, record = rewritten(proto, prefer=("zero-insertion",))
    assert ops(model)[:3] == ["Pad", "DepthToSpace", "Conv"]
    assert [(f.name, f.is_chosen) for f in record.forms] == [
        ("sub-pixel", False),
        ("zero-insertion", True),
    ]
    assert record.forms[0].cost.macs < record.forms[1].cost.macs


def test_the_target_decides_by_cost():
    """The sub-pixel form moves more channels, which decides if bytes moved alone count."""
    costs = {"costs": {"mac": 0, "weight_byte": 0, "moved_byte": 1}}
    proto = transposed((4, 30, 3, 3), strides=[2, 2]).model()
    _, record = rewritten(proto, chip(rank={"equals": 4}, also=costs))
    assert [f.name for f in record.forms if f.is_chosen] == ["zero-insertion"]


def test_the_target_decides_by_limits():
    """A form that known limits forbid costs what it takes to keep them."""
    proto = transposed((4, 3, 4, 4), strides=[2, 2]).model()
    _, record = rewritten(proto, chip(out_c={"max": 8}, also={"costs": {"convolution": 1e6}}))
    assert [f.name for f in record.forms if f.is_chosen] == ["zero-insertion"]
    assert [f.cost.convolutions for f in record.forms] == [2, 1]


def test_no_legal_form_is_a_refusal():
    """The refusal has the reason of each form."""
    ctx = Passes(chip(layout={"equals": "nhwc"}), Options())
    model = read(transposed(strides=[2, 2]).model())
    assert run_pass(NAME, model, ctx) == 0
    (refusal,) = ctx.refusals
    text = "sub-pixel: layout is nchw, the device takes nhwc; zero-insertion"
    assert refusal.reason.startswith(text)


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (fed().model(), "its weights are not constant"),
        (transposed(auto_pad="SAME_UPPER").model(), "its pads are not resolved"),
        (
            Net(x=(1, 4, 9)).conv("x", (4, 3, 3), op="ConvTranspose").model(),
            "it has 1 spatial axes, not 2",
        ),
    ],
)
def test_refusals(proto, reason):
    """Each near miss says why."""
    ctx = context()
    assert run_pass(NAME, read(proto), ctx) == 0
    assert [r.reason for r in ctx.refusals] == [reason]


def test_the_bias_of_a_model_output_keeps_its_name():
    """The output of the model is made by the last node of the new form."""
    proto = transposed((4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]).model()
    model, _ = rewritten(proto)
    assert model.graph.outputs[0].name == proto.graph.output[0].name
    bias = model.nodes("Conv")[0].inputs[2].values
    assert np.array_equal(bias[:4], np.repeat(bias[0], 4))


def one_axis(
    kernel: int, stride: int, dilation: int = 1, pads: tuple[int, int] = (0, 0), extra: int = 0
) -> Window:
    return Window(
        op="ConvTranspose",
        kernel=(kernel,),
        strides=(stride,),
        dilations=(dilation,),
        pads=(pads,),
        auto_pad="NOTSET",
        group=1,
        weight=(1, 1, kernel),
        input=None,
        output=None,
        output_padding=(extra,),
        output_shape=None,
    )


def by_the_text(win: Window, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The output as ONNX describes it: every cell spreads the kernel, then pads are cut off."""
    (kernel,), (stride,), (dilation,) = win.kernel or (), win.strides, win.dilations
    (begin, end), (extra,) = win.pads[0], win.output_padding
    full = np.zeros(stride * (len(x) - 1) + (kernel - 1) * dilation + 1 + extra, x.dtype)
    for cell, value in enumerate(x):
        for tap in range(kernel):
            full[cell * stride + tap * dilation] += value * w[tap]
    return full[begin : len(full) - end]


def by_the_plan(axis: Axis, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The output of the convolution with its phases side by side, cropped."""
    stretched = np.zeros(len(x) * axis.stretch, x.dtype)
    stretched[:: axis.stretch] = x
    padded = np.pad(stretched, axis.pads)
    result = [
        sum(
            padded[cell + u * axis.dilation] * (0 if tap is None else w[tap])
            for u, tap in enumerate(phase)
        )
        for cell in range(axis.cells(len(x)))
        for phase in axis.taps
    ]
    return np.array(result[axis.crop[0] : len(result) - axis.crop[1]], x.dtype)


@given(st.data())
def test_both_forms_are_what_onnx_describes(data: st.DataObject):
    """Any kernel, stride, dilation, pads and output_padding that leave a cell."""
    kernel, stride = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    dilation, extent = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    reach = (kernel - 1) * dilation + 1
    extra = data.draw(st.integers(0, max(stride, dilation)))
    cells = stride * (extent - 1) + reach + extra
    begin = data.draw(st.integers(0, cells - 1))
    end = data.draw(st.integers(0, cells - 1 - begin))
    win = one_axis(kernel, stride, dilation, (begin, end), extra)
    rng = np.random.default_rng(0)
    x, w = rng.integers(1, 9, extent), rng.integers(1, 9, kernel)
    wanted = by_the_text(win, x, w)
    for form in (sub_pixel, zero_insertion):
        axis = form(win, 0)
        assert min(axis.pads) >= 0
        assert min(axis.crop) >= 0
        assert by_the_plan(axis, x, w).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "taps", "crop"),
    [
        (2, 2, (0, 0), 1, (0, 0)),  # the usual upsampling: nothing is wasted
        (4, 2, (1, 1), 2, (1, 1)),  # two taps and a crop, not three taps without
        (3, 2, (0, 1), 2, (0, 0)),
        (3, 1, (1, 1), 3, (0, 0)),  # stride 1: the kernel turned around
        (1, 3, (0, 0), 1, (0, 2)),  # phases without a tap are zero
    ],
)
def test_the_smallest_kernel_is_taken(kernel, stride, pads, taps, crop):
    """The smallest kernel is taken, then the smallest crop."""
    axis = sub_pixel(one_axis(kernel, stride, 1, pads), 0)
    assert (axis.kernel, axis.crop, axis.phases) == (taps, crop, stride)


def test_stride_1_keeps_the_dilation():
    """No zeros are written into the kernel there."""
    axis = sub_pixel(one_axis(3, 1, 2, (1, 1)), 0)
    assert axis == Axis(((2, 1, 0),), 2, (3, 3), (0, 0))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite(value: float):
    """0 times infinity is NaN, which is no fault of the rewrite: a rule reports the weights."""
    weight = np.ones((3, 3, 4, 4), np.float32)
    weight[0, 0, 0, 0] = value
    net = Net(x=(1, 3, 6, 6))
    proto = net.op("ConvTranspose", "x", net.constant(weight), strides=[2, 2]).model()
    for form in ("qoperator", "float"):
        assert "DTY003" in {f.code for f in npuconv.check(proto, format=form).findings}
