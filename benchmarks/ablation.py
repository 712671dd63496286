"""Worth of every step of quantization, on many models.

    python benchmarks/collect_models.py --sets DIR          # once: models and samples
    python benchmarks/ablation.py --sets DIR [--steps STEP...] [--models NAME...] [--json F]

Each model is converted as a whole process, by default and without each step, and scored by
onnxruntime: the mean over samples of the SQNR of all outputs (each sample within -20..60 dB),
then the mean over models; of the outputs as they are, and before a final Softmax, Sigmoid or
the like. Wins and losses are models that change by more than 0.3 dB. Half of the packaged
models are held out: do not look at them while a step is made.

Other versions and peers are compared in the same way:

    python benchmarks/ablation.py --steps --src OTHER/src     # another checkout
    python benchmarks/ablation.py --steps --variants "--max-extra-macs 10"
    python benchmarks/ablation.py --steps --peers-python DIR/bin/python

Results are kept in the work folder; a second run does only what is new.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from recipes import worth
from recipes.contenders import peers
from recipes.variants import Bench, Result, Variant, copy_source, count_lines, known_steps
from recipes.zoo import Entry, read_entries

ROOT = Path(__file__).resolve().parent.parent
BASE = "default"
ALL = "all"
# label of the variant -> name of the model -> result
Results = dict[str, dict[str, Result]]


def variants(given: argparse.Namespace) -> Iterator[Variant]:
    """Yield the base, then the base with other options, other versions, and peers."""
    command, extra = tuple(shlex.split(given.python)), tuple(shlex.split(given.args))
    source = copy_source(given.base_src, given.work)
    yield Variant(BASE, command, source, extra)
    for step in _steps(given, command, source):
        yield Variant(f"without {step}", command, source, (*extra, "--without", step))
    for more in given.variants:
        yield Variant(more, command, source, (*extra, *shlex.split(more)))
    for other in given.src:
        label, _, folder = other.rpartition("=")
        copied = copy_source(Path(folder), given.work)
        yield Variant(label or copied.name[:7], command, copied, extra)
    if given.peers_python:
        for peer in peers(given.peers_python):
            if peer.name in given.peers:
                yield Variant(peer.name, peer=peer)


def _steps(given: argparse.Namespace, command: tuple[str, ...], source: Path) -> list[str]:
    """Return the steps that are asked for; all that the version has, unless any are named."""
    if given.steps != [ALL]:
        return list(given.steps)
    steps = known_steps(command, source)
    if not steps:
        print("this version has no steps to leave out", file=sys.stderr)
    return steps


def run(given: argparse.Namespace, entries: list[Entry], who: list[Variant]) -> Results:
    """Convert and score every model by every variant, telling each as it comes."""
    bench = Bench(given.work, given.seconds, given.keep, given.retry)
    found: Results = {variant.label: {} for variant in who}
    for entry in entries:
        for variant in who:
            base = found[BASE].get(entry.name)
            if base and base.seconds > given.under:
                continue
            result = found[variant.label][entry.name] = bench.run(variant, entry)
            print(
                f"{entry.name}, {variant.label}: {_described(result)}", file=sys.stderr, flush=True
            )
            save(found, entries, given.json)
    return found


def _described(result: Result) -> str:
    if result.error:
        return result.error
    parts = [
        f"{role} {worth.mean_db(result, role, 'logits'):.2f} dB"
        f" ({worth.mean_db(result, role, 'plain'):.2f})"
        for role in result.scores
    ]
    return f"{', '.join(parts)}, {result.seconds:.1f} s"


def save(found: Results, entries: list[Entry], path: Path | None) -> None:
    """Write everything, after every conversion, so that nothing is lost to an interruption."""
    if path is None:
        return
    kinds = {entry.name: {"held": entry.held, "source": entry.source} for entry in entries}
    results = {
        label: {name: _plain(result) for name, result in by_model.items()}
        for label, by_model in found.items()
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"models": kinds, "results": results}, indent=1) + "\n")
    part.rename(path)


def _plain(result: Result) -> dict[str, object]:
    means = {
        role: {kind: worth.mean_db(result, role, kind) for kind in kinds}
        for role, kinds in result.scores.items()
    }
    return {"mean": means, **asdict(result)}


def show(found: Results, entries: list[Entry], lines: dict[str, int | None]) -> None:
    """Print the tables."""
    others = {label: results for label, results in found.items() if label != BASE}
    columns = {label: r for label, r in found.items() if not label.startswith("without ")}
    print(f"SQNR in dB before saturation (foreign photographs), {len(entries)} models\n")
    print(worth.columns(entries, columns, "logits"))
    for group in worth.groups(entries) if others else ():
        print(f"\n{worth.table(group, found[BASE], others, lines)}")
    print(f"\n{worth.failures(found)}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = ROOT / "build" / "zoo"
    add = parser.add_argument
    add("--sets", type=Path, default=build / "sets", help="what benchmarks/collect_models.py wrote")
    add("--work", type=Path, default=build / "work", help="keeps results for the next run")
    add("--models", nargs="+", metavar="NAME", help="these only")
    add("--steps", nargs="*", default=[ALL], metavar="STEP", help="these only; none: no step")
    add("--args", default="", help='options of every conversion, such as "--max-extra-macs 10"')
    add("--variants", nargs="*", default=[], help="options, each compared with the default")
    add("--src", nargs="*", default=[], metavar="[LABEL=]DIR", help="src of other checkouts")
    add("--base-src", type=Path, default=ROOT / "src", help="src of the default")
    add("--python", default=sys.executable, help="what runs npuconv")
    add("--peers-python", type=Path, help="interpreter that has the peers")
    add("--peers", nargs="*", default=["NNCF mixed"], help="which of them")
    add("--seconds", type=int, default=900, help="a conversion is ended after that")
    add("--keep", action="store_true", help="keep the int8 models in the work folder")
    add("--retry", action="store_true", help="try again what failed in an earlier run")
    add("--under", type=float, default=900, metavar="S", help="skip models slower by default")
    add("--no-held", action="store_true", help="leave the held-out models alone")
    add("--json", type=Path, help="write every figure here")
    given = parser.parse_args(arguments)
    given.work = given.work.resolve()
    return given


def choose(given: argparse.Namespace) -> list[Entry]:
    """Return the models that are asked for."""
    entries = read_entries(given.sets)
    if not entries:
        raise SystemExit(
            f"{given.sets}: no samples here; write them with benchmarks/collect_models.py"
        )
    unknown = set(given.models or ()) - {entry.name for entry in entries}
    if unknown:
        raise SystemExit(f"{given.sets} has no {', '.join(sorted(unknown))}")
    chosen = [entry for entry in entries if not given.models or entry.name in given.models]
    return [entry for entry in chosen if not (given.no_held and entry.held)]


def main() -> None:
    """Measure and print."""
    given = parse()
    entries = choose(given)
    who = list(variants(given))
    lines = {
        variant.label: count_lines(variant.label.removeprefix("without "), variant.source)
        for variant in who
        if variant.source and variant.label.startswith("without ")
    }
    show(run(given, entries, who), entries, lines)


if __name__ == "__main__":
    main()
