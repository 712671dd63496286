"""Where values are taken from: within bounds, within the tensor, the same in every channel."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.statistics import quota
from npuconv.calibration.layout import make_layout, pick


def test_shapes_around_the_channels():
    """What is before and behind them, for each sample."""
    shapes = [[6, 3, 5, 7], [2, 5, 7, 3], [4, 9], [], [2, 8]]
    layout = make_layout(shapes, [1, 3, None, None, -1], 1)
    assert layout.before.tolist() == [6, 70, 1, 1, 2]
    assert layout.channels.tolist() == [3, 3, 1, 1, 8]
    assert layout.behind.tolist() == [35, 1, 36, 1, 1]
    assert layout.counts.tolist() == [210, 70, 36, 1, 2]
    halves = make_layout(shapes[:3], [1, 3, None], 2)
    assert halves.before.tolist() == [3, 35, 1]
    assert halves.counts.tolist() == [105, 35, 18]


def test_what_cannot_be_cut_into_samples():
    """Channels first, or an odd number of rows."""
    assert make_layout([[3, 8]], [0], 2) is None
    assert make_layout([[5, 8]], [1], 2) is None


@given(
    st.tuples(st.integers(1, 200), st.integers(1, 5), st.integers(1, 200)),
    st.integers(0, 600),
    st.integers(1, 600),
    st.integers(1, 4),
)
def test_picks_are_as_many_as_wanted(extents, number, samples, together):
    """At most the sample's share, at least one, and what numpy's slice gives."""
    before, channels, behind = extents
    layout = make_layout([[together * before, channels, behind]], [1], together)
    picks = pick(layout, number, samples)
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
    """No value is passed over where all may stay."""
    picks = pick(make_layout([[1, 4, 7, 9]], [1], 1), 5, 16)
    assert picks.plan.tolist() == [1, 1, 4, 63, 0, 0, 1, 1]


def test_starts_differ():
    """From sample to sample, so that other places are seen."""
    layout = make_layout([[1, 1, 300, 300]], [1], 1)
    starts = {int(pick(layout, number, 64).starts[0, 0, 1]) for number in range(64)}
    assert len(starts) == 64
