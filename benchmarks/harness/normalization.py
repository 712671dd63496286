"""The normalization that is inferred from a model, against the normalization of its training.

``ablation.py collect`` writes the samples.

For every model that reads photographs the table has the normalization of its package, the
normalization that ``convert`` would assume without data, and its certainty with the reason. With
``--db`` each model is converted three times: calibrated on its own data, on built-in pictures in
the right normalization, and on built-in pictures in the inferred normalization; the table has the
mean over samples of the SQNR on other data of its own, before a final Softmax or Sigmoid.
``--folder`` adds the models of a folder, each with a ``meta.json`` (mean, std, color, layout, size,
input) and without data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.commands import ROOT
from harness.data import Pixels
from harness.models import recipes
from harness.packages import packaged
from harness.samples import Entry, read_entries
from harness.variants import Bench, Variant, copy_source
from npuconv.config import Options
from npuconv.data.builtin import BuiltinData, choose_builtin
from npuconv.legalize.legal import legalize

CLOSE = 1.0  # dB within which two normalizations are equal in effect


@dataclass(frozen=True)
class Case:
    """A model of photographs.

    Attributes:
        name: name of the model.
        model: file of the model.
        arguments: options that it needs.
        pixels: conversion of pixels by its package.
        held: whether it was held out during the development of quantization; the probabilities of
            normalizations were set with it in view.
        entry: its own data, if there is any.
    """

    name: str
    model: Path
    arguments: list[str]
    pixels: Pixels
    held: bool
    entry: Entry | None = None

    @property
    def options(self) -> list[str]:
        """Flags that ask for the right normalization."""
        mean, std = (",".join(map(str, n)) for n in (self.pixels.mean, self.pixels.std))
        return ["--mean", mean, "--std", std, "--color", self.pixels.color]


def cases(sets: Path, folder: Path | None) -> Iterator[Case]:
    """Yield models whose preprocessing is known."""
    recipes_by_name = recipes() | {name: item.recipe for name, item in packaged().items()}
    for entry in read_entries(sets):
        pixels = recipes_by_name[entry.name].pixels
        if pixels is not None and not entry.name.endswith("_photos"):
            yield Case(entry.name, entry.model, entry.arguments, pixels, entry.held, entry)
    for path in sorted(folder.glob("*/meta.json")) if folder else ():
        yield _from_folder(path)


def _from_folder(path: Path) -> Case:
    meta = json.loads(path.read_text())
    pixels = Pixels(tuple(meta["mean"]), tuple(meta["std"]), meta["color"], meta["layout"])
    depth = 1 if pixels.color == "gray" else 3
    shape = (1, *meta["size"], depth) if pixels.layout == "nhwc" else (1, depth, *meta["size"])
    arguments = ["--input-shape", f"{meta['input']}={','.join(map(str, shape))}"]
    return Case(path.parent.name, path.with_name("model.onnx"), arguments, pixels, held=True)


def assumed(case: Case) -> BuiltinData:
    """Return what ``convert`` alone takes."""
    shapes = [text.partition("=") for text in case.arguments if "=" in text]
    fixed = {name: tuple(map(int, dims.split(","))) for name, _, dims in shapes}
    work = legalize(case.model, Options(input_shape=fixed))
    return choose_builtin(work.model, work.options.preprocess, work.expected)


def is_near(pixels: Pixels, builtin: BuiltinData) -> bool:
    """Return whether two normalizations are the same, but for a twentieth of their range."""
    if builtin.inferred is None:
        return False
    mean, std = (list(numbers) * (3 // len(numbers)) for numbers in (pixels.mean, pixels.std))
    inferred = builtin.inferred.normalization
    means, stds = (list(numbers) * (3 // len(numbers)) for numbers in (inferred.mean, inferred.std))
    near_std = all(abs(a / b - 1) < 0.05 for a, b in zip(std, stds, strict=True))
    return near_std and abs(sum(mean) - sum(means)) / 3 < 0.05 * 255


def measure(bench: Bench, source: Path, case: Case) -> list[float | None]:
    """Return dB with own data, built-in pictures in the right normalization, and alone."""
    assert case.entry is not None
    command = (sys.executable,)
    variants = (
        Variant("own", command, source),
        Variant("given", command, source, tuple(case.options), blind=True),
        Variant("alone", command, source, blind=True),
    )
    return [bench.run(v, case.entry).mean_db("score", "logits") for v in variants]


def show(results: list[tuple[Case, BuiltinData, list[float | None]]]) -> None:
    """Print the table and the totals."""
    heads = ("model", "trained with", "assumed", "", "own data", "given", "alone")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for case, plan, values in results:
        mark = "same" if is_near(case.pixels, plan) else "other"
        name = plan.inferred.normalization.name if plan.inferred else "none"
        clear = "clear" if plan.inferred and plan.inferred.is_clear else "guess"
        cells = ["" if v is None else f"{v:.1f}" for v in (*values, None, None, None)[:3]]
        pixels = (
            f"mean {sum(case.pixels.mean) / len(case.pixels.mean):.4g}, std {case.pixels.std[0]:g}"
        )
        row = [
            f"{case.name}{' (H)' if case.held else ''}",
            pixels,
            f"{name}, {clear}",
            mark,
            *cells,
        ]
        print(f"| {' | '.join(row)} |")
    for title, some in (("all", results), ("held out", [r for r in results if r[0].held])):
        _sums(title, some)


def _sums(title: str, results: list[tuple[Case, BuiltinData, list[float | None]]]) -> None:
    if not results:
        return
    near_flags = [is_near(case.pixels, plan) for case, plan, _ in results]
    scored = [v for _, _, v in results if len(v) == 3 and None not in v]
    effect = [
        near or (len(v) == 3 and None not in v and v[1] - v[2] < CLOSE)  # type: ignore[operator]
        for near, (_, _, v) in zip(near_flags, results, strict=True)
    ]
    equal = f"the same {sum(near_flags)}, or equal in effect {sum(effect)}"
    print(f"\n{title}: {len(results)} models, {equal}")
    if scored:
        losses = [(own_db - given_db, own_db - alone) for own_db, given_db, alone in scored]  # type: ignore[operator]
        given_db, alone = (statistics.fmean(pair[k] for pair in losses) for k in (0, 1))
        worst = max(pair[0] for pair in losses), max(pair[1] for pair in losses)
        print(
            f"{title}: {len(scored)} with data: mean loss with the right normalization "
            f"{given_db:.2f} dB (worst {worst[0]:.1f}), alone {alone:.2f} dB (worst {worst[1]:.1f})"
        )


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    build = ROOT / "build" / "zoo"
    parser.add_argument("--sets", type=Path, default=build / "sets")
    parser.add_argument("--work", type=Path, default=build / "work")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--db", action="store_true", help="convert and score, too")
    options = parser.parse_args(arguments)
    source = copy_source(ROOT / "src", options.work.resolve())
    bench, results = Bench(options.work.resolve()), []
    for case in cases(options.sets, options.folder):
        if options.models and case.name not in options.models:
            continue
        plan = assumed(case)
        values = measure(bench, source, case) if options.db and case.entry else []
        results.append((case, plan, values))
        print(f"{case.name}: {plan.sentence} {values}", file=sys.stderr, flush=True)
    show(results)
