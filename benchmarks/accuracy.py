"""Accuracy, time and memory of int8 conversion on the shared models, beside its peers.

    python benchmarks/accuracy.py [--models NAME...] [--fold K] [--peers] [--json F] [--plot F]

Each model is calibrated on 32 samples and scored on 16 others by onnxruntime itself: SQNR of
all outputs together, cosine, and, where the model classifies, how often the answer is that
of the float model on these samples and more of their kind, with the SQNR on all of them: of
16, one that is nearly even between two classes may decide. Wall time and peak memory are
those of the whole process, by those of a process that runs the float model on the 32 samples.
The peers see the same samples in the same run. They are no dependencies of this project:

    python -m venv DIR && DIR/bin/pip install onnx onnxruntime sympy nncf
    python benchmarks/accuracy.py --peers --peers-python DIR/bin/python

An S marks data made up for want of better; models that end in _photos are those that read,
calibrated and scored on photographs instead of rendered text.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from recipes import contenders, picture, table
from recipes.contenders import Contender
from recipes.data import FOLDS, USUAL, use_fold
from recipes.measure import Measured, measure
from recipes.models import Recipe, recipes
from recipes.scoring import Score, score_files
from recipes.sets import Sets, prepare, settle_model
from recipes.table import Row

ROOT = Path(__file__).resolve().parent.parent


def examine(name: str, recipe: Recipe, sets: Sets, who: list[Contender], runs: int) -> list[Row]:
    """Everyone's figures on one model, in the order of ``who``."""
    with tempfile.TemporaryDirectory() as folder:
        targets = [Path(folder) / f"{k}.onnx" for k in range(len(who))]
        bare = [sys.executable, "-m", "recipes.run_float", str(sets.model), str(sets.calib)]
        measure(bare)  # reads the files into memory; does not count
        pairs = [
            [
                (measure(one.line(recipe.arguments, sets, target)), measure(bare))
                for _ in range(runs)
            ]
            for one, target in zip(who, targets, strict=True)
        ]
        made = [target for target in targets if target.exists()]
        scores = score_files(sets.model, sets.score, sets.others, recipe.top1, made)
        by_target = dict(zip(made, scores, strict=True))
        label = f"{name} (S)" if recipe.synthetic else name
        return [
            _row(label, one.name, pair, by_target.get(target))
            for one, pair, target in zip(who, pairs, targets, strict=True)
        ]


def _row(
    name: str, contender: str, pairs: list[tuple[Measured, Measured]], score: Score | None
) -> Row:
    """One row; ratios are medians of those of neighbouring runs."""
    last = pairs[-1][0]
    if last.code or score is None or score.error:
        error = last.error or (score.error if score else "wrote no model")
        return Row(name, contender, error=error)
    return Row(
        name,
        contender,
        sqnr=score.whole.sqnr,
        cosine=score.whole.cosine,
        agreement=score.agreement,
        outputs={output: sums.sqnr for output, sums in score.outputs.items()},
        many=score.many.sqnr,
        wall=statistics.median(a.seconds / b.seconds for a, b in pairs),
        memory=statistics.median(a.mib / b.mib for a, b in pairs),
        cpu=statistics.median(a.cpu for a, _ in pairs),
    )


def run(arguments: argparse.Namespace, work: Path) -> list[Row]:
    """Examine every model that is asked for, printing as it comes."""
    who = contenders.ours(arguments.ours_args)
    who += contenders.peers(arguments.peers_python) if arguments.peers else []
    known, rows = recipes(), []
    print(table.heading([one.name for one in who]), flush=True)
    for name in arguments.models or known:
        sets = prepare(name, known[name], arguments.shared, work)
        if arguments.peers:
            settle_model(sets)
        found = examine(name, known[name], sets, who, arguments.runs)
        print(table.line(found), flush=True)
        rows += found
        _save(rows, arguments.json)
    return rows


def _save(rows: list[Row], path: Path | None) -> None:
    """After every model, so that nothing is lost to an interruption."""
    if path:
        path.write_text(json.dumps([_plain(asdict(row)) for row in rows], indent=1) + "\n")


def _plain(value: object) -> object:
    """JSON has no infinity: null stands for exact, and for what was not measured."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(recipes())
    parser.add_argument("--models", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--peers", action="store_true", help="measure onnxruntime and NNCF, too")
    parser.add_argument("--peers-python", type=Path, default=Path(sys.executable))
    parser.add_argument(
        "--ours-args", "--extra-args", default="", help="measure npuconv with these, too"
    )
    parser.add_argument(
        "--fold", type=int, choices=range(FOLDS), default=USUAL, help="which third is scored on"
    )
    parser.add_argument("--runs", type=int, default=1, help="how often times are taken")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--plot", type=Path, help="SQNR against time: .svg, or .png by matplotlib")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, help="keep sample sets here for the next run")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    arguments = parse()
    if not (arguments.shared / "models").is_dir():
        raise SystemExit(f"{arguments.shared}: no models here; name their folder with --shared")
    use_fold(arguments.fold)
    with tempfile.TemporaryDirectory() as folder:
        rows = run(arguments, arguments.work or Path(folder))
    print(table.answers(rows))
    print(table.seconds(rows))
    print(table.summary(rows))
    if arguments.plot:
        print(f"written: {picture.plot(rows, arguments.plot)}")


if __name__ == "__main__":
    main()
