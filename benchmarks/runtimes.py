"""Which runtime reads which form: every layer alone, and the table of docs/runtimes.md.

Run by ``make runtimes``. Models are those of ``samples`` and those given as arguments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import npuconv
from npuconv.errors import NpuconvError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.judges import JUDGES, Verdict, is_installed, judged  # noqa: E402

PAGE = ROOT / "docs" / "runtimes.md"
START, END = "<!-- made by benchmarks/runtimes.py -->\n", "<!-- end -->\n"
FORMS = ("qoperator", "qdq")


def main() -> None:
    """Convert each model in each form, judge its layers, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, help="besides samples/*/model.onnx")
    parser.add_argument("--write", action="store_true", help="the table into docs/runtimes.md")
    options = parser.parse_args()
    paths = [*sorted(ROOT.glob("samples/*/model.onnx")), *options.models]
    judges = [judge for judge in JUDGES if is_installed(judge)]
    found: dict[tuple[str, str], list[Verdict]] = {}
    for path in paths:
        for form in FORMS:
            data = path.parent / "calibration.npz"
            given = str(data) if data.exists() else None
            try:
                model = npuconv.convert(
                    path, calibration=given, format=form, max_samples=2, verify=False
                ).model
            except NpuconvError as error:
                print(f"{path.parent.name:28} {form:10} not converted: {error.message[:60]}")
                continue
            for judge in judges:
                verdict = judged(model, judge)
                found.setdefault((judge, form), []).append(verdict)
                print(f"{path.parent.name:28} {form:10} {judge:9} {_line(verdict)}", flush=True)
    table = _table(found)
    print(f"\n{table}")
    if options.write:
        text = PAGE.read_text("utf-8")
        before, after = text.split(START)[0], text.split(END)[1]
        PAGE.write_text(f"{before}{START}\n{table}\n{END}{after}", "utf-8")


def _line(one: Verdict) -> str:
    share = one.differing / max(one.values, 1)
    refused = f"{one.refused} of {one.layers} layers refused, " if one.refused else ""
    return f"{refused}{share:.4%} of {one.values:,} values differ, by {one.furthest} at most"


def _table(found: dict[tuple[str, str], list[Verdict]]) -> str:
    rows = [
        "| runtime | form | models | layers | refused | values that differ | by at most |",
        "|---|---|---|---|---|---|---|",
    ]
    for (judge, form), verdicts in found.items():
        layers, refused = (sum(getattr(v, k) for v in verdicts) for k in ("layers", "refused"))
        share = sum(v.differing for v in verdicts) / max(sum(v.values for v in verdicts), 1)
        furthest = max(v.furthest for v in verdicts)
        cells = (judge, form, len(verdicts), layers, refused, f"{share:.4%}", furthest)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
