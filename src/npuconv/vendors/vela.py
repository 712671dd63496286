"""Estimates of Arm's compiler Vela for a TFLite file: cycles, memory, and where operators run."""

from __future__ import annotations

import shlex

from npuconv.errors import UsageError
from npuconv.schemas.report import VelaEstimate
from npuconv.vendors.tool import Question, VendorTool

_NAME = "vela"  # name of the tool, and first word of the next command of its targets


def require(next_command: str, form: str) -> VendorTool:
    """Return Vela in its environment.

    Raises:
        UsageError: another target or form, or Vela is not installed.
    """
    if shlex.split(next_command)[:1] != [_NAME] or form != "tflite":
        raise UsageError(
            "--with-vela: Vela compiles TFLite files of targets whose next_command is that of Vela",
            hint="give --target ethos-u55, or leave --with-vela out",
        )
    try:
        return VendorTool.find(_NAME)
    except UsageError:
        hint = "pip install ethos-u-vela; or leave --with-vela out"
        raise UsageError("--with-vela: Vela is not installed", hint=hint) from None


def estimate(data: bytes, next_command: str, tool: VendorTool) -> VelaEstimate:
    """Compile a TFLite file with the command of its target; return the estimates of Vela."""
    options = [word for word in shlex.split(next_command) if word != "{model}"]
    _, (reply,) = tool.ask([Question(data, keys={"options": options[1:]})])
    command, figures = shlex.join(options), reply.answer.figures
    if reply.verdict != "accepted":
        return VelaEstimate(command=command, error=reply.answer.message)
    return VelaEstimate(
        command=command,
        npu_operators=int(figures.get("NPU", 0)),
        cpu_operators=int(figures.get("CPU", 0)),
        refused=tuple(name for name, *_ in reply.answer.layers),
        cycles=int(figures["cycles_total"]),
        inference_ms=round(figures["inference_time"] * 1e3, 3),
        sram_kib=round(figures["sram_memory_used"], 1),
        flash_kib=round(figures["off_chip_flash_memory_used"], 1),
    )
