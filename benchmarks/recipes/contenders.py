"""Contenders: this project and, beside it in the same run, its peers."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from recipes.sets import Sets

OURS, MORE = "ours", "ours, more"
INSTALL = "python -m venv DIR && DIR/bin/pip install onnx onnxruntime sympy nncf"


@dataclass(frozen=True)
class Contender:
    """Someone who quantizes.

    Attributes:
        name: heading of the column.
        command: what comes before the model.
        tail: what comes after model, samples and result; None: npuconv's own order.
    """

    name: str
    command: tuple[str, ...]
    tail: tuple[str, ...] | None = None

    def line(self, arguments: list[str], sets: Sets, target: Path) -> list[str]:
        """Return the command line that makes ``target``; npuconv gets ``arguments``, too."""
        model, calib = str(sets.model), str(sets.calib)
        if self.tail is not None:
            return [*self.command, str(sets.settled), calib, str(target), *self.tail]
        options = ["-o", str(target), "--calibration", calib, "-q", *arguments]
        return [self.command[0], "-m", "npuconv", "convert", model, *options, *self.command[1:]]


def ours(extra: str) -> list[Contender]:
    """npuconv as it comes, and with more arguments where some are given."""
    found = [Contender(OURS, (sys.executable,))]
    if extra:
        found.append(Contender(MORE, (sys.executable, *shlex.split(extra))))
    return found


def peers(python: Path) -> list[Contender]:
    """onnxruntime with the device's arithmetic, and NNCF.

    Args:
        python: interpreter of an environment that has them; what it lacks is left out.
    """
    ort = (str(python), "-m", "recipes.run_ort")
    nncf = (str(python), "-m", "recipes.run_nncf")
    found = []
    if _has(python, "onnxruntime", "sympy"):
        kinds = [(m, scope) for m in ("MinMax", "Percentile") for scope in ("all", "conv")]
        found += [Contender(f"ort {' '.join(kind)}", ort, kind) for kind in kinds]
    if _has(python, "onnxruntime", "nncf.onnx"):
        found += [Contender(f"NNCF {kind}", nncf, (kind,)) for kind in ("performance", "mixed")]
    return found


def _has(python: Path, *modules: str) -> bool:
    probe = [str(python), "-c", f"import {', '.join(modules)}"]
    try:
        there = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        there = False
    if not there:
        print(f"{python} has no {' or '.join(modules)}: left out; {INSTALL}", file=sys.stderr)
    return there
