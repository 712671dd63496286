"""Tests of output-padding-too-large."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.executor import RuntimeRefusedError, Session
from support.asserts import finding
from support.builders import Net, images

CODE = "SHP018"
X = (1, 3, 6, 6)


def up(**attrs):
    return Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose", name="up", **attrs).model()


CASES = [
    ({"output_padding": [1, 1]}, [1, 1]),
    ({"output_padding": [0, 2], "strides": [1, 2], "dilations": [3, 1]}, [3, 2]),
    ({"output_padding": [2, 2], "strides": [2, 2], "output_shape": [10, 10]}, [2, 2]),
]
FIRES = [
    lambda: up(output_padding=[1, 1]),
    lambda: up(output_padding=[2, 2], strides=[2, 2]),
]
SILENT = [
    lambda: up(output_padding=[2, 1], strides=[3, 2]),
    lambda: up(output_padding=[1, 1], dilations=[2, 2]),
    lambda: up(output_padding=[1]),
    up,
]


@pytest.mark.parametrize(("attrs", "below"), CASES)
def test_the_rule_of_onnx_is_named(attrs, below):
    """Both sides of it; a runtime refuses the model too, and convert does as check does."""
    model = up(**attrs)
    found = finding(model, CODE)
    extra = attrs["output_padding"]
    assert found.message == (
        f"output_padding is {extra}; each value must be less than stride or dilation, {below}"
    )
    assert found.source == "ONNX ConvTranspose-11, attribute output_padding"
    with pytest.raises(RuntimeRefusedError):
        Session(model).run({"x": images(1, *X[1:])})
    assert CODE in {f.code for f in npuconv.check(model).findings}
    with pytest.raises(npuconv.UnsupportedModelError) as refused:
        npuconv.convert(model, format="float")
    assert CODE in {f.code for f in refused.value.report.findings}


def test_what_a_rewrite_appends_on_its_way():
    """An output_shape beyond the last kernel is resolved to more: nobody wrote that."""
    net = Net(x=X, w=(3, 4, 3, 3))
    net.op("ConvTranspose", "x", "w", output_shape=[21, 21], strides=[3, 3], output_padding=[2, 2])
    report = npuconv.check(net.model())
    assert "OPS003" in {f.code for f in report.findings}  # so it stays a ConvTranspose
    assert CODE not in {f.code for f in report.findings}
