"""Tests of attribute-contradicts-weight."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.executor import RuntimeRefusedError, Session
from support.asserts import finding, findings
from support.builders import Net, images
from support.target_files import chip

CODE = "SHP005"
X = (1, 3, 8, 8)


def conv(weight: tuple[int, ...] = (4, 3, 3, 3), x=X, **attrs):
    return Net(x=x).conv("x", weight, name="conv", **attrs).model()


def pool(**attrs):
    return Net(x=X).op("MaxPool", name="pool", **attrs).model()


def biased(size: int, op: str = "Conv", **attrs):
    net = Net(x=X)
    return net.op(op, "x", net.random(3, 3, 3, 3), net.random(size), name="conv", **attrs).model()


def up(weight: tuple[int, ...], **attrs):
    return conv(weight, op="ConvTranspose", bias=False, **attrs)


PROBLEMS = {
    "kernel_shape is [5, 5] but the weights are [4, 3, 3, 3]": lambda: conv(kernel_shape=[5, 5]),
    "kernel_shape is [3] but the weights are [4, 3, 3, 3]": lambda: conv(kernel_shape=[3]),
    "strides has 1 values, but 2 spatial axes need 2": lambda: conv(strides=[2]),
    "strides is [0, 1]; no value may be that small": lambda: conv(strides=[0, 1]),
    "dilations has 3 values, but 2 spatial axes need 2": lambda: conv(dilations=[1, 1, 1]),
    "dilations is [1, 0]; no value may be that small": lambda: conv(dilations=[1, 0]),
    "pads has 2 values, but 2 spatial axes need 4": lambda: conv(pads=[1, 1]),
    "pads is [0, 0, -1, 0]; no value may be that small": lambda: conv(pads=[0, 0, -1, 0]),
    "output_padding has 1 values, but 2 spatial axes need 2": (
        lambda: up((3, 4, 3, 3), output_padding=[1])
    ),
    "group is 0, which does not divide the 4 channels of the weights": lambda: conv(group=0),
    "group is 3, which does not divide the 4 channels of the weights": (
        lambda: conv((4, 1, 3, 3), group=3)
    ),
    "the input has 3 channels but weights and group want 2": lambda: conv((4, 2, 3, 3)),
    "the input has 3 channels but weights and group want 6": lambda: conv((4, 3, 3, 3), group=2),
    "the input has 3 channels but weights and group want 4": lambda: up((4, 3, 3, 3)),
    "the input has rank 3 but the weights have rank 4": lambda: conv(x=(1, 3, 8)),
    "the bias has shape [5] but there are 3 output channels": lambda: biased(5),
    "the bias has shape [3] but there are 9 output channels": (
        lambda: biased(3, "ConvTranspose", group=3)
    ),
    "it has 1 dimensions, which leaves no spatial axis": lambda: conv((4,), bias=False),
    "it has 2 dimensions, which leaves no spatial axis": lambda: conv((4, 3), bias=False),
}
POOLS = {
    "strides has 1 values, but 2 spatial axes need 2": (
        lambda: pool(kernel_shape=[2, 2], strides=[2])
    ),
    "the input has rank 4 but kernel_shape has 1 values": lambda: pool(kernel_shape=[2]),
}
_CELLS = "stride * (input - 1) + output_padding + (kernel - 1) * dilation + 1 by ONNX"
TRANSPOSED = {
    "output_shape has 1 values, but 2 spatial axes need 2; ONNX leaves out batch and channels": (
        {"output_shape": [9]}
    ),
    "output_shape has 4 values, but 2 spatial axes need 2; ONNX leaves out batch and channels": (
        {"output_shape": [1, 4, 9, 9]}
    ),
    "output_shape is [-9, 9]; no value may be that small": {"output_shape": [-9, 9]},
    "output_shape is [9, 0]; no value may be that small": {"output_shape": [9, 0]},
    f"pads crop 10 of the 10 cells of spatial axis 0, {_CELLS}: nothing is left": (
        {"pads": [5, 0, 5, 0]}
    ),
    f"pads crop 19 of the 18 cells of spatial axis 1, {_CELLS}: nothing is left": (
        {"pads": [0, 9, 0, 10], "strides": [2, 2], "output_padding": [1, 1]}
    ),
}
FIRES = [*PROBLEMS.values(), *POOLS.values()]
SILENT = [
    conv,
    lambda: conv(kernel_shape=[3, 3], strides=[2, 2], dilations=[1, 2], pads=[1, 0, 2, 0]),
    lambda: conv((6, 1, 3, 3), group=3),
    lambda: up((3, 2, 3, 3), group=3, output_padding=[1, 1], strides=[2, 2]),
    lambda: conv(x=("N", "C", "H", "W")),
    lambda: Net(x=X, w=("O", 3, 3, 3)).op("Conv", "x", "w").model(),
    lambda: Net(x=X).op("Relu").model(),
    lambda: pool(kernel_shape=[2, 2], strides=[2, 2]),
    lambda: biased(9, "ConvTranspose", group=3),
    lambda: up((3, 4, 3, 3), output_padding=[1, 1], dilations=[2, 2]),
    lambda: up((3, 4, 3, 3), pads=[5, 5, 4, 4]),
    lambda: up((3, 4, 3, 3), output_shape=[12, 12]),
    lambda: up((3, 4, 3, 3), x=("N", 3, "H", "W"), pads=[9, 9, 9, 9]),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_names_both_sides(problem):
    """One finding, with the two numbers that contradict each other."""
    found = finding(PROBLEMS[problem](), CODE)
    assert (found.message, found.node) == (problem, "conv")
    assert found.source in ("ONNX Conv-11", "ONNX ConvTranspose-11")


@pytest.mark.parametrize("problem", TRANSPOSED)
def test_transposed_convolutions_as_onnx_writes_them(problem):
    """The rule of the text is named, a runtime refuses it too, and convert as check does."""
    model = up((3, 4, 3, 3), **TRANSPOSED[problem])
    found = finding(model, CODE)
    assert (found.message, found.source) == (problem, "ONNX ConvTranspose-11")
    with pytest.raises(RuntimeRefusedError):
        Session(model).run({"x": images(1, *X[1:])})
    with pytest.raises(npuconv.UnsupportedModelError) as refused:
        npuconv.convert(model, format="float")
    assert found.message in {f.message for f in refused.value.report.findings}


@pytest.mark.parametrize("problem", POOLS)
def test_pools_have_lengths_too(problem):
    """Checks that need no weights hold for pools as well."""
    assert finding(POOLS[problem](), CODE).message == problem


def test_several_problems_are_several_findings():
    """Several problems are listed in one run."""
    assert len(findings(conv((4, 2, 3, 3), strides=[1], pads=[1]), CODE)) == 3


def test_lengths_are_judged_without_known_weights():
    """The rank of the weights is enough."""
    proto = Net(x=X, w=("O", 3, "a", "b")).op("Conv", "x", "w", strides=[1]).model()
    assert findings(proto, CODE)


def test_the_input_tells_the_axes_where_nothing_else_does():
    """The input gives the axes if the rank of weights is unknown; both unknown give none."""
    net = Net(x=X, w=(1,)).op("Mystery", "w", domain="org.example", to="late")
    assert finding(net.op("Conv", "x", "late", strides=[1]).model(), CODE).value == ""
    net = Net(w=(1,)).op("Mystery", "w", domain="org.example", to="late")
    assert not findings(net.op("Conv", "late", "late", strides=[1]).model(), CODE)


def test_the_kernel_tells_the_axes_of_a_pool_whose_input_is_unknown():
    """Only what can be compared is."""
    net = Net(x=X).op("Mystery", domain="org.example")
    net.op("MaxPool", kernel_shape=[2, 2], pads=[1, 1])
    assert finding(net.model(), CODE).message == "pads has 2 values, but 2 spatial axes need 4"


def test_no_other_rule_judges_what_cannot_be_measured():
    """A chip's limits say nothing of a kernel with two ranks."""
    target = chip(rank={"equals": 4}, stride_h={"max": 1}, kernel_h="?")
    for code in ("SHP001", "SHP007", "OPS005"):
        assert not findings(conv(kernel_shape=[3]), code, target)


@pytest.mark.parametrize("weight", [(), (4,)])
@pytest.mark.parametrize("x", [X, (1, None, 8, 8)])
def test_weights_without_channels(weight: tuple[int, ...], x: tuple[int | None, ...]):
    """Weights without channels are a finding, and no other rule looks at them."""
    net = Net(x=x)
    proto = net.op("Conv", "x", net.constant(np.ones(weight, np.float32)), name="conv").model()
    for entry in (npuconv.check, refused):
        assert [f.code for f in entry(proto).findings] == [CODE]


def refused(proto: onnx.ModelProto) -> npuconv.Report:
    """Return the report of a conversion that is refused."""
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(proto)
    return caught.value.report
