"""Tests of the measurement that every rewrite goes through."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import context, read, run_pass
from builders import Net
from npuconv.errors import InternalError
from npuconv.model import edit
from npuconv.passes import Pass, Phase, _manager, _measure


def chain(length: int):
    """A row of Relus."""
    net = Net(x=(1, 4))
    for _ in range(length):
        net.op("Relu")
    return read(net.model())


def rename(wrong: int = -1) -> Pass:
    """Every Relu becomes a Max with zero, the one with number ``wrong`` with one."""

    def function(model, ctx) -> int:
        for number, node in enumerate(nodes := model.nodes("Relu")):
            with ctx.rewrite(model, [node], "Relu", "Max"):
                source, result = node.inputs[0], node.outputs[0]
                bound = edit.constant(model, "bound", np.float32([number == wrong]))
                edit.disconnect(node)
                edit.add_node(model, "Max", [source, bound], [result], origin=[node])
        return len(nodes)

    return Pass("rename", Phase.CANONICALIZE, function, (), False, "For a test.")


def test_the_difference_is_recorded():
    """Small, but of float arithmetic, so not exactly none."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv().batchnorm(4).model()), context()
    run_pass("fuse-batchnorm", model, ctx)
    (record,) = ctx.rewrites
    assert 0 <= record.difference < 1e-5
    assert (record.reference, record.note) == ("onnxruntime", "")
    assert (record.old, record.new) == (None, None)
    assert (record.node, record.origin) == ("conv0", ("conv0", "batchnormalization1"))


def test_where_onnxruntime_refuses_the_original():
    """ONNX's reference stands in, and the note says why."""
    net = Net(x=(1, 3, 8, 8)).conv(auto_pad="SAME_UPPER", dilations=[2, 2])
    model, ctx = read(net.model()), context()
    run_pass("resolve-auto-pad", model, ctx)
    (record,) = ctx.rewrites
    assert record.reference == "onnx.reference"
    assert record.difference < 1e-5
    assert record.note.startswith("onnxruntime refuses the original: ")
    assert "Dilation not supported" in record.note


def test_one_refusal_does_not_disturb_its_neighbours():
    """The others of the batch are still measured by onnxruntime."""
    net = Net(x=(1, 3, 8, 8)).conv(auto_pad="SAME_UPPER")
    net.conv(weight=(4, 4, 3, 3), auto_pad="SAME_UPPER", dilations=[2, 2])
    net.op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")
    model, ctx = read(net.model()), context()
    assert run_pass("resolve-auto-pad", model, ctx) == 3
    assert [r.reference for r in ctx.rewrites] == ["onnxruntime", "onnx.reference", "onnxruntime"]
    assert all(r.difference < 1e-5 for r in ctx.rewrites)


def test_many_regions():
    """More than one batch of them."""
    count = 2 * _measure.BATCH + 3
    model, ctx = chain(count), context()
    assert _manager.run_pass(model, rename(), ctx) == count
    assert [r.difference for r in ctx.rewrites] == [0.0] * count


def test_the_wrong_one_of_many_is_found():
    """And named, also in the second batch."""
    with pytest.raises(InternalError, match="of node 'relu40' differs"):
        _manager.run_pass(chain(50), rename(wrong=40), context())


def test_without_verification():
    """Nothing is run, nothing is recorded."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv().batchnorm(4).model()), context()
    ctx.verify = False
    assert run_pass("fuse-batchnorm", model, ctx) == 1
    (record,) = ctx.rewrites
    assert (record.difference, record.reference) == (None, "not measured")


def test_large_images_are_measured_small():
    """A rewrite that holds for every extent does not run at the real one."""
    net = Net(x=(1, 3, 4001, 4001)).conv(strides=[2, 2], auto_pad="SAME_UPPER")
    model, ctx = read(net.model()), context()
    run_pass("resolve-auto-pad", model, ctx)
    assert model.nodes()[0].attrs["pads"] == [1, 1, 1, 1]
    assert ctx.rewrites[0].reference == "onnxruntime"


def test_an_output_shape_is_measured_as_it_is():
    """It fixes the extents, so they are not made smaller."""
    net = Net(x=(1, 4, 19, 19)).conv(
        weight=(4, 4, 3, 3), op="ConvTranspose", strides=[2, 2], output_shape=[40, 40]
    )
    model, ctx = read(net.batchnorm(4).model()), context()
    run_pass("fuse-batchnorm", model, ctx)
    assert ctx.rewrites[0].reference == "onnxruntime"
