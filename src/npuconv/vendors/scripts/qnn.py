"""Qualcomm QNN, Hexagon HTP: onnxruntime-qnn compiles QDQ ONNX and emulates the processor."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime
import onnxruntime_qnn

VERSION = version("onnxruntime-qnn")
CHIP = "57"  # Snapdragon 8 Gen 3: without a chip, the emulator has no float operators
onnxruntime.register_execution_provider_library(
    onnxruntime_qnn.EP_NAME, onnxruntime_qnn.get_library_path()
)
_NODE = re.compile(r"Operator type: (\S+) Node name: (.*) Node index: \d+")
_UNIT = re.compile(r"Validation FAILED for \d+ nodes in OrtNodeUnit \((\S+)\)")
_PREFIX = re.compile(r"^\[ONNXRuntimeError\][ :\d]*[A-Z_]+ : ")
_FAILURES = re.compile(r"<E>|\[E:|Failed to|QNN_\w*ERROR")


def ask(question: dict[str, Any], feeds: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Compile for the emulated processor alone, then run; if refused, read why from the log."""
    try:
        session = load(question, severity=4, is_strict=True)
        return {"accepted": True, "default_device": "NPU"}, [
            session.run(None, feed) for feed in feeds
        ]
    except Exception as error:
        message = line_of(error)
    try:
        load(question, severity=0, is_strict=False)
    except Exception as error:
        message = line_of(error)
    layers, failures = refused(Path("log").read_text("utf-8", "replace").splitlines())
    if "fallback to CPU EP" in message:
        message = failures[-1] if failures and not layers else "not every node compiles"
    return {"accepted": False, "message": message, "layers": layers}, None


def line_of(error: Exception) -> str:
    """Return the first line of an error of onnxruntime, without its code."""
    return _PREFIX.sub("", (str(error).splitlines() or [repr(error)])[0])


def load(question: dict[str, Any], severity: int, is_strict: bool) -> Any:
    """Return a session; a strict one does not exist unless every node compiles."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = severity
    if is_strict:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == onnxruntime_qnn.EP_NAME]
    settings = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "soc_model": question["chip"] or CHIP,
        "htp_graph_finalization_optimization_mode": "0",
    }
    options.add_provider_for_devices(devices[:1], settings)
    return onnxruntime.InferenceSession(question["model"], options)


def refused(lines: list[str]) -> tuple[list[list[str]], list[str]]:
    """Return the refused nodes, each with the first reason, and lines that name a failure."""
    reasons: dict[tuple[str, str], str] = {}
    node: tuple[str, str] | None = None
    failures, unit = list[str](), ""
    for line in lines:
        if match := _UNIT.search(line):
            unit, node = match[1], None
        elif match := _NODE.search(line):
            node = (match[2], match[1]) if node is None or match[1] == unit else node
        elif node and "REASON :" in line:
            reasons.setdefault(node, line.partition("REASON :")[2].strip())
            node = None
        elif _FAILURES.search(line):
            failures.append(re.sub(r"^\S+ \S+ \[\w:[^\]]*\] ?|\x1b\[[\d;]*m", "", line).strip())
    return [[*node, "CPU", reason] for node, reason in reasons.items()], failures
