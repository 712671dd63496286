"""Divisions of samples, kept powers, and the table of intervals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from harness.intervals import Case, kept, measure, rotated, show
from harness.samples import SAMPLES, Entry
from small_models import parse

import npuconv
from npuconv.data.samples import held_out_places
from npuconv.evaluate.interval import Powers, expected


def test_every_sample_is_held_out_once(tmp_path):
    """Four rotations of 32 samples, eight held out each time; inputs may hold several rows."""
    path = tmp_path / "calib.npz"
    numbers = np.arange(SAMPLES)
    np.savez(path, x=numbers, state=np.repeat(numbers, 2))
    held: list[int] = []
    for division in range(4):
        found = rotated(path, division)
        assert np.array_equal(found["state"], np.repeat(found["x"], 2))
        held += found["x"][list(held_out_places(SAMPLES, 8))].tolist()
    assert sorted(held) == numbers.tolist()


def at(db: float) -> list[Powers]:
    """Return eight samples of this SQNR."""
    return [Powers(1.0, 10 ** (-db / 10))] * 8


def case(name: str, figure: float, **found: float) -> Case:
    """Return a case by its figures."""
    powers = {role: at(db) for role, db in found.items()}
    return Case(name, 0, 0.0, {"measured": at(figure), **powers}, {"measured": []})


def test_a_line_a_model(capsys):
    """Medians over divisions, how many were wrong, and the share over all."""
    low, high = (round(end, 1) for end in expected(at(30.0)))
    show([
        case("one", 30.0, score=28.0),
        case("one", 32.0, score=18.0),
        case("two", 20.0, score=20.0, foreign=6.0),
    ])  # fmt: skip
    text = capsys.readouterr().out
    assert f"| one | 31.0 | {low + 1:.0f} to {high + 1:.0f} | 23.0 (1 of 2 no) |  |" in text
    assert f"| two | 20.0 | {low - 10:.0f} to {high - 10:.0f} | 20.0 | 6.0 (no) |" in text
    assert "score: right in 67 % of 3 comparisons, 2 models" in text
    assert "all: right in 50 % of 4 comparisons, 2 models" in text
    assert "2 below, 0 above" in text
    assert f"median width {high - low:.1f} dB" in text


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    """Return a small model with samples."""
    numbers = np.random.default_rng(0)
    weights = ", ".join(map(str, numbers.standard_normal(54).round(2)))
    text = f"<float[2, 3, 3, 3] w = {{{weights}}}> {{ y = Conv(x, w) }}"
    model = tmp_path / "model.onnx"
    onnx.save(parse(f"agraph (float[N, 3, 8, 8] x) => (float[N, 2, 6, 6] y) {text}"), model)
    for role in ("calib", "score"):
        shape = (SAMPLES, 3, 8, 8)
        np.savez(tmp_path / f"{role}.npz", x=numbers.standard_normal(shape).astype(np.float32))
    return Entry("m", model, [], False, "shared", None, True, tmp_path)


def test_interval_is_that_of_the_report(entry):
    """Figure and interval from the powers are those that convert reports."""
    found = measure(entry, blind=False, division=1)
    made = npuconv.convert(entry.model, calibration=rotated(entry.calib, 1))
    accuracy = made.report.accuracy
    assert found.interval == accuracy.interval_db
    assert found.figure == pytest.approx(accuracy.sqnr_db, abs=0.01)
    assert len(found.powers["score"]) == SAMPLES


def test_powers_are_kept(entry, tmp_path):
    """The second time the file is read, and nothing converted."""
    path = tmp_path / "powers" / "m.0.json"
    first = kept(path, entry, blind=False, division=0)
    values = json.loads(path.read_text()) | {"doubt_db": 3.0}
    path.write_text(json.dumps(values))
    second = kept(path, entry, blind=False, division=0)
    assert second.doubt_db == 3.0
    assert second.powers == first.powers
