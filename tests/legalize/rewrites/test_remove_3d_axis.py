"""Tests of remove-3d-axis."""

from __future__ import annotations

import pytest

from npuconv.config import Options
from npuconv.legalize.registry import Phase
from npuconv.model.conv import window
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "remove-3d-axis"


def volume(x=(2, 4, 3, 6, 5), weight=(6, 4, 3, 3, 3), **attrs) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


def fed() -> Net:
    return Net(x=(1, 4, 3, 6, 5), w=(6, 4, 3, 3, 3)).op("Conv", "x", "w")


FIRES = [
    # one cell along the axis: its inputs are channels
    lambda: volume().model(),
    lambda: volume(x=("N", 4, 3, "H", "W"), weight=(6, 4, 3, 2, 2)).model(),
    lambda: volume(x=(1, 4, 6, 3, 5)).model(),
    # channels that only the weights tell
    lambda: volume(x=("N", "C", 3, 6, 5), weight=(6, 2, 3, 3, 3)).model(),
    lambda: volume(x=(1, "C", 5, 6, 5), weight=(6, 2, 1, 3, 3)).model(),
    lambda: volume(x=(1, 4, 5, 6, 1), pads=[0, 0, 1, 0, 0, 1]).model(),
    lambda: volume(x=(1, 4, 5, 4, 4), dilations=[2, 1, 1]).model(),
    lambda: volume(x=(1, 4, 6, 4, 4), strides=[4, 1, 1], bias=False).model(),
    lambda: volume(weight=(4, 2, 3, 3, 3), group=2).model(),
    lambda: volume(x=(1, 4, 1, 6, 6), weight=(4, 1, 1, 3, 3), group=4).model(),
    lambda: volume(x=(1, 4, 1, 6, 6), weight=(6, 4, 1, 3, 3), pads=[0, 1, 1, 0, 1, 1]).model(),
    # one tap along two axes: they are one
    lambda: volume(x=("N", 4, 5, 6, 7), weight=(6, 4, 1, 1, 1)).model(),
    lambda: volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 3, 1, 1)).model(),
    lambda: volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 1, 3), pads=[0, 0, 1, 0, 0, 1]).model(),
    # one tap along one axis: a batch
    lambda: volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 3, 3)).model(),
    lambda: volume(x=("N", 4, 5, 6, 7), weight=(6, 4, 3, 1, 3), strides=[1, 2, 1]).model(),
    # pads along an axis that goes stand before it
    lambda: volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 3, 3), pads=[1, 1, 0, 0, 1, 2]).model(),
    lambda: volume(
        x=("N", 4, 5, 6, 7), weight=(6, 4, 1, 1, 1), pads=[1, 2, 0, 0, 1, 3], strides=[1, 1, 1]
    ).model(),
    lambda: volume(
        x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 3, 3), pads=[2, 0, 0, 1, 0, 0], strides=[3, 1, 1]
    ).model(),
    # transposed
    lambda: volume(x=(2, 4, 5, 6, 7), weight=(4, 3, 1, 3, 3), op="ConvTranspose").model(),
    lambda: volume(
        x=(2, 4, 3, 4, 4), weight=(4, 3, 4, 3, 3), op="ConvTranspose", pads=[3, 0, 0, 2, 0, 0]
    ).model(),
    lambda: volume(
        x=(2, 4, 3, 4, 4), weight=(4, 2, 5, 3, 3), op="ConvTranspose", group=2, strides=[2, 1, 2],
        pads=[4, 0, 0, 4, 0, 0],
    ).model(),
]  # fmt: skip
SILENT = [
    lambda: volume(x=(1, 4, 5, 6, 7)).model(),
    lambda: volume(x=(1, 4, "D", 6, 7), weight=(6, 4, 1, 3, 3)).model(),
    lambda: volume(x=(1, 4, 5, 6, 7), weight=(4, 3, 1, 3, 3), op="ConvTranspose",
                   pads=[1, 0, 0, 1, 0, 0]).model(),
    lambda: volume(x=(1, 4, 5, 6, 7), weight=(4, 3, 1, 3, 3), op="ConvTranspose",
                   strides=[2, 1, 1]).model(),
    lambda: Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 3, 3)).model(),
    lambda: fed().model(),
    lambda: Net(opset=11, x=(1, 4, 3, 6, 6)).conv("x", (4, 4, 3, 3, 3)).model(),
]  # fmt: skip


def four_axes():
    """One goes after the other."""
    return Net(x=(1, 2, 3, 1, 4, 4)).conv("x", (3, 2, 3, 1, 2, 2)).model()


