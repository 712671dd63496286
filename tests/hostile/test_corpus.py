"""A slice of the corpus; all of it is ``robustness.py hostile``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hostile import corpus

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "robustness.py"
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


def run(*arguments: str) -> str:
    """The benchmark with these arguments; what it says is wrong is the message."""
    command = [sys.executable, str(SCRIPT), "hostile", "--jobs", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_there_are_enough():
    """The corpus has every family, no other, and at least 400 cases."""
    cases = corpus.corpus()
    assert len(cases) >= 400
    assert {case.family for case in cases} == {
        "protobuf", "tensor", "bomb", "graph", "external", "weights", "attribute", "name", "yaml",
        "array", "picture", "preparation", "labels", "folder", "quantized", "tflite",
    }  # fmt: skip


def test_once_wrong():
    """Cases that were wrong once are right; one process builds the corpus for all commands."""
    names = [f"{command}:{name}" for command, found in ONCE_WRONG.items() for name in found]
    shown = run("--", *names)
    assert int(shown.splitlines()[-1].split("|")[3]) >= len(names)


def test_a_slice():
    """A sixtieth of everything, but for batch."""
    assert "| all |" in run("--every", "60", "--commands", "check", "convert", "verify", "run")
