"""Loud channels, found without measuring each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.tuning.noise.loudest import loudest


class Added:
    """Noise that adds up, as that of channels mostly does."""

    def __init__(self, powers: Sequence[Sequence[float]]) -> None:
        self.powers, self.runs = np.asarray(powers, np.float64), 0

    def of(self, channels: Sequence[Sequence[int]]) -> np.ndarray:
        """Of each of these parts, in every sample."""
        self.runs += len(channels)
        return np.stack([self.powers[list(part)].sum(axis=0) for part in channels])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200), st.floats(0.5, 20))
def test_all_that_are_loud_and_no_others(powers, least):
    """However many there are, in their order."""
    noise = Added([[power] for power in powers])
    found = loudest(noise, np.ones(1), len(powers), least)
    assert found == {k: p for k, p in enumerate(powers) if p >= least}
    assert list(found) == sorted(found)


def test_few_runs_where_few_are_loud():
    """Two of 480: eight parts of 60, eight of two of these, and eight of two of those."""
    powers = np.full((480, 2), 1e-4)
    powers[[17, 400]] = 1.0
    noise = Added(powers)
    assert list(loudest(noise, np.ones(2), 480, 0.5)) == [17, 400]
    assert noise.runs <= 8 + 16 + 16


def test_the_loudest_come_first():
    """Nine of 480: with few looks only the loudest is found."""
    powers = np.full((480, 1), 1e-4)
    powers[::60] = 1.0
    powers[17] = 5.0
    noise = Added(powers)
    assert list(loudest(noise, np.ones(1), 480, 0.5, looks=20)) == [17]
    assert noise.runs == 8 + 8 + 8


def test_samples_are_weighed():
    """As the caller has it."""
    noise = Added([[1.0, 0.0], [0.0, 1.0]])
    assert loudest(noise, np.asarray([2.0, 0.5]), 2, 0.5) == pytest.approx({0: 2.0, 1: 0.5})
    assert list(loudest(noise, np.asarray([2.0, 0.5]), 2, 1.0)) == [0]
