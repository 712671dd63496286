"""Tests of rewrite-pad-as-concat."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.config import Options
from npuconv.emit.context import EmitContext
from npuconv.model.core import Model
from support.asserts import builtin, context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-pad-as-concat"
AROUND = [0, 0, 1, 2, 0, 0, 3, 0]
ETHOS = "ethos-u55"


def padded(pads: list[int], mode: str, *, x: tuple = (1, 3, 8, 8), opset: int = 21) -> Net:
    """A convolution of what is padded."""
    net = Net(opset=opset, ir_version=10, x=x)
    return net.pad(pads, None, mode=mode).conv(weight=(2, 3, 3, 3))


def tflite() -> EmitContext:
    return EmitContext(builtin(ETHOS), Options(format="tflite"))


def fires(pads: list[int], mode: str, **options: object):
    return lambda: padded(pads, mode, **options).model()


FIRES = [
    (fires(AROUND, "edge"), ETHOS),
    (fires(AROUND, "wrap", opset=19), ETHOS),
    (fires([0, 0, 0, 9, 0, 0, 0, 11], "edge"), ETHOS),
    (fires([0, 0, 2, 0, 0, 0, 2, 0], "edge", x=(1, 3, 8, "W"), opset=11), ETHOS),
]
SILENT = [
    fires(AROUND, "edge"),
    (fires(AROUND, "reflect"), ETHOS),
    (fires([0, 0, 9, 0, 0, 0, 0, 0], "wrap", opset=19), ETHOS),
    (fires([0, 0, 0, 0, 0, 0, 0, 0], "edge"), ETHOS),
    (lambda: Net(opset=10, x=(1, 3, 8, 8)).op("Pad", pads=AROUND, mode="edge").model(), ETHOS),
]


def rewritten(pads: list[int], mode: str, **options: object) -> Model:
    """Return the model after the pass has fired once, with the same numbers."""
    proto = padded(pads, mode, **options).model()
    model = read(proto)
    assert run_pass(NAME, model, tflite()) == 1
    same_numbers(proto, model)
    return model


@pytest.mark.parametrize(("mode", "slices"), [("edge", 3), ("wrap", 3)])
def test_cells_at_the_ends_are_sliced_and_joined(mode, slices):
    """One Slice for each end that is padded, one Concat for each axis."""
    model = rewritten(AROUND, mode)
    assert len(model.nodes("Slice")) == slices
    assert len(model.nodes("Concat")) == 2
    assert not model.nodes("Pad")


def test_a_cell_is_repeated():
    (concat,) = rewritten([0, 0, 4, 0, 0, 0, 0, 0], "edge").nodes("Concat")
    assert len(concat.inputs) == 5


def test_more_cells_than_there_are():
    """Once around is once, and an extent that is not known may be too small."""
    wide = padded([0, 0, 9, 0, 0, 0, 0, 0], "wrap", opset=19)
    ((_, reason),) = refusals(NAME, wide, tflite())
    assert reason == "it wraps around more cells than an axis is known to have"


def test_tflite_lacks_it_on_any_target():
    """The built-in target lists no Slice, so that only the form asks for it."""
    proto = fires(AROUND, "edge")()
    assert run_pass(NAME, read(proto), context()) == 0
    assert run_pass(NAME, read(proto), context(format="tflite")) == 1


def test_ethos_runs_all_of_it():
    """No crossing between two convolutions."""
    net = Net(opset=17, x=(1, 3, 8, 8)).conv(weight=(4, 3, 3, 3)).pad(AROUND, None, mode="edge")
    proto = net.conv(weight=(2, 4, 3, 3)).model()
    report = npuconv.check(proto, ETHOS)
    assert report.ok
    assert report.summary.placement["host"].nodes == 0
    samples = {"x": np.random.default_rng(0).normal(0, 1, (8, 3, 8, 8)).astype(np.float32)}
    assert npuconv.convert(proto, ETHOS, calibration=samples).tflite is not None
