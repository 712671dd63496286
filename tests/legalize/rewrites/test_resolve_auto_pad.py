"""Tests of resolve-auto-pad; tests/properties has the whole range of geometries."""

from __future__ import annotations

import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "resolve-auto-pad"


def image(opset: int = 17, ir_version: int = 8) -> Net:
    return Net(opset=opset, ir_version=ir_version, x=(1, 4, 9, 10))


def up(**attrs: object) -> Net:
    """A transposed convolution of stride 2 with two groups."""
    attrs = {"strides": [2, 2]} | attrs
    return image().conv(weight=(4, 2, 3, 3), op="ConvTranspose", group=2, **attrs)


def pool(op: str, **attrs: object) -> Net:
    return image(19, 9).op(op, kernel_shape=[3, 3], strides=[2, 2], **attrs)


CASES = {
    "upper": (lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
              [1, 0, 1, 1]),
    "lower": (lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="SAME_LOWER", strides=[2, 2]),
              [1, 1, 1, 0]),
    "valid": (lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="VALID"), [0] * 4),
    "valid with pads of zero": (
        lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="VALID", pads=[0] * 4), [0] * 4),
    "dilated": (lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="SAME_UPPER", dilations=[1, 2]),
                [1, 2, 1, 2]),
    "max": (lambda: pool("MaxPool", auto_pad="SAME_UPPER"), [1, 0, 1, 1]),
    "max, rounded up": (lambda: pool("MaxPool", auto_pad="SAME_LOWER", ceil_mode=1), [1, 1, 1, 0]),
    "average": (lambda: pool("AveragePool", auto_pad="SAME_LOWER"), [1, 1, 1, 0]),
    "average, pads counted": (
        lambda: pool("AveragePool", auto_pad="SAME_UPPER", count_include_pad=1), [1, 0, 1, 1]),
    "lp": (lambda: pool("LpPool", auto_pad="SAME_UPPER"), [1, 0, 1, 1]),
    "transposed": (lambda: up(auto_pad="SAME_UPPER"), [0, 0, 1, 1]),
    "transposed, lower": (lambda: up(auto_pad="SAME_LOWER"), [1, 1, 0, 0]),
    "output_shape": (lambda: up(output_shape=[18, 20]), [1, 1, 0, 0]),
    "output_shape, upper": (lambda: up(output_shape=[18, 20], auto_pad="SAME_UPPER"),
                            [0, 0, 1, 1]),
    "unknown extents": (
        lambda: Net(x=("N", 4, "H", "W")).conv(weight=(4, 4, 4, 4), auto_pad="SAME_LOWER"),
        [2, 2, 1, 1]),
}  # fmt: skip
FIRES = [lambda build=build: build().model() for build, _ in CASES.values()]
SILENT = [
    lambda: image().conv(weight=(4, 4, 3, 3)).model(),
    lambda: image().conv(weight=(4, 4, 3, 3), auto_pad="NOTSET", pads=[1] * 4).model(),
    lambda: Net(x=(1, 4, "H", 8)).conv(
        weight=(4, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]
    ).model(),
]  # fmt: skip
# onnxruntime refuses SAME together with dilation, and auto_pad together with any pads.
NOT_RUNNABLE = [FIRES[list(CASES).index(name)] for name in ("dilated", "valid with pads of zero")]


@pytest.mark.parametrize(("build", "pads"), CASES.values(), ids=list(CASES))
def test_the_pads(build, pads):
    """Written out, equal in numbers; nothing is left of what asked for them."""
    proto = build().model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (node,) = model.nodes()
    assert node.attrs["pads"] == pads
    assert node.attrs["auto_pad"] == "NOTSET"
    assert "output_shape" not in node.attrs
    assert not node.attrs.get("ceil_mode")
    assert model.origin(node) == (proto.graph.node[0].name,)
    assert ctx.rewrites[0].max_abs_difference == pytest.approx(0, abs=1e-5)
    if ctx.rewrites[0].reference == "onnxruntime":
        same_numbers(proto, model)


def test_more_cells_than_the_kernel_reaches():
    """Missing cells are appended at the end."""
    proto = up(output_shape=[20, 21]).model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    attrs = model.nodes()[0].attrs
    assert (attrs["pads"], attrs["output_padding"]) == ([0, 0, 0, 0], [1, 0])
    assert ctx.rewrites[0].before == "auto_pad=NOTSET, output_shape=[20, 21]"
    assert ctx.rewrites[0].after == "pads=[0, 0, 0, 0], output_padding=[1, 0]"
    same_numbers(proto, model)


def test_pads_beside_auto_pad():
    """ONNX forbids it, so nothing is guessed."""
    net = image()
    net.op("Conv", "x", net.random(4, 4, 3, 3), auto_pad="SAME_UPPER", pads=[1] * 4, name="c")
    assert refusals(NAME, net) == [("c", "auto_pad=SAME_UPPER together with non-zero pads")]


def test_an_extent_that_is_not_known():
    """An unknown extent matters with a stride; the axis is named."""
    assert [reason for _, reason in refusals(NAME, SILENT[2]())] == [
        "the extent of spatial axis 0 is not known"
    ]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_dilated_pool(op):
    """No runtime runs a dilated pool as ONNX means it, and the record says so."""
    model, ctx = read(pool(op, auto_pad="SAME_UPPER", dilations=[2, 2]).model()), context()
    assert run_pass(NAME, model, ctx) == 1
    (record,) = ctx.rewrites
    assert model.nodes()[0].attrs["pads"] == [2, 1, 2, 2]
    assert record.reference == "not measured"
    assert "dilated pool" in record.note


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_stride_larger_than_the_kernel(op):
    """onnxruntime is no reference there, and the record says so."""
    net = image().conv(weight=(4, 4, 1, 1), op=op, strides=[3, 3], auto_pad="SAME_UPPER")
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 1
    (record,) = ctx.rewrites
    assert model.nodes()[0].attrs["pads"] == [0, 0, 0, 0]
    assert "stride is larger than its kernel" in record.note
