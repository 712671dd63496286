"""``npuconv target explore``."""

from __future__ import annotations

import json

import onnx
import pytest
from click.testing import CliRunner

from npuconv.cli.target import target
from npuconv.errors import UsageError
from support.builders import Net


@pytest.fixture
def model(tmp_path):
    """A model with a kernel of 5."""
    path = tmp_path / "m.onnx"
    onnx.save(Net(x=(1, 4, 12, 12)).conv("x", (4, 4, 5, 5)).model(), path)
    return path


def run(*arguments: str):
    return CliRunner().invoke(target, ["explore", *arguments, "-q"], standalone_mode=False)


def test_text(model):
    """A row for each limit: needed, knee with its cost, tightest; -v: a table for each."""
    brief, full = run(str(model)), run(str(model), "-v")
    assert (brief.return_value, full.return_value) == (0, 0)
    assert "1 model, 1 convolution, " in brief.stdout
    (row,) = [line.split() for line in brief.stdout.splitlines() if "Conv.kernel_h" in line]
    assert (row[1], row[5], row[-1]) == ("5", "1", "0")
    title = "Conv.kernel_h: the models need up to 5"
    values = full.stdout.partition(title)[2].partition("Conv.")[0].splitlines()[2:]
    assert [line.split()[0] for line in values if line] == ["5", "2", "1"]
    (knee,) = [line.split() for line in values if line.endswith("knee")]
    assert (knee[0], " ".join(knee[1:3])) == (row[2], " ".join(row[3:5]))


def test_json_and_files(model, tmp_path):
    """The suffix picks the renderer."""
    files = [tmp_path / "e.html", tmp_path / "e.json"]
    reports = [part for path in files for part in ("--report", str(path))]
    result = run(str(model), "--output-format", "json", *reports)
    assert json.loads(result.stdout) == json.loads(files[1].read_text())
    assert files[0].read_text().startswith("<!doctype html>")


def test_mistakes(model):
    """A suffix that no renderer has; a model that cannot be read."""
    assert isinstance(run(str(model), "--report", "e.pdf").exception, UsageError)
    bad = model.with_name("bad.onnx")
    bad.write_bytes(b"no model")
    result = run(str(bad), str(model))
    assert result.return_value == 2
    assert "bad.onnx" in result.stderr
