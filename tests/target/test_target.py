"""Built-in targets, and undocumented limits that are answered for one run."""

from __future__ import annotations

import onnx
import pytest
from click.testing import CliRunner

import npuconv
from npuconv import yamlio
from npuconv.cli import cli
from npuconv.errors import TargetError, UsageError
from npuconv.target import Target, builtin_names, listed_operators
from npuconv.target.lint import lint
from support.builders import Net


def assumed(*answers: str) -> dict[str, str]:
    """The answered limits of Conv, as text."""
    target = Target.load("npu-int8").assuming(answers)
    operator = target.operator("Conv")
    assert operator is not None
    limits = operator.limits.items()
    return {name: limit.text() for name, limit in limits if "--assume" in limit.why}


@pytest.mark.parametrize(
    ("answer", "name", "text"),
    [
        ("kernel_h=5", "kernel_h", "at most 5"),
        ("Conv.kernel_h=5", "kernel_h", "at most 5"),
        ("stride_w=1,2", "stride_w", "1 or 2"),
        ("in_c=1..64", "in_c", "1..64"),
        ("bias=true", "bias", "true"),
        ("bias_dtype=int32", "bias_dtype", "int32"),
    ],
)
def test_forms(answer, name, text):
    """A number is the largest that is taken."""
    assert assumed(answer) == {name: text}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("kernel_h", "not of the form"),
        ("kernel_h=large", "not of the form"),
        ("kernal_h=5", "did you mean 'kernel_h'"),
        ("rank=4", "no undocumented limit 'rank'"),
        ("MaxPool.kernel_h=3", "no undocumented limit"),
    ],
)
def test_mistakes(answer, words):
    """Errors name the fault and the existing limits."""
    with pytest.raises(UsageError) as caught:
        assumed(answer)
    assert words in f"{caught.value} {caught.value.hint}"


def test_the_target_itself_stays_as_it_is():
    """Built-in targets are read once."""
    target = Target.load("npu-int8")
    assert target.assuming(()) is target
    target.assuming(["kernel_h=1"])
    assert dict(target.unknown_limits())["operators", "Conv", "limits", "kernel_h"].limit == "?"
    assert target.assumptions() == Target.load("npu-int8").assumptions()


def test_the_report_says_what_was_assumed():
    """Citations of rewrites and the list of assumptions have it."""
    proto = Net(x=(1, 3, 9, 9)).conv("x", (4, 3, 5, 5)).model()
    report = npuconv.check(proto, assume=("kernel_h=3",))
    assert report.ok
    (found,) = (f for f in report.findings if f.code == "SHP006")
    assert found.status == "rewritten"
    assert "assumed for this run: --assume kernel_h=3" in found.source
    told = {one.limit: one.assumption for one in report.unknown_limits if one.assumption}
    assert told["operators.Conv.limits.kernel_h"] == "at most 3 (--assume)"
    assert "fit-convolution" in {r.pass_name for r in report.rewrites}


def test_on_the_command_line(tmp_path):
    """Repeatable; and a mistake is exit code 2."""
    path = tmp_path / "m.onnx"
    onnx.save(Net(x=(1, 3, 9, 9)).conv("x", (4, 3, 5, 5)).model(), path)
    answers = ["--assume", "kernel_h=3", "--assume", "kernel_w=3"]
    flags = ["check", str(path), "--output-format", "json", *answers]
    result = CliRunner().invoke(cli, flags)
    assert "at most 3 (--assume)" in result.output


@pytest.mark.parametrize("name", builtin_names())
def test_listed_operators(name):
    """Operators of the file, found without reading its limits."""
    found = Target.load(name)
    assert listed_operators(name) == {op for op in found.operators if found.operator(op)}


def test_every_problem_at_once(tmp_path):
    """A run with a faulty target file names what ``target lint`` would, with lines."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: chip\nextra: 1\noperators:\n  Covn: {limits: {grup: {max: 1}}}\n"
        "activations: {dtype: int8}\nweights: {dtype: int9}\n"
    )
    with pytest.raises(TargetError) as caught:
        Target.load(path)
    lines = [str(error) for error in lint(yamlio.load(path, error=TargetError))]
    assert list(caught.value.lines) == lines
    assert [line.split(":")[1] for line in lines] == ["3", "7"]
    path.write_text(path.read_text().replace("extra: 1\n", "").replace("int9", "int8"))
    with pytest.raises(TargetError, match=r"'Covn' is not an operator.*unknown fact 'grup'"):
        Target.load(path)
