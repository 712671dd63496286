"""Share of reported intervals that contain the SQNR on samples which the conversion did not see.

``ablation.py collect`` writes the samples.

Every model is converted with its calibration samples, or with ``--blind`` without samples. The
output is the reported SQNR with its interval, the SQNR on other data of the same kind, and the
SQNR on photographs of another collection.

The order of the samples decides which samples are held out. With ``--divisions 4`` every model is
converted four times with rotated samples, so that each of 32 samples is held out once. A single
division is right or wrong on many models at once, because they share photographs.

The powers of every sample are kept in a folder, and finished models are not converted again: other
settings of the interval take a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import npuconv
from harness.commands import ROOT
from harness.samples import SAMPLES, Entry, read_entries
from npuconv.config import Options
from npuconv.data import calibration_data as prepare
from npuconv.data.calibration_data import HELD_OUT_SHARE
from npuconv.data.samples import held_out_places
from npuconv.errors import NpuconvError
from npuconv.evaluate.comparison import Comparison
from npuconv.evaluate.interval import Powers, expected, pooled_db
from npuconv.legalize.legal import legalize
from npuconv.report.builder import notices

ROLES = {"score": "new samples", "foreign": "other photographs"}


@dataclass(frozen=True)
class Case:
    """One conversion.

    Attributes:
        name: name of the model.
        division: number of places by which its samples were rotated.
        doubt_db: width added to the interval, see ``npuconv.report.builder.notices``.
        powers: signal and noise of every sample by role; ``measured`` is the role of the report.
        unsaturated: signal and noise before outputs saturate.
    """

    name: str
    division: int
    doubt_db: float
    powers: dict[str, list[Powers]]
    unsaturated: dict[str, list[Powers]]

    @property
    def figure(self) -> float | None:
        """SQNR of the report, dB."""
        return pooled_db(self.powers["measured"])

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the report, dB, to its precision."""
        measured, inner = self.powers["measured"], self.unsaturated["measured"]
        ends_db = expected(measured, inner, self.doubt_db)
        assert ends_db is not None  # a report with an SQNR has an interval
        return round(ends_db[0], 1), round(ends_db[1], 1)

    @property
    def width(self) -> float:
        """Width of the interval, dB."""
        return self.interval[1] - self.interval[0]

    def found(self, role: str) -> float | None:
        """Return the SQNR on samples of a role, dB; None without such."""
        return pooled_db(self.powers.get(role, []))

    def beyond(self, role: str) -> float | None:
        """Return the distance from the interval, dB: negative below, 0 inside; None: no samples."""
        db = self.found(role)
        return None if db is None else db - min(max(db, self.interval[0]), self.interval[1])


def measure(entry: Entry, *, blind: bool, division: int) -> Case:
    """Convert one model, and measure it on held out samples and on samples of other roles.

    Raises:
        NpuconvError: it cannot be converted.
    """
    options = Options(input_shape=_shapes(entry.arguments))
    calibration = None if blind else rotated(entry.calib, division)
    shapes = options.input_shape
    converted = npuconv.convert(entry.model, calibration=calibration, input_shape=shapes)
    legal = legalize(entry.model, options)
    data = prepare.open_calibration(legal, calibration)
    sameness = notices.sameness(data.samples)
    sets = {"measured": data.measured_on()}
    for role, path in entry.scored.items():
        sets[role] = prepare.open_calibration(legal, path).samples
    comparison = Comparison(legal.proto, converted.model)
    measured = {role: comparison.measure(samples) for role, samples in sets.items()}
    return Case(
        entry.name,
        division,
        notices.doubt_db(data, sameness),
        {role: result.powers for role, result in measured.items()},
        {role: result.unsaturated for role, result in measured.items()},
    )


