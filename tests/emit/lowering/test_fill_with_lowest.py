"""Tests of fill-with-lowest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuconv.model import query, save
from support.asserts import context, read, run, run_pass
from support.builders import Net
from support.plans import prepared, quantize

NAME = "fill-with-lowest"
AROUND = [0, 0, 1, 1, 0, 0, 1, 1]


def padded(*ops: str, fill: float | None = 0.0) -> Net:
    """A Pad between two convolutions, behind these operators."""
    net = Net(x=(1, 3, 8, 8)).conv()
    for op in ops:
        net = net.op(op)
    return net.pad(AROUND, fill).conv(weight=(4, 4, 3, 3))


FIRES = [
    lambda: padded("Relu").model(),
    lambda: padded("Relu", fill=None).model(),
    lambda: padded("Relu").op("Relu").op("Sigmoid").model(),
]
SILENT = [
    lambda: padded().model(),
    lambda: padded("Relu", fill=0.25).model(),
    lambda: padded("Sigmoid").model(),
    lambda: padded("Relu").conv("t1", (4, 4, 3, 3), pads=[1] * 4, to="u").output("u", "t3").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad(AROUND).model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_it_fires_once(build):
    """The fill is the device's number for 0, in nominal steps."""
    model, ctx = prepared(build())
    assert run_pass(NAME, model, ctx) == 1
    (pad,) = model.nodes("Pad")
    nominal = ctx.emission.encodings[pad.outputs[0].name].nominal
    assert query.scalar_input(pad, 2) == -128 * nominal
    assert run_pass(NAME, model, ctx) == 0


@pytest.mark.parametrize("build", SILENT)
def test_it_is_silent(build):
    """Values below 0, a fill of its own, on the host, stored zeros beside it, no device."""
    model, ctx = prepared(build())
    assert run_pass(NAME, model, ctx) == 0


@pytest.mark.parametrize("build", FIRES)
def test_the_integers_say_the_same(build):
    """Borders are exact: what is next to them is as far off as the rest."""
    model, ctx = read(build()), context()
    quantize(model, ctx)
    (old,), (new,) = run(build()), run(save.to_proto(model))
    assert np.abs(old - new).max() < 0.03 * np.abs(old).max()


def test_without_encodings_nothing_happens():
    """Weights only needs none."""
    model, ctx = read(FIRES[0]()), context()
    assert run_pass(NAME, model, ctx) == 0


def test_it_fills_with_another_integer_that_is_0_in_every_channel():
    """A tensor of an operator has one zero point for all channels."""
    model, ctx = prepared(padded("Relu").model())
    (pad,) = model.nodes("Pad")
    own = ctx.emission.encodings[pad.outputs[0].name]
    ctx.emission.encodings[pad.outputs[0].name] = replace(own, zeros=np.full_like(own.zeros, -7))
    assert run_pass(NAME, model, ctx) == 1
    assert query.scalar_input(pad, 2) == -7 * own.nominal


@pytest.mark.parametrize("fill", [None, 0.0])
def test_a_stored_zero_point_has_a_written_fill(fill):
    """QNN fills with 127 where a Pad has no fill; the fill of 0 becomes the zero point."""
    model, ctx = prepared(padded("Relu", fill=fill).model())
    (pad,) = model.nodes("Pad")
    encoding = ctx.emission.encodings[pad.outputs[0].name]
    stored = replace(encoding, nominal_zero=int(encoding.zeros[0]))
    ctx.emission.encodings[pad.outputs[0].name] = stored
    assert run_pass(NAME, model, ctx) == (fill is None)
    assert query.scalar_input(pad, 2) == 0
    assert run_pass(NAME, model, ctx) == 0
