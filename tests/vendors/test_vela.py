"""Vela's estimates: for which files, and what the report gets."""

from __future__ import annotations

import pytest

from npuconv.errors import UsageError
from npuconv.vendors import tool, vela
from support.vendor_tools import environment

COMMAND = "vela --accelerator-config ethos-u55-128 {model}"
FIGURES = (
    "    assert question['options'] == ['--accelerator-config', 'ethos-u55-128']\n"
    "    figures = dict(cycles_total=28412.0, inference_time=0.000056824, sram_memory_used=3.984, "
    "off_chip_flash_memory_used=24.078, CPU=1, NPU=4)\n"
    "    layers = [['taken', 'GATHER', 'CPU', 'Unsupported opType']]\n"
    "    return {'accepted': True, 'layers': layers, 'figures': figures}, None\n"
)


def compiler(folder, body):
    """Return a stand-in of Vela."""
    return tool.VendorTool(tool.VENDORS["vela"], environment(folder, body))


@pytest.mark.e2e
def test_figures_are_those_of_vela(tmp_path):
    found = vela.estimate(b"file", COMMAND, compiler(tmp_path, FIGURES))
    assert found.command == "vela --accelerator-config ethos-u55-128"
    assert (found.npu_operators, found.cpu_operators, found.refused) == (4, 1, ("taken",))
    figures = (found.cycles, found.inference_ms, found.sram_kib, found.flash_kib)
    assert figures == (28412, 0.057, 4.0, 24.1)
    assert found.error == ""


@pytest.mark.e2e
def test_a_file_that_vela_does_not_compile(tmp_path):
    """The report says why; the conversion stands."""
    body = "    return {'accepted': False, 'message': 'Error: no such operator'}, None\n"
    found = vela.estimate(b"file", COMMAND, compiler(tmp_path, body))
    assert (found.error, found.cycles) == ("Error: no such operator", None)


@pytest.mark.parametrize(("command", "form"), [("", "tflite"), (COMMAND, "qoperator")])
def test_other_targets_and_forms_have_no_estimates(command, form):
    with pytest.raises(UsageError, match="--with-vela"):
        vela.require(command, form)


def test_a_missing_compiler_is_said_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv(tool.HOME, str(tmp_path))
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="not installed") as caught:
        vela.require(COMMAND, "tflite")
    assert "pip install ethos-u-vela" in caught.value.hint
