"""Tests of concat-of-unlike-ranges."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np

from npuconv.findings import Severity
from npuconv.model import edit
from npuconv.rules.checks.concat_of_unlike_ranges import range_of
from support.asserts import finding, findings, read
from support.builders import Net

CODE = "CAL004"
X = ("N", 2, 8, 8)


def heads(factor: float, *, axis: int = 2, between: str = "", size: int = 8, reader: bool = False):
    """Two convolutions of which one puts out this many times more, joined."""
    net = Net(x=("N", 2, size, size))
    for name, number in (("boxes", factor), ("scores", 1.0)):
        weight = net.constant(np.full((2, 2, 1, 1), number))
        net.op("Conv", "x", weight, to=name if not between else f"{name}_")
        if between:
            net.op(between, to=name)
    net.op("Concat", "boxes", "scores", axis=axis, name="join")
    if reader:  # to which both count alike
        weight = np.asarray([1.0, -1.0, factor, -factor / 2]).reshape(1, 4, 1, 1)
        net.op("Conv", net.last, net.constant(weight))
    return net.model()


FIRES = [lambda: heads(100.0), lambda: heads(100.0, between="Relu")]
SILENT = [
    lambda: heads(3.0),
    lambda: heads(100.0, between="Sigmoid"),
    lambda: heads(0.0),
]


def test_it_says_what_is_left_of_the_smaller():
    """Both names, how far apart they are, and the steps."""
    found = finding(FIRES[0](), CODE, method="minmax", without=["range-margin"])
    assert "'boxes' reaches" in found.message
    assert "'scores' only" in found.message
    assert "100 times less: its scale leaves 3 of 256 levels to it" in found.message
    assert (found.node, found.value, found.limit) == ("join", "x 100", "x 4")


def test_scales_per_channel_keep_them_apart():
    """Only a note then: nothing is lost."""
    (found,) = findings(heads(100.0, axis=1, size=64, reader=True), CODE, method="auto")
    assert found.severity == Severity.NOTE
    assert found.value == "x 100"
    assert re.search(r"times less: with \d+ of 256 levels it is kept apart", found.message)


def test_the_upper_bound_of_a_clip_counts():
    """Values that are cut off are not stored."""
    net = Net(x=X)
    for name, size in (("boxes", 100.0), ("scores", 1.0)):
        weight = net.constant(np.full((2, 2, 1, 1), size))
        low, high = net.constant(np.float32(0)), net.constant(np.float32(2))
        net.op("Conv", "x", weight).op("Clip", net.last, low, high).op(
            "MaxPool", kernel_shape=[2, 2], to=name
        )
    model = net.op("Concat", "boxes", "scores", axis=2).model()
    assert not findings(model, CODE)


def test_a_long_way_to_what_was_watched():
    """Longer than calls can be nested."""
    model = read(Net(x=X).op("Relu", to="y").model())
    tensor = model.graph.outputs[0]
    for number in range(3000):
        tensor = edit.insert(
            model, "MaxPool", [tensor], origin=model.nodes()[:1], name=f"p{number}"
        )
    stats = SimpleNamespace(lows=np.asarray([-3.0]), highs=np.asarray([2.0]))
    found = range_of(tensor, SimpleNamespace(statistics={"x": stats}))
    assert found == (0.0, 2.0)
