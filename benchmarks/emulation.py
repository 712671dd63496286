"""Times of an int8 model as onnxruntime runs it, as float arithmetic, and of the float model.

python benchmarks/emulation.py [MODEL.onnx...]

Models are converted with synthetic samples; without arguments those of ``samples/``. The
integers of both int8 runs are compared: a difference is printed, and the exit code is 1.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx

import npuconv
from npuconv.config import Options
from npuconv.evaluate.pairs import choose_samples, open_model
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7


def best(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> float:
    """Milliseconds of the fastest run, on one thread."""
    session = Session(model, threads=1)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        session.run(feed)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def same(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> bool:
    """Return whether all outputs are equal bit by bit, nothing optimized."""
    pair = (model, as_float(model))
    ours, theirs = (Session(one, threads=1, optimize=False).run(feed) for one in pair)
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


def row(path: Path) -> tuple[bool, float, float]:
    """Print one model; whether it is the same, int8 over emulated, emulated over float."""
    opened = open_model(path)
    model = npuconv.convert(path, max_samples=4, verify=False).model
    samples, _ = choose_samples((opened, opened), None, Options(), 1, None)
    feed = samples[0]
    int8, fast, plain = (best(m, feed) for m in (model, as_float(model), opened.proto))
    equal = same(model, feed)
    text = f"int8 {int8:8.2f} ms, as float {fast:8.2f} ms, float {plain:8.2f} ms"
    print(f"{path.parent.name:24} {text}, {int8 / fast:5.2f} times as fast"
          + ("" if equal else "; NOT THE SAME"))  # fmt: skip
    return equal, int8 / fast, fast / plain


def main(arguments: list[str]) -> int:
    """One line for each model, and the geometric means."""
    paths = [Path(a) for a in arguments] or sorted((ROOT / "samples").glob("*/model.onnx"))
    rows = [row(path) for path in paths]
    faster, slower = (
        statistics.geometric_mean(values) for values in list(zip(*rows, strict=True))[1:]
    )
    print(f"{faster:.2f} times as fast as int8, {slower:.2f} times the time of float")
    return 0 if all(equal for equal, _, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
