"""Divisions of samples, and the table of intervals."""

from __future__ import annotations

import numpy as np
from intervals import Row, rotated, show
from recipes.zoo import SAMPLES

from npuconv.samples.feeds import spread


def test_every_sample_is_held_out_once(tmp_path):
    """Four rotations of 32 samples, eight held out each time; inputs may hold several rows."""
    path = tmp_path / "calib.npz"
    numbers = np.arange(SAMPLES)
    np.savez(path, x=numbers, state=np.repeat(numbers, 2))
    held: list[int] = []
    for division in range(4):
        folder = tmp_path / str(division)
        folder.mkdir()
        found = np.load(rotated(path, division, folder))
        assert np.array_equal(found["state"], np.repeat(found["x"], 2))
        held += found["x"][list(spread(SAMPLES, 8))].tolist()
    assert sorted(held) == numbers.tolist()


def test_a_line_a_model(capsys):
    """Medians over divisions, how many were wrong, and the share over all."""
    right = Row("one", 30.0, (25.0, 32.0), {"score": 28.0})
    wrong = Row("one", 32.0, (27.0, 34.0), {"score": 26.0})
    show([right, wrong, Row("two", 20.0, (15.0, 22.0), {"score": 20.0, "foreign": 16.0})])
    text = capsys.readouterr().out
    assert "| one | 31.0 | 26 to 33 | 27.0 (1 of 2 no) |  |" in text
    assert "| two | 20.0 | 15 to 22 | 20.0 | 16.0 |" in text
    assert "score: right in 67 % of 3 conversions, 2 models" in text
    assert "median width 7.0 dB" in text