@pytest.mark.parametrize("example", [*FIRES, four_axes])
def test_nothing_is_left_of_the_third_axis(example):
    """All passes together remove the axis and keep the numbers."""
    proto = example()
    model, ctx = read(proto), context()
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        ctx.run_phase(model, phase)
    assert {window(n).axes for n in model.nodes("Conv", "ConvTranspose")} == {2}
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("proto", "ops"),
    [
        (volume().model(), ["Reshape", "Conv", "Unsqueeze"]),
        (
            volume(x=(1, 4, 1, 6, 6), weight=(6, 4, 1, 3, 3)).model(),
            ["Squeeze", "Conv", "Unsqueeze"],
        ),
        (
            volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 1, 1)).model(),
            ["Reshape", "Conv", "Reshape"],
        ),
        (
            volume(x=(2, 4, 5, 6, 7), weight=(6, 4, 1, 3, 3)).model(),
            ["Transpose", "Reshape", "Conv", "Reshape", "Transpose"],
        ),
    ],
)
def test_the_cheapest_way_is_taken(proto, ops):
    """Channels before merging, merging before a batch."""
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ops


def test_the_refusal_names_every_axis():
    """The refusal gives the obstacle of each axis, in numbers."""
    ctx = context()
    assert run_pass(NAME, read(volume(x=(1, 4, 5, 6, 7), pads=[1] * 6).model()), ctx) == 0
    (refusal,) = ctx.refusals
    assert refusal.reason == (
        "no axis can go: axis 2 (kernel 3, stride 1, pads 1 and 1, extent 5); "
        "axis 3 (kernel 3, stride 1, pads 1 and 1, extent 6); "
        "axis 4 (kernel 3, stride 1, pads 1 and 1, extent 7); "
        "--prefer slices would make the 3 taps of axis 2 channels and copy 2,520 values"
    )


@pytest.mark.parametrize("net", [
    volume(x=("N", 4, 5, 6, 7), pads=[1] * 6, dilations=[1, 2, 1]),
    volume(x=(2, 4, 6, 6, 7), weight=(6, 4, 4, 2, 3), strides=[1, 2, 1], pads=[0, 1, 0, 0, 2, 0]),
    volume(x=(1, 4, 6, 6, 7), weight=(4, 2, 3, 3, 2), group=2, bias=False),
])  # fmt: skip
def test_slices_if_preferred(net):
    """The cells of the fewest taps become channels, group by group, and the axis a batch."""
    proto = net.model()
    model, ctx = read(proto), context(prefer=("slices",))
    assert run_pass(NAME, model, ctx) == 1
    assert {window(n).axes for n in model.nodes("Conv")} == {2}
    assert ctx.rewrites[0].note.endswith(" values moved, as many MACs")
    same_numbers(proto, model)


def test_large_volumes_are_not_run():
    """A scan of 256 cells each way has too many values to compare; the note says so."""
    for size, measured in ((8, True), (256, False)):
        model, ctx = read(volume(x=(1, 4, size, size, size)).model()), context(prefer=("slices",))
        assert run_pass(NAME, model, ctx) == 1
        (record,) = ctx.rewrites
        assert record.note.endswith("too large a volume to be measured") != measured
        assert (record.reference == "nothing to compare") != measured


def test_slices_are_not_needed_where_an_axis_goes():
    """The cheaper ways come first; extents that are not known leave none."""
    for net, ways in ((volume(), 1), (volume(x=(1, 4, "D", 6, 7)), 0)):
        ctx = context(prefer=("slices",))
        assert run_pass(NAME, read(net.model()), ctx) == ways
        assert not any("taps" in record.after for record in ctx.rewrites)


def test_a_chain_of_flat_volumes_has_one_squeeze():
    """The next layer removes the axis that the last one restored."""
    net = volume(x=(1, 4, 1, 6, 6), weight=(6, 4, 1, 3, 3)).op("Relu")
    proto = net.conv("", (2, 6, 1, 3, 3)).model()
    model, ctx = read(proto), context()
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        ctx.run_phase(model, phase)
    assert [n.op for n in model.nodes()] == ["Squeeze", "Conv", "Relu", "Conv", "Unsqueeze"]
    same_numbers(proto, model)


def test_a_target_that_takes_rank_5_is_left_alone():
    """A target that takes rank 5, or lists no Conv, is left alone."""
    for target in (chip(rank={"max": 5}), chip(rank="?"), chip("")):
        assert run_pass(NAME, read(volume().model()), Passes(target, Options())) == 0
