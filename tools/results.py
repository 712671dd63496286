"""Table of results of check and convert: a row for every model, target and form.

    python tools/results.py --table before.tsv
    python tools/results.py --table after.tsv --compare before.tsv
    python tools/results.py folder/model.onnx --targets npu-int8 --forms qdq

Each row has the exit codes of check and convert, and hashes of the written model and of the
report without its sentences. A change that keeps behaviour keeps every row. Samples beside a
model (``calibration.npz``, ``cal.npz``, ``NAME.cal.npz``) are used. The exit code is 1 if check
and convert disagree on a row, if a command ends with a bug, or if a row differs from the table
to compare with.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
TARGETS = ("npu-int8", "rknn", "ethos-u55", "horizon-x3", "mediatek-mdla2")
FORMS = ("qoperator", "qdq", "tflite", "float")
SAMPLES = 4
BUG = 70


@dataclass(frozen=True)
class Row:
    """Results of check and convert on one model.

    Attributes:
        model, target, form: model, target and output format of the conversion.
        check, convert: exit codes.
        bytes: hash of the written model.
        report: hash of its report without sentences.
        sqnr: SQNR of all outputs, in dB.
        crossings: number of crossings between device and host.
        remark: headline of the report, or the error; also of check, if it ended differently.
    """

    model: str
    target: str
    form: str
    check: str
    convert: str
    bytes: str = ""
    report: str = ""
    sqnr: str = ""
    crossings: str = ""
    remark: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the row."""
        return self.model, self.target, self.form

    def same(self, other: Row) -> bool:
        """Return whether everything but the remark is equal."""
        return astuple(self)[:-1] == astuple(other)[:-1]


def main() -> int:
    """Write the table, and compare it."""
    options = _arguments()
    before = _read(options.compare) if options.compare else {}
    cases = [(p, t, f) for p in options.models for t in options.targets for f in options.forms]
    wrong = 0
    spawning = multiprocessing.get_context("spawn")  # a fork would share a runtime's threads
    with (
        ProcessPoolExecutor(options.jobs, mp_context=spawning) as pool,
        Path(options.table).open("w", encoding="utf-8", newline="") as stream,
    ):
        table = csv.writer(stream, delimiter="\t", lineterminator="\n")
        table.writerow([field.name for field in fields(Row)])
        for row in pool.map(_row, cases):
            table.writerow(astuple(row))
            stream.flush()
            faults = _faults(row, before)
            wrong += bool(faults)
            if faults:
                print(f"{' '.join(row.key)}: {'; '.join(faults)}", flush=True)
    print(f"{len(cases)} rows, {wrong} with a fault")
    return 1 if wrong else 0


def _faults(row: Row, before: dict[tuple[str, str, str], Row]) -> list[str]:
    faults = []
    if str(BUG) in (row.check, row.convert):
        faults.append(f"bug: {row.remark}")
    elif row.check != row.convert:
        faults.append(f"check {row.check}, convert {row.convert}: {row.remark}")
    if (old := before.get(row.key)) is not None and not row.same(old):
        pairs = zip(fields(Row), astuple(old), astuple(row), strict=True)
        faults.append(", ".join(f"{f.name} {a} -> {b}" for f, a, b in pairs if a != b))
    return faults


def _row(case: tuple[Path, str, str]) -> Row:
    """Check and convert one model."""
    import npuconv
    from npuconv.errors import NpuconvError, UnsupportedModelError

    warnings.simplefilter("ignore")
    path, target, form = case
    name = f"{path.parent.name}/{path.name}"
    options: dict[str, Any] = {"target": target, "format": form, "max_samples": SAMPLES}
    try:
        options["input_shape"] = _shapes(path)
        checked = npuconv.check(path, **options).summary
        check, remark = str(checked.exit_code), checked.headline
    except Exception as error:
        check = str(error.exit_code if isinstance(error, NpuconvError) else BUG)
        remark = f"{type(error).__name__}: {error}"
    try:
        result = npuconv.convert(path, calibration=_samples(path), **options)
    except UnsupportedModelError as error:
        headline = error.report.summary.headline
        return Row(name, target, form, check, "1", report=_hash(error.report), remark=headline)
    except Exception as error:
        code = str(error.exit_code if isinstance(error, NpuconvError) else BUG)
        text = f"{type(error).__name__}: {error} (check: {remark})"
        return Row(name, target, form, check, code, remark=" ".join(text.split()))
    report = result.report
    data = result.tflite.data if result.tflite else result.model.SerializeToString()
    sqnr = report.accuracy.sqnr_db if report.accuracy else None
    return Row(
        name, target, form, check, "0",
        bytes=hashlib.sha256(data).hexdigest()[:16],
        report=_hash(report),
        sqnr="" if sqnr is None else f"{sqnr:.2f}",
        crossings=str(report.summary.transitions),
        remark=report.summary.headline if check == "0" else f"check: {remark}",
    )  # fmt: skip


def _samples(path: Path) -> str | None:
    stem = path.name.removesuffix(".onnx")
    for name in ("calibration.npz", "cal.npz", f"{stem}.cal.npz"):
        if (samples := path.with_name(name)).exists():
            return str(samples)
    return None


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    from support.real_models import shapes_of

    return shapes_of(path)


def _hash(report: Any) -> str:
    """Return a hash of everything in the report but its sentences."""
    values = json.dumps(_without_sentences(json.loads(report.model_dump_json())), sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:16]


def _without_sentences(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_sentences(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_sentences(item) for item in value]
    return None if isinstance(value, str) and " " in value else value


def _read(path: str) -> dict[tuple[str, str, str], Row]:
    with Path(path).open(encoding="utf-8", newline="") as stream:
        rows = [Row(**row) for row in csv.DictReader(stream, delimiter="\t")]
    return {row.key: row for row in rows}


def _arguments() -> argparse.Namespace:
    shared = ROOT.parent / "shared"
    models = [
        *sorted(ROOT.glob("samples/*/model.onnx")),
        *sorted(shared.glob("models/*/model.onnx")),
        *sorted(shared.glob("exporters/*.onnx")),
        *sorted(shared.glob("cases/*/*.onnx")),
    ]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", type=Path, nargs="*", default=models)
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--table", default="build/results.tsv", help="file to write")
    parser.add_argument("--compare", help="table of an earlier run")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
