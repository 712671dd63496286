"""Crossings and accuracy of a device with all operators, compared with convolutions only.

Each model is converted for a target that lists only Conv (and operators that are exact on int8),
and for a target that lists every operator. It is calibrated on the samples of ``accuracy.py`` and
scored on the other samples of ``accuracy.py`` and ``MORE`` others, before a final Softmax or
Sigmoid on the host, which hide errors: SQNR of all samples together, and median of the samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import yaml

from harness.commands import SHARED
from harness.feeds import open_session, read_feeds
from harness.models import recipes
from harness.process import measure
from harness.samples import Entry, prepare, write
from npuconv.evaluate.comparison import Comparison, Measured
from npuconv.evaluate.interval import pooled_db

MODELS = (
    "mlperf_tiny_kws_dscnn", "mlperf_tiny_ic_resnet8", "mobilenetv2_imagenet_dq", "yunet_n_320",
    "fastestdet", "ultraface_rfb320", "ppocrv4_det", "ppocr_cls_v2",
)  # fmt: skip
MORE = 48  # samples
EXACT = (
    "Clip", "DepthToSpace", "Flatten", "Gather", "MaxPool", "Pad", "Relu", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze", "Concat", "Resize",
)  # fmt: skip
# Not Gemm and MatMul: unlisted, those by constants become convolutions.
COMPUTED = (
    "Add", "AveragePool", "Div", "Elu", "Exp", "Gelu", "GlobalAveragePool", "HardSigmoid",
    "HardSwish", "LayerNormalization", "LeakyRelu", "Mish", "Mul", "PRelu", "Reciprocal",
    "ReduceMean", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Sub", "Swish", "Tanh",
)  # fmt: skip


def write_target(path: Path, operators: tuple[str, ...], requantize: str = "float") -> Path:
    """Write a target that lists these operators without limits, beside convolutions."""
    all_points = {"range": [-128, 127]}
    text = {
        "schema": 1,
        "name": path.stem,
        "operators": {op: {} for op in ("Conv", *operators)},
        "activations": {
            "dtype": "int8", "zero_point": all_points, "granularity": "tensor",
            "requantize": requantize,
        },
        "weights": {"dtype": "int8", "symmetric": True, "granularity": "channel"},
        "fused_activations": {"one_of": ["Relu", "Clip"]},
        "unlisted_operators": "host",
    }  # fmt: skip
    path.write_text(yaml.safe_dump(text, sort_keys=False), "utf-8")
    return path


def convert(entry: Entry, target: Path, out: Path, arguments: list[str]) -> tuple[str, str]:
    """Convert; return crossings with their MiB, CPU seconds, and the operators on the host."""
    options = ["-o", str(out), "--calibration", str(entry.calib), "--target", str(target), "-q"]
    line = [sys.executable, "-m", "npuconv", "convert", str(entry.model), *options, *arguments]
    done = measure(line)
    if done.code:
        return done.error or f"exit code {done.code}", ""
    report = json.loads(out.with_name(f"{out.stem}.report.json").read_text("utf-8"))
    crossing = report["device"]["to_device"], report["device"]["to_host"]
    total = sum(tensor["bytes"] or 0 for tensor in crossing) / 2**20
    host = Counter(node["op"] for node in report["nodes"] if node["placement"] != "device")
    on_host = ", ".join(f"{count} {op}" for op, count in host.most_common())
    return f"{report['summary']['transitions']} | {total:.2f} | {done.cpu:.1f}", on_host


def more_samples(entry: Entry, shared: Path, folder: Path) -> Path:
    """Write the samples that are scored on; return their file."""
    path, recipe = folder / f"{entry.name}.samples.npz", recipes()[entry.name]
    more = recipe.make(shared / "data", entry.model, "others", MORE)
    with np.load(entry.scored["score"]) as few:
        write(path, {key: np.concatenate([few[key], more[key]]) for key in few})
    return path


def measured(model: Path, converted: Path, samples: Path) -> Measured | None:
    """Measure the error of an int8 model; return None without a model."""
    if not converted.exists():
        return None
    feeds = list(read_feeds(open_session(model), samples))
    return Comparison(onnx.load(model), onnx.load(converted)).measure(feeds)


def scores(results: Sequence[Measured | None]) -> Iterator[str]:
    """Yield the SQNR of all samples together, and the median SQNR of the samples, of each model.

    Both are measured before a saturating operator if its input is a float tensor in all models: it
    is not if the device computes the operator.
    """
    inside = all(result is None or result.unsaturated for result in results)
    for result in results:
        powers = [] if result is None else result.unsaturated if inside else result.powers
        per_sample = [power.db for power in powers if power.db is not None]
        whole = pooled_db(powers) if per_sample else None
        yield "- | -" if whole is None else f"{whole:.1f} | {statistics.median(per_sample):.1f}"


def examine(name: str, shared: Path, folder: Path, compared: Path | None, form: str) -> list[str]:
    """Return the lines of the table on one model."""
    entry = prepare(name, shared, folder)
    samples = more_samples(entry, shared, folder)
    targets = [write_target(folder / "convolutions.yaml", EXACT)]
    targets.append(compared or write_target(folder / "everything.yaml", (*EXACT, *COMPUTED)))
    outs = [folder / f"{name}.{target.stem}.onnx" for target in targets]
    extra = [*entry.arguments, "--format", form]
    rows = [convert(entry, t, out, extra) for t, out in zip(targets, outs, strict=True)]
    figures = scores([measured(entry.model, out, samples) for out in outs])
    return [
        f"| {name} | {target.stem} | {cost} | {figure} | {on_host} |"
        for target, (cost, on_host), figure in zip(targets, rows, figures, strict=True)
    ]


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(recipes()), default=MODELS)
    parser.add_argument("--target", type=Path, help="compared, instead of one with all operators")
    parser.add_argument("--format", choices=["qoperator", "qdq"], default="qoperator")
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, help="keep sample sets here for the next run")
    options = parser.parse_args(arguments)
    print("| model | target | crossings | MiB | CPU s | SQNR dB | median dB | on the host |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folder = options.work or Path(place)
        for name in options.models:
            for line in examine(name, options.shared, folder, options.target, options.format):
                print(line, flush=True)
