"""Estimates of Arm's compiler Vela for a TFLite file: cycles, memory, and where operators run."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from npuconv.errors import UsageError
from npuconv.schemas.report import VelaEstimate

NAME = "vela"  # name of the executable, and first word of the next command of its targets
_TIMEOUT = 900  # seconds for one file
_REFUSED = re.compile(r"Warning \(supported operators\) operator: \w+, ofm: '(.*)'")
_PLACED = re.compile(r"(CPU|NPU) operators = (\d+)")
_INSTALL = "pip install ethos-u-vela; or leave --with-vela out"


def require(next_command: str, form: str) -> list[str]:
    """Return the words that compile a file, without its path.

    Raises:
        UsageError: another target or form, or Vela is not installed.
    """
    words = [word for word in shlex.split(next_command) if word != "{model}"]
    if words[:1] != [NAME] or form != "tflite":
        raise UsageError(
            "--with-vela: Vela compiles TFLite files of targets whose next_command is that of Vela",
            hint="give --target ethos-u55, or leave --with-vela out",
        )
    scripts = str(Path(sys.executable).parent)
    executable = shutil.which(NAME, path=scripts) or shutil.which(NAME)
    if executable is None:
        raise UsageError("--with-vela: Vela is not installed", hint=_INSTALL)
    return [executable, *words[1:]]


def estimate(data: bytes, command: Sequence[str]) -> VelaEstimate:
    """Compile a TFLite file in a temporary folder; return the estimates of Vela."""
    with tempfile.TemporaryDirectory(prefix="npuconv-") as name:
        folder = Path(name)
        file = folder / "model.tflite"
        file.write_bytes(data)
        words = [*command, "--output-dir", str(folder), str(file)]
        try:
            process = subprocess.run(
                words, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return VelaEstimate(command=_without_folders(command), error=str(error).splitlines()[0])
        summaries = sorted(folder.glob("model_summary_*.csv"))
        messages = process.stdout + process.stderr
        if process.returncode or not summaries:
            last = (messages.strip().splitlines() or ["no message"])[-1]
            return VelaEstimate(command=_without_folders(command), error=last)
        with summaries[0].open(newline="") as stream:
            row = next(csv.DictReader(stream))
    placed = {kind: int(count) for kind, count in _PLACED.findall(messages)}
    return VelaEstimate(
        command=_without_folders(command),
        npu_operators=placed.get("NPU", 0),
        cpu_operators=placed.get("CPU", 0),
        refused=tuple(_REFUSED.findall(messages)),
        cycles=int(float(row["cycles_total"])),
        inference_ms=round(float(row["inference_time"]) * 1e3, 3),
        sram_kib=round(float(row["sram_memory_used"]), 1),
        flash_kib=round(float(row["off_chip_flash_memory_used"]), 1),
    )


def _without_folders(command: Sequence[str]) -> str:
    """Return the command without folders, which differ from machine to machine."""
    return shlex.join([NAME, *command[1:]])
