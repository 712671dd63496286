"""Sensitivity by one backward pass a sample, against rounding every layer alone.

    python benchmarks/collect_models.py --sets DIR          # once: models and samples
    python benchmarks/sensitivity.py --sets DIR [--models NAME...]

Each model is quantized as ``convert`` does it. Then every layer alone is rounded, and the error
of the outputs is measured on eight samples (brute force), and estimated from gradients. Printed
are the rank correlation of both over the layers (Spearman), and the seconds of each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from recipes.zoo import Entry, read_entries

from npuconv.config import Options
from npuconv.data import calibration_data as prepare
from npuconv.data.samples import spread
from npuconv.legalize.legal import legalize
from npuconv.model import save
from npuconv.quantize import sensitivity
from npuconv.quantize.calibrate import calibrate
from npuconv.quantize.fake_quant import OutputError, QuantPoint, logits, quant_points
from npuconv.quantize.host_prep import prepare_host
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.settings import SENSITIVITY

MODELS = (
    "ppocrv4_det", "mobilenetv2_imagenet_dq", "yunet_n_320", "squeezenet11_fp32", "fastestdet",
    "ultraface_rfb320", "blazeface_back_kj", "ppocr_cls_v2", "bodypix_mnv1_050_s16",
    "mlperf_tiny_ic_resnet8", "mlperf_tiny_kws_dscnn", "deeplabv3_mnv2_257",
)  # fmt: skip


def examine(entry: Entry) -> str:
    """Return one line of the table."""
    shapes = dict(_pair(text) for text in entry.arguments if "=" in text)
    legal, source = legalize(entry.model, Options(input_shape=shapes)), str(entry.calib)
    samples = prepare.open_calibration(legal, save.to_proto(legal.model), source).samples
    graph, grids = prepare_host(legal, samples)
    proto = graph.proto()
    seen = calibrate(graph, proto, samples, lambda *_: None)
    state = choose_encodings(graph, seen, grids)
    state = round_weights(graph, seen.hessians, state)
    points, ends = quant_points(graph, state), logits(proto)
    feeds = [samples[k] for k in spread(len(samples), 8)]
    start = time.perf_counter()
    found = sensitivity.measure(ends, points, state, samples, SENSITIVITY.probes)
    middle = time.perf_counter()
    brute = _brute_force(OutputError(ends, feeds), points)
    end = time.perf_counter()
    if found is None:
        return f"| {entry.name} | cannot be differentiated | | |"
    rank = spearman(list(brute.values()), list(found.layers({}).values()))
    return f"| {entry.name} | {rank:.3f} | {middle - start:.2f} | {end - middle:.2f} |"


def _pair(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition("=")
    return name, tuple(map(int, dims.split(",")))


def _brute_force(error: OutputError, points: list[QuantPoint]) -> dict[str, float]:
    """Return the mean over samples of the relative error of each layer rounded alone."""
    found: dict[str, float] = {}
    for point in points:
        one = error.of([point])
        pairs = zip(one.noise, one.signal, strict=True)
        power = float(np.mean([noise / max(signal, 1e-30) for noise, signal in pairs]))
        found[point.layer] = found.get(point.layer, 0.0) + power
    return found


def spearman(one: list[float], other: list[float]) -> float:
    """Return the rank correlation of two lists."""
    ranks = [_ranks(np.asarray(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(np.argsort(values))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sets", type=Path, required=True, help="folder that collect_models.py has made"
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    print("| model | rank correlation | gradients, s | brute force, s |\n|---|---:|---:|---:|")
    for entry in read_entries(arguments.sets):
        if entry.name in arguments.models:
            print(examine(entry), flush=True)


if __name__ == "__main__":
    main()
