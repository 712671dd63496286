"""Tests of eliminate-ceil-mode."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.asserts import read, run, run_pass, same_numbers
from support.builders import Net, images
from support.target_files import HEAD

NAME = "eliminate-ceil-mode"


def pool(op: str = "MaxPool", extents: tuple = (8, 8), opset: int = 17, **attrs: object):
    """A pool that rounds up, and a Conv behind it."""
    net = Net(x=(1, 3, *extents), opset=opset)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1} | attrs
    return net.op(op, **attrs).conv("", (4, 3, 1, 1)).model()


COUNTED = {"kernel_shape": [3, 1], "pads": [0, 0, 0, 0], "count_include_pad": 1}
# The first axis rounds up; along the second the last window would begin beyond the input.
BOTH = {"kernel_shape": [2, 1], "strides": [2, 3]}
FIRES = [
    lambda: pool(),
    lambda: pool("AveragePool", (9, 9), strides=[1, 1]),
    lambda: pool(extents=(6, 6), kernel_shape=[1, 1]),  # the fourth would start behind the input
    lambda: pool("AveragePool", (6, 6), kernel_shape=[1, 1], opset=21),
    lambda: pool(extents=(9, 9)),
    lambda: pool(extents=(9, 5), **BOTH),
    lambda: pool(extents=(9, 5), pads=[1, 0, 0, 0], auto_pad="NOTSET", **BOTH),
    lambda: pool(extents=(9, 9), auto_pad="VALID"),
    lambda: pool(extents=(12, 11), kernel_shape=[3, 2], dilations=[2, 3], strides=[3, 4]),
    lambda: pool("AveragePool", (9, 9), kernel_shape=[3, 3], pads=[1, 1, 0, 0], strides=[2, 4]),
    lambda: pool("AveragePool", (10, 5), strides=[2, 3], **COUNTED),
    lambda: pool("AveragePool", (10, 5), strides=[2, 3], **COUNTED | {"pads": [1, 0, 1, 0]}),
    lambda: pool("LpPool", (9, 5), opset=18, **BOTH),
    # An average that counts its pads, but not what lies beyond them.
    lambda: pool("AveragePool", (11, 9), **COUNTED | {"pads": [1, 0, 0, 0]}),
    lambda: pool("AveragePool", (9, 8), kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
]
SILENT = [
    lambda: pool(extents=(8, "w")),
    lambda: pool(extents=(9, 9), auto_pad="SAME_UPPER"),
    lambda: pool(ceil_mode=0),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_attribute_is_gone(build):
    """A reader without support of ceil_mode gets the same extents, and the same numbers."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    (node,) = model.nodes("MaxPool", "AveragePool", "LpPool")
    assert node.attrs["ceil_mode"] == 0
    same_numbers(proto, model)


def test_what_counts_is_padded_in_front():
    """An average over the pads of the model, and not over those that only reach the end."""
    model = read(FIRES[11]())
    run_pass(NAME, model)
    assert [node.op for node in model.nodes()] == ["Pad", "AveragePool", "Conv"]
    (node,) = model.nodes("AveragePool")
    assert node.attrs["pads"] == [0, 0, 1, 0]
    assert not node.attrs["count_include_pad"]


@pytest.mark.parametrize("place", [5, 11])
def test_calibration_has_the_extents_that_are_computed(place):
    """onnxruntime infers one more where the last window begins beyond the input."""
    proto, x = FIRES[place](), images(2, 3, 9 if place == 5 else 10, 5)
    made = npuconv.convert(proto, calibration={"x": x})
    attributes = [a for node in made.model.graph.node for a in node.attribute]
    assert not any(a.name == "ceil_mode" and a.i for a in attributes)
    assert np.isfinite(made.report.accuracy.outputs[0].sqnr_db)


def test_on_a_device_that_computes_averages(tmp_path):
    """The integer kernel divides by the whole window; so does the device."""
    target = tmp_path / "device.yaml"
    target.write_text(HEAD + "  Conv: {}\n  AveragePool: {}\n  Pad: {}\n  Relu: {}\n")
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1)).op("Relu")
    net.op(
        "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1,
        count_include_pad=1,
    )  # fmt: skip
    proto, x = net.conv("", (2, 4, 1, 1)).model(), images(8, 3, 8, 8)
    made = npuconv.convert(proto, calibration={"x": x}, target=target)
    assert {n.placement for n in made.report.nodes if n.op == "AveragePool"} == {"device"}
    assert made.report.accuracy.sqnr_db > 30
    (plain,), (integers,) = run(proto), run(made.model)
    assert 20 * np.log10(np.linalg.norm(plain) / np.linalg.norm(integers - plain)) > 20
