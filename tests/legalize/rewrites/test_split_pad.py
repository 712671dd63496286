"""Tests of split-pad."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.config import Options
from npuconv.legalize.registry import Phase
from npuconv.model import query
from npuconv.model.core import Model
from support.asserts import Passes, builtin, context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "split-pad"
BOTH = [0, 1, 1, 2, 0, 0, 0, 3]
CROP = [0, 0, -1, -2, 0, 0, 0, -1]
MIXED = [0, 0, -1, 2, 0, 0, 3, -1]


def image(*, x=(1, 3, 8, 8), **options: int) -> Net:
    return Net(**options, x=x)


def named_axes(pads: list[int], axes: list[int], **attrs: object) -> Net:
    """A Pad of opset 18, which names its axes."""
    net = image(opset=19)
    inputs = [net.constant(np.array(pads)), "", net.constant(np.array(axes))]
    return net.op("Pad", "x", *inputs, **attrs)


AROUND = [0, 0, 1, 2, 0, 0, 3, 0]
ETHOS = "ethos-u55"


def repeating(pads: list[int], mode: str, *, x: tuple = (1, 3, 8, 8), opset: int = 21) -> Net:
    """A convolution of what is padded with cells of the image."""
    net = Net(opset=opset, ir_version=10, x=x)
    return net.pad(pads, None, mode=mode).conv(weight=(2, 3, 3, 3))


def tflite() -> Passes:
    return Passes(builtin(ETHOS), Options(format="tflite"))


FIRES = [
    lambda: image().pad(CROP).conv().model(),
    lambda: image().pad(CROP).op("Relu").model(),
    lambda: image().pad(CROP).model(),
    lambda: image().pad(MIXED, 1.5).conv().model(),
    lambda: image().pad(CROP, None, mode="reflect").conv().model(),
    lambda: image().pad([0, 0, -1, 2, 0, 0, -2, 2], None, mode="reflect").conv().model(),
    lambda: image().pad([0, 0, -1, 2, 0, 0, -2, 2], None, mode="edge").conv().model(),
    lambda: named_axes([-1, -2, -1, 0], [-1, 1], mode="wrap").op("Relu").model(),
    lambda: named_axes([-1, 1], [2]).conv().model(),
    lambda: image(opset=11).pad(MIXED).conv().model(),
    lambda: image(x=("N", 3, 8, "W")).pad([0, -1, -1, 0, 0, 0, 0, 3]).op("Relu").model(),
    lambda: image(x=(6, 5)).pad([-1, 0, 0, -2]).op("Relu").model(),
    (lambda: repeating(AROUND, "edge").model(), ETHOS),
    (lambda: repeating(AROUND, "wrap", opset=19).model(), ETHOS),
    (lambda: repeating([0, 0, 0, 9, 0, 0, 0, 11], "edge").model(), ETHOS),
    (lambda: repeating([0, 0, 2, 0, 0, 0, 2, 0], "edge", x=("N", 3, 8, 8)).model(), ETHOS),
]
SILENT = [
    lambda: image().pad([0, 0, 1, 1, 0, 0, 1, 1]).conv().model(),
    lambda: image().pad([0, 1, 0, 0, 0, 0, 0, 0]).conv(weight=(2, 4, 3, 3)).model(),
    lambda: image().pad(BOTH).conv(weight=(2, 4, 3, 3)).model(),
    lambda: image(opset=10).op("Pad", pads=MIXED).conv().model(),
    lambda: image().pad(MIXED, None, mode="reflect").conv().model(),
    lambda: image().pad([0, 0, 9, 0, 0, 0, -8, 0]).conv().model(),
    lambda: repeating(AROUND, "edge").model(),
    (lambda: repeating(AROUND, "reflect").model(), ETHOS),
    (lambda: repeating([0, 0, 9, 0, 0, 0, 0, 0], "wrap", opset=19).model(), ETHOS),
    (lambda: repeating([0] * 8, "edge").model(), ETHOS),
]


@pytest.mark.parametrize(
    ("net", "after"),
    [
        (image().pad(CROP).conv(), "Slice of axes [2, 3]"),
        (image().pad(MIXED).conv(), "Slice of axes [2, 3] + Pad [0, 0, 0, 2, 0, 0, 3, 0]"),
    ],
)
def test_the_parts(net, after):
    """One Pad becomes a Slice, or a Slice and a Pad."""
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 1
    (record,) = ctx.rewrites
    assert record.after == after
    assert (record.reference, record.max_abs_difference) == ("onnxruntime", 0.0)
    assert {model.label(n) for n in model.nodes("Slice", "Pad")} == {"pad0"}


def test_the_slice():
    """The Slice cuts at both ends, and its extents are known."""
    model = read(FIRES[0]())
    run_pass(NAME, model)
    (node,) = model.nodes("Slice")
    bounds = [query.constant_input(node, i).tolist() for i in (1, 2, 3)]
    assert bounds == [[1, 2], [2**63 - 1, -1], [2, 3]]
    assert query.shape(node.outputs[0]) == (1, 3, 7, 5)


def test_an_output_keeps_its_name():
    """The Slice makes what the Pad made."""
    proto = FIRES[2]()
    model = read(proto)
    run_pass(NAME, model)
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]


def test_what_grows_around_the_image_is_folded():
    """Spatial growth is folded, which is the purpose of the split."""
    proto = FIRES[9]()
    model = read(proto)
    for name in (NAME, "fold-pad"):
        run_pass(name, model)
    assert [n.op for n in model.nodes()] == ["Slice", "Conv"]
    assert model.nodes()[-1].attrs["pads"] == [0, 2, 3, 0]
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[4], "it crops one end of an axis and fills the other with mode 'reflect'"),
        (SILENT[5], "it crops all 8 cells of axis 2"),
    ],
)
def test_near_misses(build, reason):
    """Near misses stay, and say why."""
    assert refusals(NAME, build()) == [("pad0", reason)]


def test_extents_nobody_knows_are_not_guessed():
    """A random extent might be less than what is cropped, which ends the runtime's process."""
    proto = image(x=("N", 3, "H", 8)).pad([0, 0, -9, 0, 0, 0, 0, 0]).op("Relu").model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (record,) = ctx.rewrites
    assert record.reference == "not measured"
    assert record.note == "the extents it crops are not known"


def test_all_passes_together():
    """A Pad of everything at once leaves a Slice, a Pad of channels and a convolution."""
    net = image().pad([0, 1, -1, 2, 0, 0, 3, -1]).conv(weight=(2, 4, 3, 3))
    proto = net.model()
    model, ctx = read(proto), context()
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        ctx.run_phase(model, phase)
    assert [n.op for n in model.nodes()] == ["Slice", "Pad", "Conv"]
    same_numbers(proto, model)


def rewritten(pads: list[int], mode: str, **options: object) -> Model:
    """Return the model after the pass has fired once, with the same numbers."""
    proto = repeating(pads, mode, **options).model()
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
    wide = repeating([0, 0, 9, 0, 0, 0, 0, 0], "wrap", opset=19)
    ((_, reason),) = refusals(NAME, wide, tflite())
    assert reason == "it wraps around more cells than an axis is known to have"


def test_tflite_lacks_it_on_any_target():
    """The built-in target lists no Slice, so that only the form asks for it."""
    proto = repeating(AROUND, "edge").model()
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
