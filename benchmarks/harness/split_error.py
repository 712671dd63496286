"""Cost of split layers in int8: SQNR of the split model minus SQNR of the unsplit model.

Each limit is half of the value that the model needs, so that its largest layers are split in two;
or 1, or 0. Models are calibrated on the samples of ``accuracy.py``, and scored on all other
samples, at most 48 crops of photographs: the mean of the SQNR of samples, before a final Softmax
or Sigmoid, each sample at most 60 dB. The worst sample would dominate the SQNR of all samples
together. With ``--list Pad`` a bias that is not supported becomes channels of a constant.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import yaml

import npuconv
from harness.commands import ROOT, SHARED
from harness.data import COUNTS, FOLDS, USUAL, Role, use_fold
from harness.feeds import Array, open_session, read_feeds
from harness.models import Feeds, Recipe, recipes
from harness.samples import write
from npuconv.evaluate.comparison import Comparison
from npuconv.evaluate.interval import Powers

CHIP = ROOT / "src" / "npuconv" / "targets" / "npu-int8.yaml"
MODELS = (
    "mlperf_tiny_kws_dscnn", "mlperf_tiny_ic_resnet8", "winml_imgclassifier", "superres_connxr",
    "yunet_n_320", "ultraface_rfb320",
)  # fmt: skip
HALVES = {
    "output channels": ("weight_n",),
    "tiles": ("in_h", "in_w"),
    "input channels": ("in_c",),
    "kernel": ("kernel_w",),
}
CROPS = 32  # crops of photographs, scored besides the samples of ``accuracy.py``
LARGEST_DB = 60.0  # upper bound of the SQNR of a sample: higher values make no difference
FIXED = {
    "stride 1": ("stride_h=1", "stride_w=1"),
    "no bias": ("bias=false",),
    "no pads": ("pad_top=0", "pad_bottom=0", "pad_left=0", "pad_right=0"),
}


def needs(model: onnx.ModelProto) -> dict[str, int]:
    """Return the largest values of the facts that are halved, of all convolutions of a file."""
    model = onnx.shape_inference.infer_shapes(model)
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    shapes |= {t.name: list(t.dims) for t in model.graph.initializer}
    largest: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type == "Conv":
            (_, channels, height, width), weight = shapes[node.input[0]], shapes[node.input[1]]
            facts = {"weight_n": weight[0], "in_c": channels, "in_h": height, "in_w": width,
                    "kernel_w": weight[3]}  # fmt: skip
            largest = {fact: max(value, largest.get(fact, 1)) for fact, value in facts.items()}
    return largest


def limits_of(largest: dict[str, int]) -> dict[str, tuple[str, ...]]:
    """Return every kind of limit as assumptions."""
    halves = {
        kind: tuple(f"{fact}={-(-largest[fact] // 2)}" for fact in facts)
        for kind, facts in HALVES.items()
    }
    return halves | FIXED


def per_sample(powers: Sequence[Powers]) -> Array:
    """Return the SQNR of each sample in dB, at most ``LARGEST_DB``."""
    decibels = [LARGEST_DB if pair.db is None else pair.db for pair in powers]
    return np.minimum(np.asarray(decibels), LARGEST_DB)


def spread(differences: Sequence[float]) -> str:
    """Return the mean of some differences in dB, and the least where there are several."""
    text = f"{np.mean(differences):+.2f}"
    return text if len(differences) == 1 else f"{text}, least {min(differences):+.2f}"


@dataclass(frozen=True)
class Bench:
    """One model with the samples of a fold."""

    path: Path
    recipe: Recipe
    calibration: Feeds
    scored: list[dict[str, Array]]
    options: dict[str, object]  # options of all conversions
    numbers: dict[str, str]  # keys of ``activations`` in the target
    listed: list[str]  # operators of the device beside Conv

    def score(self, assume: tuple[str, ...]) -> tuple[float, int] | None:
        """Convert, and return the mean SQNR with the number of convolutions; None if refused."""
        described = yaml.safe_load(CHIP.read_text("utf-8"))
        described["activations"] |= self.numbers
        described["operators"] |= {op: {} for op in self.listed}
        with tempfile.TemporaryDirectory() as folder:
            chip = Path(folder) / "chip.yaml"
            chip.write_text(yaml.safe_dump(described, sort_keys=False), "utf-8")
            try:
                converted = npuconv.convert(
                    str(self.path), str(chip), calibration=self.calibration, verify=False,
                    assume=list(assume), **self.options,
                ).model  # fmt: skip
            except npuconv.UnsupportedModelError:
                return None
        measured = Comparison(onnx.load(self.path), converted).measure(self.scored)
        mean = float(per_sample(measured.unsaturated or measured.powers).mean())
        return mean, sum("Conv" in node.op_type for node in converted.graph.node)


def prepare(name: str, arguments: argparse.Namespace) -> Bench:
    """Make the samples of a fold."""
    recipe = recipes()[name]
    path = arguments.shared / "models" / recipe.model / "model.onnx"

    def make(role: Role, count: int) -> Feeds:
        return recipe.make(arguments.shared / "data", path, role, count)

    few, more = make("score", COUNTS["score"]), make("others", recipe.others or CROPS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scored.npz"
        write(file, {key: np.concatenate([few[key], more[key]]) for key in few})
        scored = list(read_feeds(open_session(path), file))
    options: dict[str, object] = {
        "input_shape": recipe.shapes,
        "pad_on_host": arguments.pad_on_host,
    }
    numbers = {"accumulate": "int32"} if arguments.accumulate else {}
    calibration = make("calib", COUNTS["calib"])
    return Bench(path, recipe, calibration, scored, options, numbers, arguments.list)


def row(name: str, arguments: argparse.Namespace) -> list[str]:
    """Return the SQNR of the unsplit model, and its change for each kind of limit."""
    before: list[float] = []
    counts: dict[str, int] = {}
    changes: dict[str, list[float]] = {kind: [] for kind in arguments.only}
    for fold in arguments.folds:
        use_fold(fold)
        bench = prepare(name, arguments)
        options = {"input_shape": bench.recipe.shapes, "format": "float", "verify": False}
        limits = limits_of(needs(npuconv.convert(str(bench.path), **options).model))
        unsplit = bench.score(())
        assert unsplit is not None  # the target takes it while its limits are open
        before.append(unsplit[0])
        counts["unsplit"] = unsplit[1]
        for kind in arguments.only:
            score = bench.score(limits[kind])
            if score is not None:
                changes[kind].append(score[0] - unsplit[0])
                counts[kind] = score[1]
    cells = [f"{spread(all_)} ({counts[k]})" if all_ else "refused" for k, all_ in changes.items()]
    return [name, f"{np.mean(before):.2f} ({counts['unsplit']})", *cells]


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--only", nargs="+", default=[*HALVES, *FIXED])
    parser.add_argument("--pad-on-host", default="host", help="never: zero points stay alike")
    parser.add_argument(
        "--folds", type=int, nargs="+", choices=range(FOLDS), default=[USUAL],
        help="divisions into samples to calibrate and to score on",
    )  # fmt: skip
    parser.add_argument("--accumulate", action="store_true", help="the device adds in int32")
    parser.add_argument("--list", nargs="+", default=[], help="operators of the device beside Conv")
    parser.add_argument("--shared", type=Path, default=SHARED)
    options = parser.parse_args(arguments)
    print(f"| model | unsplit | {' | '.join(options.only)} |", flush=True)
    print("|---" * (2 + len(options.only)) + "|", flush=True)
    for name in options.models:
        print(f"| {' | '.join(row(name, options))} |", flush=True)
