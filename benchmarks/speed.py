"""Times and memory of npuconv, as ratios to bare onnxruntime measured in the same run.

    python benchmarks/speed.py [--runs 5] [--models ../shared/models]

Every command runs as a whole process, in turn with the one it is compared with, after one
run that does not count. Printed are the medians of the pairwise ratios; single times mean
little on a shared machine. Without the shared models the project's own samples are used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = 32
# What is promised, of check and of convert; for the others the ratio is only shown.
GOALS = {"ppocrv4_det": (3.0, 4.0)}

LOAD = "import sys, onnx, onnxruntime as o; onnx.load(sys.argv[1]); o.InferenceSession(sys.argv[1])"
FLOAT_RUN = """
import sys, numpy as np, onnxruntime as o
s = o.InferenceSession(sys.argv[1]); name = s.get_inputs()[0].name
for x in np.load(sys.argv[2])[name]: s.run(None, {name: x[None]})
"""
MAKE = """
import sys, numpy as np, onnx
name = onnx.load(sys.argv[1]).graph.input[0].name
shape = tuple(map(int, sys.argv[3].split(",")))
values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
np.savez(sys.argv[2], **{name: values})
"""


@dataclass(frozen=True)
class Figure:
    """One comparison: our command against a reference."""

    name: str
    ours: list[str]
    reference: list[str]
    goal: float | None = None


def measure(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one run; its exit code may be 0 or 1."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss / 1024


def compare(figure: Figure, runs: int) -> str:
    """A row of the table: medians of the pairwise ratios."""
    pairs = [(measure(figure.ours), measure(figure.reference)) for _ in range(runs + 1)][1:]
    wall = statistics.median(a[0] / b[0] for a, b in pairs)
    memory = statistics.median(a[1] / b[1] for a, b in pairs)
    goal = f"< {figure.goal:g}" if figure.goal else ""
    seconds = statistics.median(a[0] for a, _ in pairs)
    return f"| {figure.name} | {wall:.2f} | {goal} | {memory:.2f} | {seconds:.2f} s |"


def starting() -> list[Figure]:
    """Measure the time to start, against an interpreter that does nothing."""
    nothing = [sys.executable, "-c", "pass"]
    commands = (["--help"], ["explain", "SHP002"], ["schema", "report"])
    return [Figure(f"`{' '.join(c)}` / empty process", npuconv(*c), nothing) for c in commands]


def npuconv(*arguments: str) -> list[str]:
    """A command line of ours."""
    return [sys.executable, "-m", "npuconv", *arguments]


def working(models: Path, folder: Path) -> list[Figure]:
    """check and convert against loading and running the float model."""
    figures = []
    for name, size in _subjects(models).items():
        path = _copy(models / name / "model.onnx", folder, name)
        data = _samples(path, size, folder / f"{name}.npz")
        load = [sys.executable, "-c", LOAD, str(path)]
        run = [sys.executable, "-c", FLOAT_RUN, str(path), str(data)]
        convert = ["convert", str(path), "--calibration", str(data), "-q"]
        check = npuconv("check", str(path), "-q")
        goals = GOALS.get(name, (None, None))
        figures.append(Figure(f"check {name} / load + session", check, load, goals[0]))
        figures.append(
            Figure(f"convert {name} / float inference", npuconv(*convert), run, goals[1])
        )
    return figures


def _subjects(models: Path) -> dict[str, tuple[int, ...]]:
    if (models / "ppocrv4_det").is_dir():
        return {"ppocrv4_det": (3, 320, 320), "yunet_n_320": (3, 320, 320)}
    return {"digits": (1, 8, 8)}


def _copy(source: Path, folder: Path, name: str) -> Path:
    target = folder / f"{name}.onnx"
    target.write_bytes(source.read_bytes())
    return target


def _samples(path: Path, size: tuple[int, ...], target: Path) -> Path:
    # In a process of its own: a child's peak memory starts at that of its parent.
    shape = ",".join(map(str, (SAMPLES, *size)))
    subprocess.run([sys.executable, "-c", MAKE, str(path), str(target), shape], check=True)
    return target


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    arguments = parser.parse_args()
    models = arguments.models if arguments.models.is_dir() else ROOT / "samples"
    print("| | wall ratio | goal | memory ratio | ours, median |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for figure in [*starting(), *working(models, Path(folder))]:
            print(compare(figure, arguments.runs), flush=True)


if __name__ == "__main__":
    main()
