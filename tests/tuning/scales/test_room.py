"""How much larger ranges had better be."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from npuconv.tuning.scales.room import FACTORS, SAFETY, WORTH, factors, suspects


def nothing(_: float) -> dict[int, float]:
    return dict.fromkeys(range(9), 0.0)


def test_no_larger_than_what_it_costs():
    """Nothing is cut off at the first factor, and the steps of the rest are larger for nothing."""
    (room,) = factors({0: 0.3}, {0: 0.2}, nothing).values()
    assert room == (FACTORS[0], pytest.approx(0.3 - 0.2 * 0.21))


def test_steps_that_cost_more_than_is_lost():
    """A range stays where larger steps make more noise than they save, or hardly less."""
    assert factors({0: 0.1, 1: WORTH / 2}, {0: 0.6, 1: 0.0}, nothing) == {}


def test_room_that_is_for_nothing_is_taken():
    """Where rounding makes no noise, more of it costs nothing, and is safe."""
    assert factors({0: 0.1}, {0: SAFETY / 10}, nothing)[0].factor == 2


def test_what_is_still_cut_off_counts():
    """Of each part by itself."""
    left = {1.1: (0.4, 0.0), 1.2: (0.3, 0.0), 1.5: (0.0, 0.0), 2.0: (0.0, 0.0)}
    each = {by: dict(zip((3, 7), both, strict=True)) for by, both in left.items()}
    found = factors({3: 0.5, 7: 0.5}, {3: 0.1, 7: 0.1}, each.__getitem__)
    assert {part: room.factor for part, room in found.items()} == {3: 1.5, 7: 1.1}


def test_nobody_is_asked_where_nothing_is_lost():
    assert factors({}, {}, lambda _: pytest.fail("asked")) == {}


def test_suspects_lose_enough_by_themselves():
    """Samples are weighted."""
    lost = np.asarray([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    seen = SimpleNamespace(
        parts=[["a"], ["b"], ["c"]],
        of=lambda parts: np.stack([lost[list(part)].sum(axis=0) for part in parts]),
    )
    assert suspects(seen, np.asarray([WORTH, 0.1 * WORTH]), 0.0) == pytest.approx({0: WORTH})


def test_those_that_lose_most_are_enough():
    """A part that loses little of all that is lost is not looked for."""
    lost = np.asarray([[0.5], [0.02], [0.48]])
    seen = SimpleNamespace(
        parts=[["a"], ["b"], ["c"]],
        of=lambda parts: np.stack([lost[list(part)].sum(axis=0) for part in parts]),
    )
    assert suspects(seen, np.ones(1), 1.0) == pytest.approx({0: 0.5, 2: 0.48})
