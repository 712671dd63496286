"""Tests of fuse-add."""

from __future__ import annotations

import numpy as np

from support.affine_nets import fires, silent
from support.asserts import read, refusals, run_pass
from support.builders import Net

NAME = "fuse-add"
FIRES = fires("Add", "Sub")
SILENT = silent("Add", "Sub")


def test_a_bias_is_made():
    """The new bias is the constant itself."""
    model = read(FIRES[1]())
    run_pass(NAME, model)
    (conv,) = model.nodes()
    assert conv.inputs[2].values.tolist() == [1, 2, 3, 4]
    assert conv.inputs[2].values.dtype == np.float32


def test_an_addition_between_two_convolutions():
    """A residual connection is not a constant."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3)).conv("x", (4, 4, 3, 3))
    assert refusals(NAME, net.op("Add", "t0", "t1")) == []
