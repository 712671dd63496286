"""The example notebook: its cells run one after the other and say what it shows."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).resolve().parent.parent.parent / "samples"
NOTEBOOK = SAMPLES / "notebook.ipynb"


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as Jupyter does; return its outputs as a notebook stores them."""
    code = ast.parse(source)
    last = code.body.pop() if code.body and isinstance(code.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    text, outputs = printed.getvalue(), list[dict[str, Any]]()
    if text:
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(True)
        shown = {"data": data, "metadata": {}, "output_type": "execute_result"}
        outputs.append({**shown, "execution_count": None})
    return outputs


def told(outputs: list[dict[str, Any]]) -> str:
    """Return outputs as text without numbers, whose last digits differ between machines."""
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", json.dumps(outputs))


def test_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs, and says what the notebook shows, but for numbers."""
    shutil.copytree(SAMPLES / "digits", tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    content = json.loads(NOTEBOOK.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    wrong = []
    for number, cell in enumerate(one for one in content["cells"] if one["cell_type"] == "code"):
        made = run("".join(cell["source"]), names)
        if told(made) != told(cell["outputs"]):
            wrong.append(number)
        cell["outputs"] = made
    assert number > 4
    if os.environ.get("NPUCONV_UPDATE_SNAPSHOTS"):
        NOTEBOOK.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    assert not wrong, "update with NPUCONV_UPDATE_SNAPSHOTS=1"
    assert (tmp_path / "digits.npu.onnx").is_file()
