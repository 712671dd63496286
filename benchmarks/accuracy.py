"""Accuracy of int8 conversion on real models.

    python benchmarks/accuracy.py models         # npuconv beside its peers, with time and memory
    python benchmarks/accuracy.py intervals      # how often the reported interval holds
    python benchmarks/accuracy.py normalization  # inferred normalization against the known one

Each command has --help. ``models`` calibrates each shared model on 32 samples and scores it on
16 others by onnxruntime itself: SQNR of all outputs together, and for classifiers the share of
answers that agree with the float model, on these samples and more of their kind, with the SQNR on
all of them: with only 16 samples, an undecided sample has too much weight. Wall time and peak
memory are of the whole process, divided by a process that runs the float model on the 32 samples.
Peers get the same samples in the same run. They are not dependencies of this project:

    python -m venv DIR && DIR/bin/pip install onnx onnxruntime sympy nncf
    python benchmarks/accuracy.py models --peers --peers-python DIR/bin/python

An S marks synthetic data; models that end in _photos read text, and are calibrated and scored on
photographs instead of rendered text.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import commands, intervals, normalization
from harness.data import FOLDS, USUAL, use_fold
from harness.models import recipes
from harness.process import Measured, measure
from harness.quantizers import peers
from harness.samples import Entry, prepare
from harness.scores import pooled, score_apart
from harness.variants import Variant, settled_model

OURS = "ours"


@dataclass(frozen=True)
class Row:
    """Result of one converter on one model.

    Attributes:
        model: name of the recipe; synthetic data is marked by an S.
        converter: heading of its column.
        sqnr: SQNR of all outputs and samples together, in dB.
        agreement: share of answers that agree with the float model.
        many: SQNR over all samples whose answers are compared, in dB.
        wall: wall time, divided by the time of the float model on the same samples.
        memory: peak memory, divided by the memory of the float model.
        cpu: CPU seconds on all cores, which hardly depend on other work of the machine.
        error: reason why there are no figures.
    """

    model: str
    converter: str
    sqnr: float = math.nan
    agreement: float | None = None
    many: float = math.nan
    wall: float = math.nan
    memory: float = math.nan
    cpu: float = math.nan
    error: str = ""


def examine(entry: Entry, converters: list[Variant], runs: int) -> list[Row]:
    """Measure all converters on one model, in their order."""
    module = [sys.executable, "-m", "harness.quantizers", "float"]
    bare = [*module, str(entry.model), str(entry.calib)]
    name = f"{entry.name} (S)" if entry.synthetic else entry.name
    measure(bare)  # reads the files into memory; does not count
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for converter in converters:
            target = Path(folder) / "int8.onnx"
            target.unlink(missing_ok=True)
            line = converter.line(entry, entry.folder, target)
            pairs = [(measure(line), measure(bare)) for _ in range(runs)]
            rows.append(_row(name, converter.label, pairs, entry, target))
    return rows


def _row(
    name: str, label: str, pairs: list[tuple[Measured, Measured]], entry: Entry, target: Path
) -> Row:
    """Score a model; ratios are medians over neighbouring runs."""
    last = pairs[-1][0]
    if last.code or not target.exists():
        return Row(name, label, error=last.error or "wrote no model")
    floats = entry.folder / "float"
    scores = score_apart(entry.model, target, entry.scored, floats, entry.top1)
    if isinstance(scores, str):
        return Row(name, label, error=scores)
    answers = sum(score.answers for score in scores.values())
    agreed = sum(score.agreed for score in scores.values())
    return Row(
        name,
        label,
        sqnr=pooled(scores["score"].plain),
        agreement=agreed / answers if answers else None,
        many=pooled([pair for score in scores.values() for pair in score.plain]),
        wall=statistics.median(ours.seconds / bare.seconds for ours, bare in pairs),
        memory=statistics.median(ours.mib / bare.mib for ours, bare in pairs),
        cpu=statistics.median(ours.cpu for ours, _ in pairs),
    )


def heading(converters: Sequence[str]) -> str:
    """Return the first two lines of the table."""
    names = ["model", *converters, "top-1, ours", "wall, ours", "memory, ours"]
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def line(rows: Sequence[Row]) -> str:
    """Return one model: SQNR of all converters in dB, and the other figures of the first."""
    first = rows[0]
    cells = ["-" if r.error else "exact" if r.sqnr == math.inf else f"{r.sqnr:.1f}" for r in rows]
    top = "" if first.agreement is None else f"{100 * first.agreement:.1f} %"
    cost = [_number(first.wall), _number(first.memory)]
    return f"| {' | '.join([first.model, *cells, top, *cost])} |"


def answers(rows: Sequence[Row]) -> str:
    """Return models that classify, on more samples: SQNR and how often the answer is the same."""
    classifying = [row for row in rows if row.agreement is not None]
    names = {row.model for row in classifying}
    return _by_model(
        "on more samples",
        [row for row in rows if row.model in names],
        lambda row: f"{row.many:.1f} dB, {100 * (row.agreement or 0.0):.1f} %",
    )


def seconds(rows: Sequence[Row]) -> str:
    """Return the seconds that each converter computed, on all cores together."""
    return _by_model("CPU seconds", rows, lambda row: f"{row.cpu:.1f}")


def _by_model(title: str, rows: Sequence[Row], text: Callable[[Row], str]) -> str:
    """Return a table with a line for each model and a column for each converter."""
    names = list(dict.fromkeys(row.converter for row in rows))
    lines = ["", f"| {title} | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    for model in dict.fromkeys(row.model for row in rows):
        cells = ["-" if row.error else text(row) for row in rows if row.model == model]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) if rows else ""


def summary(rows: Sequence[Row]) -> str:
    """Return all converters over all models, beside the first of them, and what failed."""
    names = list(dict.fromkeys(row.converter for row in rows))
    first = {row.model: row.sqnr for row in rows if row.converter == names[0]}
    heads = ["", "wall / float run, median", "memory / float run, median"]
    heads += [f"dB against {names[0]}, median", "ahead by 0.5 dB", "behind by 0.5 dB", "failed"]
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name in names:
        of_converter = [row for row in rows if row.converter == name]
        good = [row for row in of_converter if not row.error]
        # Models on which either failed or is exact are not compared.
        gaps = [gap for row in good if math.isfinite(gap := row.sqnr - first[row.model])]
        columns = [[row.wall for row in good], [row.memory for row in good], gaps]
        medians = [statistics.median(column) if column else math.nan for column in columns]
        above, below = (sum(sign * gap >= 0.5 for gap in gaps) for sign in (1, -1))
        counts = map(str, (above, below, len(of_converter) - len(good)))
        lines.append(f"| {' | '.join([name, *map(_number, medians), *counts])} |")
    failures = [f"- {row.model}, {row.converter}: {row.error}" for row in rows if row.error]
    return "\n".join([*lines, "", *failures])


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def save(rows: list[Row], path: Path | None) -> None:
    """Write rows as JSON after every model, so that nothing is lost to an interruption.

    JSON has no infinity: null means exact, or not measured.
    """
    if path:
        values = [
            {
                k: None if isinstance(v, float) and not math.isfinite(v) else v
                for k, v in row.items()
            }
            for row in map(asdict, rows)
        ]
        path.write_text(json.dumps(values, indent=1) + "\n")


def models(arguments: list[str]) -> None:
    """Measure npuconv and its peers on every model."""
    parser = argparse.ArgumentParser()
    names = list(recipes())
    add = parser.add_argument
    add("--models", nargs="+", choices=names, metavar="NAME", default=names, help=", ".join(names))
    add("--peers", action="store_true", help="measure onnxruntime and NNCF, too")
    add("--peers-python", type=Path, default=Path(sys.executable))
    add("--extra-args", default="", help="measure npuconv with these, too")
    add("--fold", type=int, choices=range(FOLDS), default=USUAL, help="which third is scored on")
    add("--runs", type=int, default=1, help="how often times are taken")
    add("--json", type=Path, help="write every figure here")
    add("--shared", type=Path, default=commands.SHARED)
    add("--work", type=Path, help="keep sample sets here for the next run")
    options = parser.parse_args(arguments)
    shared = commands.check_shared(options.shared)
    use_fold(options.fold)
    source = commands.ROOT / "src"
    converters = [Variant(OURS, (sys.executable,), source)]
    if options.extra_args:
        extra = tuple(shlex.split(options.extra_args))
        converters.append(Variant("ours, more", (sys.executable,), source, extra))
    if options.peers:
        converters += [Variant(peer.name, peer=peer) for peer in peers(options.peers_python)]
    rows: list[Row] = []
    print(heading([converter.label for converter in converters]), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            entry = prepare(name, shared, options.work or Path(folder))
            if options.peers:  # before the clock starts
                settled_model(entry, entry.folder / "settled" / f"{name}.onnx")
            of_model = examine(entry, converters, options.runs)
            print(line(of_model), flush=True)
            rows += of_model
            save(rows, options.json)
    print(answers(rows), seconds(rows), summary(rows), sep="\n")


if __name__ == "__main__":
    sys.exit(
        commands.run(
            __doc__,
            {"models": models, "intervals": intervals.main, "normalization": normalization.main},
        )
    )
