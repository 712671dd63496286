"""Arm Vela, Ethos-U: compiles TFLite and estimates cycles and memory; it has no simulator."""

from __future__ import annotations

import csv
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ethosu.vela import vela

VERSION = version("ethos-u-vela")
_REFUSED = re.compile(r"Warning \(supported operators\) operator: (\w+), ofm: '(.*)'")
_PLACED = re.compile(r"(CPU|NPU) operators = (\d+)")
_FIGURES = ("cycles_total", "inference_time", "sram_memory_used", "off_chip_flash_memory_used")


def ask(question: dict[str, Any], _feeds: list[dict[str, Any]]) -> tuple[dict[str, Any], None]:
    """Compile; operators that Vela leaves to the CPU are no refusal."""
    chip = question["chip"] or "ethos-u55-128"
    try:
        status = vela.main(["--accelerator-config", chip, "--output-dir", ".", question["model"]])
    except SystemExit as error:
        status = error.code
    sys.stdout.flush()
    lines = Path("log").read_text("utf-8", "replace").splitlines()
    summaries = sorted(Path().glob("*_summary_*.csv"))
    if status or not summaries:
        last = [line.strip() for line in lines if line.strip()][-1:]
        return {"accepted": False, "message": (last or ["no message"])[0]}, None
    with summaries[0].open(newline="", encoding="utf-8") as stream:
        row = next(csv.DictReader(stream))
    figures = {name: float(row[name]) for name in _FIGURES}
    devices = {kind: int(number) for kind, number in _PLACED.findall("\n".join(lines))}
    layers = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if match := _REFUSED.match(line):
            layers.append([match[2], match[1], "CPU", following.replace("Reason: ", "", 1)])
    return {"accepted": True, "layers": layers, "devices": devices, "figures": figures}, None
