"""The commands ``npuconv target ...``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from npuconv.cli.target import target
from npuconv.errors import TargetError
from npuconv.target import Target, builtin_names

EXAMPLE = str(Path(__file__).parents[2] / "configs" / "targets" / "my_chip.yaml")
BROKEN = """schema: 1
name: t
activations: {dtype: int8}
weights: {dtype: int8}
operators:
  Covn: {}
  Conv: {limits: {grup: {min: 1}}}
"""


def run(*arguments):
    return CliRunner().invoke(target, list(arguments), catch_exceptions=True)


def good(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_list():
    """One line for each built-in target, by the name that commands take."""
    lines = good("list").splitlines()
    assert tuple(line.split()[0] for line in lines) == builtin_names()
    assert "npu-int8        Int8 accelerator for 2-D convolutions" in lines


def test_show_text():
    """The table has every limit with its source, and what is assumed."""
    text = good("show", "npu-int8")
    assert "group 1 or C notes/group only 1 or C" in [
        " ".join(x.split()) for x in text.splitlines()
    ]
    assert "  fused_activations   ? (assumed: Relu, Clip)" in text
    assert "  unlisted_operators  undocumented" in text
    assert "granularity  channel    assumed" in text
    assert "  assume  int32" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_show_text_of_the_example():
    """Modes, relations and domains are shown as well."""
    text = good("show", EXAMPLE)
    assert "kernel_h (depthwise)" in text
    assert "stride_h == 1 when dilation_h > 1 || dilation_w > 1" in text
    assert "QLinearAdd\n  domain  com.microsoft" in text
    assert "\n  assume " not in text
    assert "\nall operators\n  rank  at most 4  manual/3.1" in text
    assert "\ncosts  [lab]\n  mac            1\n  weight_byte    4\n" in text
    assert "\ncosts\n  mac            1      default\n" in good("show", "npu-int8")


def test_keys_of_the_whole_target():
    """Form, opset and others, only of a target that has them."""
    assert "  opset               19\n  static              true\n" in good("show", "rknn")
    assert "opset" not in good("show", "npu-int8")
    assert "opset - -> 19" in " ".join(good("diff", "npu-int8", "rknn").split())


def test_show_json():
    """JSON has the form of the file, and is a target again."""
    data = json.loads(good("show", EXAMPLE, "--format", "json"))
    assert data["operators"]["Conv"]["limits"]["group"]["one_of"] == [1, "C"]
    assert data["operators"]["Conv"]["require"][0]["if"].startswith("dilation_h")
    assert Target.model_validate(data).name == "my-chip"


def test_show_yaml(tmp_path):
    """YAML is the file itself, ready to be copied."""
    copy = tmp_path / "copy.yaml"
    copy.write_text(good("show", "npu-int8", "--format", "yaml"), "utf-8")
    assert Target.load(copy).sha256 == Target.load("npu-int8").sha256


def test_show_without_sources(tmp_path):
    """A target that cites nothing has no list of sources."""
    path = tmp_path / "t.yaml"
    path.write_text(BROKEN.replace("Covn", "Gemm").replace("grup", "group"))
    text = good("show", str(path))
    assert "sources" not in text
    assert "Gemm" in text


def test_show_unknown():
    """An unknown target is an error with a suggestion."""
    error = run("show", "npu-in8").exception
    assert isinstance(error, TargetError)
    assert "did you mean 'npu-int8'?" in str(error)


def test_lint_good():
    """Clean files are said to be so."""
    assert good("lint", EXAMPLE, "npu-int8") == f"{EXAMPLE}: ok\nnpu-int8: ok\n"


def test_lint_bad(tmp_path):
    """Every problem of every file is one line; the exit code is that of TargetError."""
    path, other, third = (tmp_path / name for name in ("t.yaml", "u.yaml", "v.yaml"))
    path.write_text(BROKEN)
    other.write_text("a: [")
    result = run("lint", str(path), str(other), str(third))
    assert result.output.splitlines() == [
        f"{path}:6:3: error: 'Covn' is not an operator of ONNX (did you mean 'Conv'?)",
        f"{path}:7:19: error: unknown fact 'grup' (did you mean 'group'?)",
        f"{other}:1:5: error: expected the node content, but found '<stream end>'",
        f"{third}: error: no such file",
    ]
    assert isinstance(result.exception, TargetError)
    assert result.exception.exit_code == 2
    assert str(result.exception) == "4 problems found"


def test_lint_unknown_name():
    """A name that is neither built in nor a file has no place."""
    result = run("lint", "npu-in8")
    assert result.output.startswith("error: unknown target 'npu-in8'")
    assert str(result.exception) == "1 problem found"


def test_lint_needs_a_file():
    """A lint of nothing is a mistake."""
    assert run("lint").exit_code == 2


def test_diff_equal():
    """A target does not differ from itself."""
    assert good("diff", "npu-int8", "npu-int8") == "no differences\n"


def test_diff():
    """Limits, formats, operators and relations that differ are one line each, by operator."""
    text = good("diff", "npu-int8", EXAMPLE)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    conv = lines[lines.index("Conv") : lines.index("ConvTranspose")]
    assert "kernel_h ? -> 1..11" in conv
    assert "kernel_h (depthwise) - -> 1..8" in conv
    assert "weight_h ? -> -" in conv
    assert "+ require pad_top == pad_bottom" in conv
    assert lines[lines.index("MaxPool") + 1] == "operator - -> listed"
    assert "domain - -> com.microsoft" in lines
    assert lines[lines.index("activations") + 1] == "zero_point 0 -> -128..127"
    assert lines[lines.index("all operators") + 1] == "rank - -> at most 4"
    assert lines[lines.index("costs") + 1] == "weight_byte 1 -> 4"
    assert not any(line.startswith("rank 4") for line in lines)


def test_diff_is_aligned():
    """Within an operator the arrows stand below each other, facts in the order of the docs."""
    lines = good("diff", "horizon-x3", "mediatek-mdla2").splitlines()
    conv = lines[lines.index("Conv") + 1 : lines.index("ConvTranspose") - 1]
    limits = [line for line in conv if "require" not in line]
    assert len({line.index("->") for line in limits}) == 1
    names = [line.split("  ")[1] for line in limits]
    assert names.index("kernel_h (depthwise)") == names.index("kernel_h") + 1
    assert names.index("kernel_h") < names.index("stride_h") < names.index("pad_top")
    assert "  - require dilation_h <= dilation_w" in conv
    assert any(line.startswith("  + require pad_max == 0 when mode") for line in conv)


def test_diff_is_the_same_backwards():
    """The other way round every line is turned."""
    there, back = good("diff", "npu-int8", "rknn"), good("diff", "rknn", "npu-int8")
    assert len(there.splitlines()) == len(back.splitlines())
    assert there.count("+ require") == back.count("- require") > 0


@pytest.mark.parametrize("name", builtin_names())
def test_show_fits_a_terminal(name, monkeypatch):
    """Long lines go on below, indented; elsewhere, and addresses, they stay whole."""
    whole = good("show", name)
    monkeypatch.setattr("npuconv.cli.screen.terminal", lambda: 80)
    broken = good("show", name)
    too_long = [line for line in broken.splitlines() if len(line) > 80]
    assert [line for line in too_long if len(line.split()) > 1] == []
    assert broken.split() == whole.split()


def test_schema():
    """The JSON schema knows the facts, the short forms and the choices."""
    schema = json.loads(good("schema"))
    operator = schema["$defs"]["ListedOperator"]["properties"]
    assert "kernel_h" in operator["limits"]["propertyNames"]["enum"]
    forms = operator["limits"]["additionalProperties"]["anyOf"]
    assert {"const": "?", "type": "string"} in forms
    assert schema["properties"]["schema"]["const"] == 1
    assert schema["additionalProperties"] is False


@pytest.mark.e2e
def test_starts_without():
    """The target commands do not import the large libraries."""
    large = {"prompt_toolkit", "onnx", "numpy", "onnxruntime", "onnx_graphsurgeon"}
    code = (
        "import sys; from npuconv.cli.target import target; "
        f"target(['show', {EXAMPLE!r}], standalone_mode=False); "
        f"print(*({large!r} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stderr == "\n"
