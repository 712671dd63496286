"""Vela's estimates: what is run, and what is read of what it prints and writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from npuconv.errors import UsageError
from npuconv.evaluate import vela

COMMAND = "vela --accelerator-config ethos-u55-128 {model}"
PRINTED = """
Warning (supported operators) operator: GATHER, ofm: 'taken'
CPU operators = 1 (20.0%)
NPU operators = 4 (80.0%)
"""
TABLE = (
    "experiment,cycles_total,inference_time,sram_memory_used,off_chip_flash_memory_used\n"
    "default,28412.0,0.000056824,3.984,24.078\n"
)


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that prints and writes these texts, and keeps the words it was called with."""
    called = list[list[str]]()

    def run(words, **_):
        called.append(words)
        folder = Path(words[words.index("--output-dir") + 1])
        assert (folder / "model.tflite").read_bytes() == b"file"
        if "broken" in words:
            return subprocess.CompletedProcess(words, 1, "reading\nError: no such operator\n", "")
        (folder / "model_summary_internal-default.csv").write_text(TABLE)
        return subprocess.CompletedProcess(words, 0, PRINTED, "")

    monkeypatch.setattr(vela.subprocess, "run", run)
    monkeypatch.setattr(vela.shutil, "which", lambda *_, **__: "/opt/vela")
    return called


def test_figures_are_those_of_vela(compiler):
    found = vela.estimate(b"file", vela.require(COMMAND, "tflite"))
    assert compiler[0][:3] == ["/opt/vela", "--accelerator-config", "ethos-u55-128"]
    assert found.command == "vela --accelerator-config ethos-u55-128"
    assert (found.npu_operators, found.cpu_operators, found.refused) == (4, 1, ("taken",))
    figures = (found.cycles, found.inference_ms, found.sram_kib, found.flash_kib)
    assert figures == (28412, 0.057, 4.0, 24.1)
    assert found.error == ""


@pytest.mark.usefixtures("compiler")
def test_a_file_that_vela_does_not_compile():
    """The report says why; the conversion stands."""
    found = vela.estimate(b"file", [*vela.require(COMMAND, "tflite"), "broken"])
    assert (found.error, found.cycles) == ("Error: no such operator", None)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("command", "form"), [("", "tflite"), (COMMAND, "qoperator")])
def test_other_targets_and_forms_have_no_estimates(command, form):
    with pytest.raises(UsageError, match="--with-vela"):
        vela.require(command, form)


def test_a_missing_compiler_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setattr(vela.shutil, "which", lambda *_, **__: None)
    with pytest.raises(UsageError, match="not installed") as caught:
        vela.require(COMMAND, "tflite")
    assert "pip install ethos-u-vela" in caught.value.hint
