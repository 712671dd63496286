"""Costs of `npuconv check` of many models, beside the work on each of them.

    python benchmarks/check_many.py MODEL_OR_FOLDER ... [--runs 3]

The command runs as a whole process, once for all models. Beside it stands the sum of the bare
work: every model is checked in a process of its own, in which the first model of all was
checked before, and only the second check is timed. Printed are medians and their ratio, and
how often the summary table stands in the output.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL = 1.3
_BARE = """
import sys, time
from npuconv.errors import ModelError
from npuconv.check_model import check

def seconds(path):
    start = time.perf_counter()
    try:
        check(path)
    except ModelError:
        pass
    return time.perf_counter() - start

seconds(sys.argv[1])
print(seconds(sys.argv[2]))
"""


def found(given: list[str]) -> list[str]:
    """Models as given, and those in folders."""
    paths = [Path(one) for one in given]
    return [
        str(path)
        for one in paths
        for path in (sorted(one.rglob("*.onnx")) if one.is_dir() else [one])
    ]


def bare(first: str, model: str) -> float:
    """Seconds that one model takes, without those to start."""
    command = [sys.executable, "-c", _BARE, first, model]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def command(models: list[str]) -> tuple[float, int]:
    """Seconds of one command for all of them, and how often it prints the table."""
    start = time.perf_counter()
    words = [sys.executable, "-m", "npuconv", "check", *models]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 1, 2):
        raise SystemExit(done.stderr)
    return seconds, sum(line.startswith("  model ") for line in done.stdout.splitlines())


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    models = found(options.models)
    smallest = min(models, key=lambda path: Path(path).stat().st_size)
    whole, single, tables = [], [], 0
    for _ in range(options.runs):  # one beside the other, as the machine may be busy
        seconds, tables = command(models)
        whole.append(seconds)
        single.append(sum(bare(smallest, model) for model in models))
    all_of_it, parts = statistics.median(whole), statistics.median(single)
    print(f"models                 {len(models)}")
    print(f"summary tables         {tables}")
    print(f"one command            {all_of_it:.1f} s")
    print(f"sum of the bare work   {parts:.1f} s")
    print(f"ratio                  {all_of_it / parts:.2f}  (goal: below {GOAL})")


if __name__ == "__main__":
    main()
