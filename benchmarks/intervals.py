"""How often the interval of the report holds the SQNR on samples that decided nothing.

    python benchmarks/collect_models.py --sets DIR          # once: models and samples
    python benchmarks/intervals.py --sets DIR [--models NAME...] [--blind] [-- OPTIONS...]

Every model is converted with its calibration samples, or with ``--blind`` without any; printed
is the SQNR of the report with its interval, and what ``npuconv verify`` measures on other data
of the same kind and on photographs of another collection. Options behind ``--`` are those of
``npuconv convert``.
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

from recipes.zoo import Entry, read_entries

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
        """Of the interval, dB."""
        return self.interval[1] - self.interval[0]

    def holds(self, role: str) -> bool | None:
        """Return whether the interval is right; None without such samples."""
        if role not in self.found:
            return None
        return self.interval[0] <= self.found[role] <= self.interval[1]


def measure(entry: Entry, options: list[str], *, blind: bool, folder: Path) -> Row | None:
    """Convert one model and verify it on others' samples; None where that gives no figure."""
    model, report = folder / "int8.onnx", folder / "report.json"
    data = [] if blind else ["--calibration", str(entry.calib)]
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
    """Print the table and what it comes to."""
    heads = ("model", "report", "expected", "new samples", "other photographs")
    print(f"| {' | '.join(heads)} |\n|---{'|--:' * (len(heads) - 1)}|")
    for row in rows:
        low, high = row.interval
        cells = [row.name, f"{row.figure:.1f}", f"{low:.0f} to {high:.0f}"]
        for role in ROLES:
            mark = {True: "", False: " (no)", None: ""}[row.holds(role)]
            cells.append(f"{row.found[role]:.1f}{mark}" if role in row.found else "")
        print(f"| {' | '.join(cells)} |")
    for role in ROLES:
        known = [row.holds(role) for row in rows if row.holds(role) is not None]
        if known:
            share = 100 * sum(map(bool, known)) / len(known)
            print(f"\n{role}: the interval is right on {share:.0f} % of {len(known)} models")
    print(f"\nmedian width {statistics.median(row.width for row in rows):.1f} dB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path, default=ROOT / "build" / "zoo" / "sets")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--blind", action="store_true", help="without calibration data")
    parser.add_argument("options", nargs="*", help="of npuconv convert, behind --")
    given = parser.parse_args()
    rows = []
    for entry in read_entries(given.sets):
        if given.models and entry.name not in given.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(entry, given.options, blind=given.blind, folder=Path(folder))
        if row is not None:
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
