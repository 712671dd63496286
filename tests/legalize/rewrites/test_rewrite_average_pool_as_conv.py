"""Tests of rewrite-average-pool-as-conv."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.model import query
from npuconv.partition.costs import cost
from support.asserts import Passes, context, read, refusals, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-average-pool-as-conv"
C = 3
X = (2, C, 9, 10)
Dims = tuple[int | str, ...]


def pool(kernel: list[int] | None = None, *, x: Dims = X, opset: int = 19, **attrs: object) -> Net:
    """An AveragePool."""
    kernel = [3, 2] if kernel is None else kernel
    return Net(opset=opset, x=x).op("AveragePool", kernel_shape=kernel, name="pool", **attrs)


def whole(x: Dims = X, opset: int = 17) -> Net:
    """A GlobalAveragePool."""
    return Net(opset=opset, x=x).op("GlobalAveragePool", name="pool")


# Takes pools of three cells at most, and convolutions.
POOLS = chip(also={"operators": {"Conv": {}, "AveragePool": {"limits": {"kernel_h": {"max": 3}}}}})
FIRES = [
    lambda: pool().model(),
    lambda: pool(strides=[2, 3]).model(),
    lambda: pool(pads=[1, 0, 2, 1], count_include_pad=1).model(),
    lambda: pool(pads=[0, 0, 0, 0]).model(),
    lambda: pool(dilations=[2, 3]).model(),
    lambda: pool([3, 2], strides=[3, 2], ceil_mode=1).model(),
    lambda: pool([3, 3], strides=[1, 1], ceil_mode=1, x=("N", C, 9, 9)).model(),
    lambda: pool(x=("N", C, "H", 8), kernel=[1, 2], strides=[1, 2]).model(),
    lambda: pool([3], x=(2, C, 9), strides=[2], pads=[1, 1], count_include_pad=1).model(),
    lambda: pool(opset=7).model(),
    lambda: pool(x=(2, 1, 9, 10)).model(),
    lambda: whole().model(),
    lambda: whole(("N", C, 4, 5), opset=7).model(),
    lambda: whole((2, C, 7)).model(),
    lambda: whole((2, C, 1, 1)).model(),
    (lambda: pool([4, 2]).model(), POOLS),
]
SILENT = [
    lambda: pool(pads=[1, 0, 1, 0]).model(),
    lambda: pool(strides=[2, 3], ceil_mode=1).model(),
    lambda: pool(x=("N", C, "H", 8), strides=[2, 1], ceil_mode=1).model(),
    lambda: pool(auto_pad="SAME_UPPER").model(),
    lambda: pool([2, 2, 2], x=(1, C, 4, 4, 4)).model(),
    lambda: pool(x=(2, "C", 9, 10)).model(),
    lambda: whole((2, C, 7, "W")).model(),
    lambda: whole((2, "C", 7, 7)).model(),
    lambda: whole((2, C, 4, 4, 4)).model(),
    lambda: whole((2, C, 7), opset=11).model(),
    (lambda: pool().model(), POOLS),  # as it is, within its limits
]


def ops(model: object) -> list[str]:
    return [node.op for node in model.nodes()]  # type: ignore[attr-defined]


def test_the_weights_are_one_over_the_number_of_cells():
    """One kernel per channel; strides, pads and dilations stay."""
    attrs = {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 1]}
    proto = pool(count_include_pad=1, **attrs).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    (conv,) = model.nodes()
    assert {name: conv.attrs[name] for name in attrs} == attrs
    assert conv.attrs["group"] == C
    assert len(conv.inputs) == 2
    weight = query.constant_input(conv, 1)
    assert weight.shape == (C, 1, 3, 2)
    assert (weight == np.float32(1 / 6)).all()
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("shape", "kernel", "left"),
    [
        ((2, C, 9, 10), (9, 10), ["Conv"]),
        ((2, C, 7), (1, 7), ["Unsqueeze", "Conv", "Squeeze"]),
        (("N", C, 1, 1), (1, 1), ["Conv"]),
    ],
)
def test_the_kernel_of_a_global_pool_is_its_input(shape, kernel, left):
    """The kernel of rank 3 is one cell high."""
    proto = whole(shape).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == left
    (conv,) = model.nodes("Conv")
    assert query.shape(conv.inputs[1]) == (C, 1, *kernel)
    same_numbers(proto, model)


def test_one_axis_is_the_width():
    """The attributes of the other stand for nothing."""
    proto = FIRES[8]()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    (conv,) = model.nodes("Conv")
    assert conv.attrs["kernel_shape"] == [1, 3]
    assert conv.attrs["strides"] == [1, 2]
    assert conv.attrs["pads"] == [0, 1, 0, 1]
    same_numbers(proto, model)


BORDER = "padded cells do not count, so it divides by another number at the border"


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[0], BORDER),
        (SILENT[1], "it rounds the extent of spatial axis 1 up"),
        (SILENT[2], "it rounds up, and the extent of spatial axis 0 is not known"),
        (SILENT[3], "it still has auto_pad=SAME_UPPER"),
        (SILENT[4], "its input has rank 5"),
        (SILENT[5], "the number of its channels is not known"),
        (SILENT[6], "the extent of spatial axis 1 is not known"),
        (SILENT[7], "the number of its channels is not known"),
        (SILENT[8], "its input has rank 5"),
        (SILENT[9], "opset 11 has no Unsqueeze that reads its axes"),
    ],
)
def test_near_misses(build, reason):
    """Near misses say why."""
    assert refusals(NAME, build()) == [("pool", reason)]


def test_a_window_larger_than_its_input():
    """A convolution would refuse the window that onnxruntime averages at a stride."""
    model = pool([3, 1], x=(1, C, 2, 8), strides=[3, 1]).model()
    ((node, reason),) = refusals(NAME, model)
    assert node == "pool"
    assert reason.startswith("its window is larger than its input")


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("extent", [7, 8, 9])
def test_rounding_up_where_nothing_is_to_round(extent, stride):
    """The pass fires exactly if extents are the same, and numbers are then too."""
    proto = pool([2, 1], x=(1, C, extent, 4), strides=[stride, 1], ceil_mode=1).model()
    model = read(proto)
    assert run_pass(NAME, model) == int((extent - 2) % stride == 0)
    same_numbers(proto, model)


def test_half_precision():
    """None of the device."""
    net = whole()
    net.inputs[0].type.tensor_type.elem_type = 10
    assert refusals(NAME, net.model()) == [("pool", "it computes in float16")]


def test_what_the_device_does_not_take():
    """Its own words."""
    ctx = Passes(chip(layout={"equals": "nhwc"}), Options())
    ((_, reason),) = refusals(NAME, whole().model(), ctx)
    assert reason.startswith("layout is nchw")


def test_a_kernel_that_a_rewrite_makes_smaller():
    """The pass after this one does; so nothing is refused."""
    ctx = Passes(chip(kernel_h={"max": 8}), Options())
    assert run_pass(NAME, read(whole().model()), ctx) == 1


def test_only_where_asked_for_and_needed():
    """The pass needs --offload and a target without the operator."""
    listed = chip(also={"operators": {"AveragePool": {}, "Conv": {}}})
    assert refusals(NAME, pool().model(), context(offload=False)) == []
    assert refusals(NAME, pool().model(), Passes(listed, Options())) == []


def test_what_it_costs():
    """A pool multiplies nothing, the convolution does."""
    ctx, model = context(), read(whole().model())
    assert cost(model.nodes()).macs == 0
    assert run_pass(NAME, model, ctx) == 1
    (record,) = ctx.rewrites
    after = cost(model.nodes())
    assert (after.macs, after.weight_bytes) == (2 * C * 9 * 10, C * 9 * 10)
    assert record.after == "depthwise Conv 9x10, 3 channels"
