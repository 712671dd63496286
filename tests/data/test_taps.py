"""Taps: statistics inside the model, and the layout and selection of the values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.statistics import quota
from npuconv.data import taps
from npuconv.data.taps import make_layout, select
from support.builders import Net, digits


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_it_is_a_valid_model(opset):
    """The tapped model passes ONNX's checker, and has no other outputs."""
    model = Net(opset=opset, x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model()
    tapped = taps.insert_taps(model, ["x", "t1"])
    inferred = onnx.shape_inference.infer_shapes(tapped, check_type=True, strict_mode=True)
    kinds = {o.name: o.type.tensor_type.elem_type for o in inferred.graph.output}
    shapes = [taps.shape_output(k) for k in range(2)]
    assert list(kinds) == [*taps.KINDS, *shapes]
    assert {kinds[name] for name in taps.KINDS} == {onnx.TensorProto.FLOAT}


def test_taps_stand_behind_what_they_watch():
    """Taps are right behind their tensors, which stay in the processor's cache."""
    tapped = taps.insert_taps(digits(), ["x", "t0"])
    made = {name: place for place, node in enumerate(tapped.graph.node) for name in node.output}
    first = min(place for name, place in made.items() if name == "t0")
    reads = [
        place
        for place, node in enumerate(tapped.graph.node)
        if "t0" in node.input and node.output[0].startswith(taps.PREFIX)
    ]
    assert reads == [first + 1, first + 2]
    assert made["npuconv/calibration/shape/0"] < made["t0"]


def test_shapes_around_the_channels():
    """The layout has the extents before and behind the channels, for each sample."""
    shapes = [[6, 3, 5, 7], [2, 5, 7, 3], [4, 9], [], [2, 8]]
    layout = make_layout(shapes, [1, 3, None, None, -1], 1)
    assert layout.outer.tolist() == [6, 70, 1, 1, 2]
    assert layout.channels.tolist() == [3, 3, 1, 1, 8]
    assert layout.inner.tolist() == [35, 1, 36, 1, 1]
    assert layout.counts.tolist() == [210, 70, 36, 1, 2]
    halves = make_layout(shapes[:3], [1, 3, None], 2)
    assert halves.outer.tolist() == [3, 35, 1]
    assert halves.counts.tolist() == [105, 35, 18]


def test_what_cannot_be_cut_into_samples():
    """Channels in front, or an odd number of rows, cannot be cut into samples."""
    assert make_layout([[3, 8]], [0], 2) is None
    assert make_layout([[5, 8]], [1], 2) is None


@given(
    st.tuples(st.integers(1, 200), st.integers(1, 5), st.integers(1, 200)),
    st.integers(0, 600),
    st.integers(1, 600),
    st.integers(1, 4),
)
def test_picks_are_as_many_as_wanted(extents, number, samples, together):
    """A selection has at least one value, at most the sample's share, and equals a slice."""
    before, channels, behind = extents
    layout = make_layout([[together * before, channels, behind]], [1], together)
    picks = select(layout, number, samples)
    (step0, step1), taken = picks.steps[0].tolist(), []
    flat = np.arange(together * before * channels * behind, dtype=np.float32)
    block = flat.reshape(together, before, channels, behind)
    wanted = []
    for sample, (start0, start1) in zip(block, picks.starts[:, 0].tolist(), strict=True):
        some = sample[start0::step0, :, start1::step1]
        wanted += some.ravel().tolist()
        taken.append(some.size // channels)
    assert all(1 <= number <= quota(channels, samples) for number in taken)
    assert step0 % 2 == step1 % 2 == 1
    (kept,) = picks.cut(flat if together > 1 else np.asarray(wanted, np.float32))
    assert kept.values.shape == (channels, sum(taken))
    assert sorted(kept.values.ravel().tolist()) == sorted(wanted)
    assert kept.numbers.tolist() == list(range(number, number + together))
    assert kept.widths.tolist() == taken


def test_everything_of_a_small_tensor():
    """All values of a small tensor are selected."""
    picks = select(make_layout([[1, 4, 7, 9]], [1], 1), 5, 16)
    assert picks.plan.tolist() == [1, 1, 4, 63, 0, 0, 1, 1]


def test_starts_differ():
    """The first value differs from sample to sample."""
    layout = make_layout([[1, 1, 300, 300]], [1], 1)
    starts = {int(select(layout, number, 64).starts[0, 0, 1]) for number in range(64)}
    assert len(starts) == 64
