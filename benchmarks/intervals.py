"""Share of intervals of the report that hold the SQNR on samples that decided nothing.

    python benchmarks/collect_models.py --sets DIR          # once: models and samples
    python benchmarks/intervals.py --sets DIR [--models NAME...] [--blind] [-- OPTIONS...]
                                   [--divisions N]

Every model is converted with its calibration samples, or with ``--blind`` without any; printed
is the SQNR of the report with its interval, and what ``npuconv verify`` measures on other data
of the same kind and on photographs of another collection. Options behind ``--`` are those of
``npuconv convert``.

Which samples the tool holds out depends on their order. With ``--divisions 4`` every model is
converted four times, its samples rotated by one place each time: of 32 samples every one is held
out once. A single division is right or wrong on many models at once, as they share photographs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from recipes.zoo import SAMPLES, Entry, read_entries

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("score", "foreign")


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: of it.
        figure: SQNR of the report, dB.
        interval: of the report, dB.
        found: SQNR on other samples, dB, by role.
    """

    name: str
    figure: float
    interval: tuple[float, float]
    found: dict[str, float]

    @property
    def width(self) -> float:
        """Width of the interval, dB."""
        return self.interval[1] - self.interval[0]

    def holds(self, role: str) -> bool | None:
        """Return whether the interval is right; None without such samples."""
        if role not in self.found:
            return None
        return self.interval[0] <= self.found[role] <= self.interval[1]


def measure(
    entry: Entry, options: list[str], *, blind: bool, folder: Path, division: int = 0
) -> Row | None:
    """Convert one model and verify it on others' samples; None where that gives no figure."""
    model, report = folder / "int8.onnx", folder / "report.json"
    data = [] if blind else ["--calibration", str(rotated(entry.calib, division, folder))]
    line = ["convert", str(entry.model), "-o", str(model), "--report", str(report), "-q"]
    if not _run([*line, *entry.arguments, *data, *options]):
        return None
    accuracy = json.loads(report.read_text())["accuracy"]
    if not accuracy or accuracy["interval_db"] is None:
        return None
    found = {}
    for role, path in entry.scored.items():
        verified = folder / "verify.json"
        line = ["verify", str(entry.model), str(model), "--data", str(path), "-q"]
        shapes = _values(entry.arguments, "--input-shape")
        if _run([*line, "--report", str(verified), *shapes]):
            total = json.loads(verified.read_text())["total"]["sqnr_db"]
            found |= {} if total is None else {role: total}
    return Row(entry.name, accuracy["sqnr_db"], tuple(accuracy["interval_db"]), found)


def rotated(path: Path, places: int, folder: Path) -> Path:
    """Return a file of the same samples, the first ``places`` of them put last."""
    if not places:
        return path
    with np.load(path) as arrays:
        turned = {name: np.roll(a, -places * (len(a) // SAMPLES), 0) for name, a in arrays.items()}
    target = folder / path.name
    np.savez(target, **turned)
    return target


def _values(arguments: list[str], flag: str) -> list[str]:
    """Return a flag with its value, as often as it is given."""
    pairs = itertools.pairwise(arguments)
    return [text for first, second in pairs if first == flag for text in (first, second)]


def _run(arguments: list[str]) -> bool:
    line = [sys.executable, "-m", "npuconv", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"{arguments[1]}: {done.stderr.strip()[-200:]}", file=sys.stderr)
    return done.returncode == 0


def show(rows: list[Row]) -> None:
    """Print the table, a line for each model, and what it comes to."""
    heads = ("model", "report", "expected", "new samples", "other photographs")
    print(f"| {' | '.join(heads)} |\n|---{'|--:' * (len(heads) - 1)}|")
    for name, every in itertools.groupby(rows, lambda row: row.name):
        print(_line(name, list(every)))
    for role in ROLES:
        known = [row for row in rows if row.holds(role) is not None]
        if known:
            share = 100 * sum(bool(row.holds(role)) for row in known) / len(known)
            models = len({row.name for row in known})
            print(f"\n{role}: right in {share:.0f} % of {len(known)} conversions, {models} models")
    print(f"\nmedian width {statistics.median(row.width for row in rows):.1f} dB")


def _line(name: str, rows: list[Row]) -> str:
    """Return a line of the table: medians, and how often the interval is wrong."""
    median = statistics.median
    low, high = (median(row.interval[end] for row in rows) for end in (0, 1))
    cells = [name, f"{median(row.figure for row in rows):.1f}", f"{low:.0f} to {high:.0f}"]
    for role in ROLES:
        known = [row for row in rows if role in row.found]
        wrong = sum(not row.holds(role) for row in known)
        mark = "" if not wrong else " (no)" if len(rows) == 1 else f" ({wrong} of {len(known)} no)"
        cells.append(f"{median(row.found[role] for row in known):.1f}{mark}" if known else "")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path, default=ROOT / "build" / "zoo" / "sets")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--blind", action="store_true", help="without calibration data")
    parser.add_argument("--divisions", type=int, default=1, help="ways to hold samples out")
    parser.add_argument("options", nargs="*", help="of npuconv convert, behind --")
    given = parser.parse_args()
    rows = []
    for entry in read_entries(given.sets):
        if given.models and entry.name not in given.models:
            continue
        for division in range(given.divisions):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                row = measure(
                    entry, given.options, blind=given.blind, folder=place, division=division
                )
            if row is not None:
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
