"""Outputs before they are saturated."""

from __future__ import annotations

import numpy as np
import onnx

from builders import Net
from npuconv import executor
from npuconv.tuning.noise.ends import before_saturation


def names(model: onnx.ModelProto) -> list[str]:
    """The outputs that are taken."""
    return [output.name for output in before_saturation(model).graph.output]


def test_probabilities_are_taken_before_they_are_made():
    """Also behind what only moves them."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="logits")
    net.op("Sigmoid", "logits", to="p").op("Transpose", "p", to="y", perm=[0, 2, 3, 1]).output("y")
    assert names(net.model()) == ["logits"]


def test_all_that_is_joined():
    """Boxes beside probabilities: each as it is made."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="boxes").conv("x", (4, 3, 3, 3), to="raw")
    net.op("Softmax", "raw", to="scores", axis=1)
    net.op("Concat", "boxes", "scores", to="y", axis=1).output("y")
    assert names(net.model()) == ["boxes", "raw"]


def test_other_outputs_stay():
    """The very same, with type and shape."""
    model = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="y").output("y").model()
    assert before_saturation(model).graph.output[0] == model.graph.output[0]
    passed = Net(x=(1, 3, 8, 8)).op("Sigmoid", "x", to="y").output("y").model()
    assert before_saturation(passed) is passed  # nothing but the input would be left


def test_it_runs():
    """And gives what the probabilities are made from."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="logits")
    model = net.op("Sigmoid", "logits", to="y").output("y").model()
    feed = {"x": np.ones((1, 3, 8, 8), np.float32)}
    exact = executor.Session(model).run(feed)["y"]
    logits = executor.Session(before_saturation(model)).run(feed)["logits"]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), exact, rtol=1e-5)