def rotated(path: Path, division: int) -> dict[str, np.ndarray]:
    """Return the samples of a file, with others in the places that are held out."""
    held_out = held_out_places(SAMPLES, SAMPLES // HELD_OUT_SHARE)
    places = np.array([*held_out, *(k for k in range(SAMPLES) if k not in held_out)])
    order = np.empty_like(places)
    order[places] = np.roll(places, -division * len(held_out))
    with np.load(path) as arrays:
        return {
            name: array.reshape(SAMPLES, -1, *array.shape[1:])[order].reshape(array.shape)
            for name, array in arrays.items()
        }


def _shapes(arguments: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes that a recipe gives with ``--input-shape NAME=1,3,...``."""
    pairs = itertools.pairwise(arguments)
    shapes = (text.rpartition("=") for flag, text in pairs if flag == "--input-shape")
    return {name: tuple(map(int, shape.split(","))) for name, _, shape in shapes}


def kept(path: Path, entry: Entry, *, blind: bool, division: int) -> Case | None:
    """Return a case from its file, or measure it and write the file; None if it fails."""
    if path.exists():
        values: dict[str, Any] = json.loads(path.read_text())
        for key in ("powers", "unsaturated"):
            values[key] = {role: [Powers(*p) for p in every] for role, every in values[key].items()}
        return Case(**values)
    try:
        case = measure(entry, blind=blind, division=division)
    except NpuconvError as error:
        print(f"{entry.name}: {error}", file=sys.stderr)
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(case)) + "\n")
    return case


def show(cases: list[Case]) -> None:
    """Print the table, a line for each model, and the totals."""
    heads = ("model", "report", "expected", *ROLES.values())
    print(f"| {' | '.join(heads)} |\n|---{'|--:' * (len(heads) - 1)}|")
    for name, group in itertools.groupby(cases, lambda case: case.name):
        print(_line(name, list(group)))
    print()
    for role in ROLES:
        _count(role, cases, [role])
    for division in sorted({case.division for case in cases}):
        _count(f"division {division}", [c for c in cases if c.division == division], ROLES)
    _count("all", cases, ROLES)
    missed = [far for case in cases for role in ROLES if (far := case.beyond(role))]
    if missed:
        below, median = sum(far < 0 for far in missed), statistics.median(map(abs, missed))
        print(f"{below} below, {len(missed) - below} above; half by less than {median:.1f} dB")
    print(f"\nmedian width {statistics.median(case.width for case in cases):.1f} dB")


def _count(title: str, cases: list[Case], roles: Iterable[str]) -> None:
    """Print how often intervals are right."""
    far = [(case.name, case.beyond(role)) for case in cases for role in roles]
    compared = [(name, distance) for name, distance in far if distance is not None]
    if compared:
        share = 100 * sum(distance == 0 for _, distance in compared) / len(compared)
        models = len({name for name, _ in compared})
        print(f"{title}: right in {share:.0f} % of {len(compared)} comparisons, {models} models")


def _line(name: str, cases: list[Case]) -> str:
    """Return a line of the table: medians, and how often the interval is wrong."""
    median = statistics.median
    low, high = (median(case.interval[end] for case in cases) for end in (0, 1))
    cells = [name, f"{median(case.figure or 0 for case in cases):.1f}", f"{low:.0f} to {high:.0f}"]
    for role in ROLES:
        figures = [db for case in cases if (db := case.found(role)) is not None]
        wrong = sum(bool(case.beyond(role)) for case in cases)
        mark = " (no)" if len(cases) == 1 else f" ({wrong} of {len(figures)} no)"
        mark = mark if wrong else ""
        cells.append(f"{median(figures):.1f}{mark}" if figures else "")
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    build = ROOT / "build" / "zoo"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, default=build / "sets")
    parser.add_argument("--powers", type=Path, default=build / "powers", help="keeps the powers")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--source", choices=["shared", "package"], help="of the models")
    parser.add_argument("--blind", action="store_true", help="without calibration data")
    parser.add_argument("--divisions", type=int, default=1, help="ways to hold samples out")
    options = parser.parse_args(arguments)
    cases = []
    for entry in read_entries(options.sets):
        if options.models and entry.name not in options.models:
            continue
        if options.source and entry.source != options.source:
            continue
        for division in range(options.divisions):
            path = options.powers / f"{entry.name}.{'blind' if options.blind else division}.json"
            case = kept(path, entry, blind=options.blind, division=division)
            if case is not None and case.figure is not None:
                cases.append(case)
                print(entry.name, division, case.figure, case.interval, file=sys.stderr, flush=True)
    show(cases)
