"""Tests of join-bias-channels."""

from __future__ import annotations

import numpy as np

from npuconv.config import Options
from npuconv.model import query
from support.asserts import Passes, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "join-bias-channels"
CONV = {"limits": {"bias": {"equals": False}}}
DEVICE = chip("", also={"operators": {"Conv": CONV, "Concat": {}}, "unlisted_operators": "error"})
# Behind fit-convolution, which notes the convolutions that it gives channels.
FIRES = [(lambda: Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model(), DEVICE)]
SILENT = [lambda: Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()]


def test_the_bias_is_that_of_the_layer():
    """The device runs the channels; the bias that is quantized is the same to the bit."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1] * 4).conv("", (2, 4, 1, 1))
    proto = net.model()
    model, ctx = read(proto), Passes(DEVICE, Options())
    before = [query.constant_input(conv, 2) for conv in model.nodes("Conv")]
    assert run_pass("fit-convolution", model, ctx) == 2
    assert run_pass(NAME, model, ctx) == 2
    assert run_pass(NAME, model, ctx) == 0
    same_numbers(proto, model)
    convs = model.nodes("Conv")
    assert [node.op for node in model.nodes()] == ["Conv", "Conv"]
    for conv, bias in zip(convs, before, strict=True):
        assert np.array_equal(query.constant_input(conv, 2), bias)
        assert conv.name in ctx.annotations.splits.fragments
    assert [ctx.annotations.splits.windows(conv)[0].weight for conv in convs] == [
        (4, 6, 3, 3),
        (2, 6, 1, 1),
    ]
