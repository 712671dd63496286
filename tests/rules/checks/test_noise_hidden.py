"""Tests of noise-hidden."""

from __future__ import annotations

import numpy as np

from support.asserts import finding, findings
from support.builders import Net

CODE = "CAL006"


def boxes_and_scores(*, apart: bool = False, weight: float = 1.001):
    """Large numbers, and a small rest of them that int8 cannot say."""
    net = Net(x=("N", 1, 8, 8))
    net.op("Conv", "x", net.constant(np.full((1, 1, 1, 1), weight)), name="conv", to="boxes")
    net.op("Sub", "boxes", "x", to="scores")
    if apart:
        return net.output("boxes", "scores").model()
    return net.op("Concat", "boxes", "scores", axis=1, to="y").model()


def scores_alone():
    """CAL005 speaks of what has nothing beside it."""
    net = Net(x=("N", 1, 8, 8))
    net.op("Conv", "x", net.constant(np.full((1, 1, 1, 1), 1.001)), name="conv", to="boxes")
    return net.op("Sub", "boxes", "x", to="scores").model()


FIRES = [boxes_and_scores, lambda: boxes_and_scores(apart=True)]
SILENT = [lambda: boxes_and_scores(weight=3.0), scores_alone]


def test_a_part_of_an_output():
    """The message has the part, its output, and the SQNR of the whole."""
    found = finding(boxes_and_scores(), CODE)
    assert (found.severity, found.limit) == ("warning", "at least 15 dB")
    assert "'scores', a part of output 'y', has " in found.message
    assert "all outputs have " in found.message


def test_an_output_of_its_own():
    """Beside one that is larger."""
    assert finding(boxes_and_scores(apart=True), CODE).message.startswith("output 'scores' has ")


def test_what_is_poor_as_a_whole_is_said_once():
    """Every part of it would be poor, too."""
    assert finding(scores_alone(), "CAL005")
    assert not findings(scores_alone(), CODE)
