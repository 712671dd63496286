"""Kills at random moments during convert and batch: every file must be complete.

The folder keeps the files of the run before. Two sets of options alternate, so that there is
always an old file to be replaced by a new file; after each kill every output must have the bytes
that a run without a kill writes with one of the two sets. Half of the kills come in the last fifth
of a run, when files are written. At the end, a run without a kill must leave its outputs, and
no other files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from harness.commands import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from support import forks

SAMPLES = ("digits", "digits_grouped")
WAYS = ("20", "21")  # opsets: no calibration, so that files are written most of the time
JOBS = """version: 1
defaults: {opset: WAY, format: weights}
jobs:
  - {model: digits.onnx}
  - {model: digits_grouped.onnx, format: float}
output: build/
"""
LEFT = re.compile(r"\..*\.part")
STATE = re.compile(r"\.npuconv.*|.*\.lock\.json|npuconv-batch\..*")


class Place:
    """A folder with models in which the same commands run again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in SAMPLES:
            shutil.copy(ROOT / f"samples/{name}/model.onnx", folder / f"{name}.onnx")
        for way in WAYS:
            (folder / f"{way}.yaml").write_text(JOBS.replace("WAY", way))

    def start(self, kind: str, way: str) -> psutil.Process:
        """Begin with a command."""
        arguments = ["batch", f"{way}.yaml", "--jobs", "2", "--no-resume"]
        if kind == "convert":
            arguments = ["convert", "digits.onnx", "--format", "weights", "--opset", way]
        return forks.start(arguments, self.folder)

    def outputs(self) -> Iterator[tuple[str, str]]:
        """Names and digests of the written files."""
        inputs = {p.name for p in self.folder.iterdir() if p.suffix == ".yaml"}
        inputs |= {f"{name}.onnx" for name in SAMPLES}
        for path in sorted(self.folder.rglob("*")):
            parts = path.relative_to(self.folder).parts
            if path.is_file() and path.name not in inputs and not any(map(STATE.fullmatch, parts)):
                yield "/".join(parts), state(path)


def state(path: Path) -> str:
    """Return the digest of a file; for the report of a batch, whether it is complete."""
    data = path.read_bytes()
    if not path.name.startswith("batch.report"):
        return hashlib.sha256(data).hexdigest()
    if path.suffix == ".html":
        return "whole" if data.rstrip().endswith(b"</html>") else "cut"
    json.loads(data)
    return "whole"


def undisturbed(place: Place) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return the allowed contents of every file, and the duration of each kind of command."""
    allowed: dict[str, set[str]] = {}
    seconds = {}
    for kind in ("convert", "batch"):
        for way in WAYS:
            start = time.monotonic()
            if place.start(kind, way).wait() != 0:
                raise SystemExit(f"{kind} does not run here")
            seconds[kind] = time.monotonic() - start
            for name, digest in place.outputs():
                allowed.setdefault(name, set()).add(digest)
    return allowed, seconds


def kill(process: psutil.Process, moment: float, number: int) -> int | None:
    """Send a signal after so many seconds, and wait for all of its processes.

    Returns:
        The exit code if it is over before; else None.
    """
    try:
        return int(process.wait(moment))
    except psutil.TimeoutExpired:
        pass
    family = [process, *process.children(recursive=True)]
    process.send_signal(number)
    psutil.wait_procs(family, timeout=120)
    return None


def broken(place: Place, allowed: dict[str, set[str]]) -> list[str]:
    """Return the files that differ from the files of a run without a kill."""
    return [
        name
        for name, digest in place.outputs()
        if not LEFT.fullmatch(Path(name).name) and digest not in allowed.get(name, ())
    ]


def main(arguments: list[str]) -> int:
    """Kill commands and count broken files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    dice, count, bad = random.Random(options.seed), Counter[str](), []
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name) / "work")
        allowed, seconds = undisturbed(place)
        number = 0
        while number < options.kills:
            kind, way = ("convert", "batch")[number % 2], WAYS[number // 4 % 2]
            sent = (signal.SIGKILL, signal.SIGTERM)[number // 2 % 2]
            late = dice.random() < 0.5
            share = dice.uniform(0.8, 1.0) if late else dice.random()
            start = time.monotonic()
            process = place.start(kind, way)
            code = kill(process, seconds[kind] * share, sent)
            if code is not None:
                if code:
                    raise SystemExit(f"{kind} does not run here any more")
                seconds[kind] = time.monotonic() - start  # faster than it was
                continue
            number += 1
            count[f"{kind}, {sent.name}"] += 1
            parts = [p for p in place.folder.rglob(".*") if LEFT.fullmatch(p.name)]
            count["kills after which a part lay there, of this or an earlier one"] += bool(parts)
            bad += [f"kill {number} ({kind}, {sent.name}): {f}" for f in broken(place, allowed)]
            if number % 20 == 0:
                print(f"{number} kills, {len(bad)} not whole", file=sys.stderr, flush=True)
        for kind in ("convert", "batch"):
            place.start(kind, WAYS[0]).wait()
        bad += broken(place, allowed)
        bad += [f"left: {p}" for p in place.folder.rglob(".*") if LEFT.fullmatch(p.name)]
        bad += [f"missing: {name}" for name in allowed if not (place.folder / name).exists()]
    for event, times in sorted(count.items()):
        print(f"{times:5}  {event}")
    print(f"{len(bad):5}  files that are not whole", *bad, sep="\n       ")
    return 1 if bad else 0
