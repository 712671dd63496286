"""Gain of a second process: the same batch with `--jobs 2` and with `--jobs 1`.

    python benchmarks/jobs_at_once.py [--model MODEL --calibration DATA] [--jobs 2] [--runs 3]

Four equal jobs, of copies of one model, each run from nothing in a whole process. Runs take
turns, so that both see the same machine; printed are the medians, and the median of the
ratios of neighbouring runs. A job has one thread, whatever `--jobs` says.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "digits_upscale"
COUNT = 4
GOAL = 0.65


def make_jobs(folder: Path, model: Path, calibration: Path) -> Path:
    """Write a jobs file of equal jobs.

    Returns:
        The file.
    """
    for number in range(COUNT):
        shutil.copy(model, folder / f"copy{number}.onnx")
    jobs = folder / "jobs.yaml"
    jobs.write_text(
        f"version: 1\ndefaults: {{calibration: '{calibration.resolve()}'}}\n"
        "jobs: [{model: copy*.onnx}]\n"
    )
    return jobs


def seconds(jobs: Path, at_once: int) -> float:
    """Wall time of the whole batch, from nothing."""
    shutil.rmtree(jobs.parent / "build", ignore_errors=True)
    command = [sys.executable, "-m", "npuconv", "batch", str(jobs), "-q", "--jobs", str(at_once)]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, default=SAMPLE / "model.onnx")
    parser.add_argument("--calibration", type=Path, default=SAMPLE / "calibration.npz")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = make_jobs(Path(folder), given.model, given.calibration)
        seconds(jobs, given.jobs)  # does not count: files are read for the first time
        pairs = [(seconds(jobs, 1), seconds(jobs, given.jobs)) for _ in range(given.runs)]
    one, many = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(more / less for less, more in pairs)
    print(f"{COUNT} equal jobs  --jobs 1: {one:.1f} s  --jobs {given.jobs}: {many:.1f} s")
    print(f"ratio {ratio:.2f} (goal on two idle cores: {GOAL})")


if __name__ == "__main__":
    main()
