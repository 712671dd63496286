"""A slice of the corpus; all of it is ``robustness.py hostile``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
# Prints the number of cases by family, then runs ``robustness.py hostile`` with each list of
# arguments. Building the corpus takes longer than most commands.
SCRIPT = """
import json, sys
from collections import Counter
import robustness
from hostile import corpus
print(json.dumps(Counter(case.family for case in corpus.corpus())))
codes = [robustness.run_hostile(["--jobs", "1", *given]) for given in json.loads(sys.argv[1])]
sys.exit(max(codes))
"""
FAMILIES = {
    "protobuf", "tensor", "bomb", "graph", "external", "weights", "attribute", "name", "yaml",
    "array", "picture", "preparation", "labels", "folder", "quantized", "tflite",
    "vendor",
}  # fmt: skip
# Those that were wrong once, by the command that was, and are quick. By batch, which starts a
# process for each, also one of every loader.
ONCE_WRONG = {
    "check": (
        "attribute/Conv-strides-empty", "attribute/clip-text", "bomb/calls-of-calls",
        "attribute/ConvTranspose-strides-max", "bomb/doubling-constants", "external/pipe",
        "external/at-zero-device", "external/extent-of-10-tb", "external/extent-unknown-key",
        "graph/attribute-reference", "graph/chain-100000", "name/not-utf8-node",
        "name/operator-long", "tensor/input-is-map", "tensor/segment",
        "tensor/sparse-huge-first", "weights/weight-huge", "yaml/baseline-huge-number",
        "yaml/option-baseline-device", "yaml/relation-then-loops-in-loops",
    ),
    "convert": (
        "array/at-long", "array/at-pipe", "array/npy-shape-beyond-int",
        "attribute/gather-outside", "attribute/unsqueeze-many", "graph/info-twice",
        "picture/list-long-line", "picture/list-pipe", "tensor/output-none",
        "weights/scale-huge", "yaml/option-cache-nul",
    ),
    "verify": ("labels/table-huge-number", "labels/npz-objects", "labels/pipe"),
    "run": ("folder/part-pipe", "folder/part-link-device", "folder/manifest-file-outside"),
    "batch": (
        "yaml/job-output-long", "yaml/job-output-nul", "external/pipe",
        "bomb/input-expanded-overflowing", "picture/png-text-bomb", "protobuf/input-zeroed",
        "array/npy-shape-beyond-int", "weights/epsilon-inf",
    ),
}  # fmt: skip


def test_cases_that_were_wrong_and_a_slice():
    """Every case that was wrong once; of all others a sixtieth, by all commands but batch."""
    names = [f"{command}:{name}" for command, names in ONCE_WRONG.items() for name in names]
    sixtieth = ["--every", "60", "--commands", "check", "convert", "verify", "run"]
    paths = [str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([["--", *names], sixtieth])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    first, *lines = done.stdout.splitlines()
    cases = json.loads(first)
    assert set(cases) == FAMILIES
    assert sum(cases.values()) >= 400
    once_wrong, of_slice = (line for line in lines if line.startswith("| all |"))
    assert int(once_wrong.split("|")[3]) >= len(names)
    assert int(of_slice.split("|")[3]) >= sum(cases.values()) // 60
