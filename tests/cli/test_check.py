"""``npuconv check``: many models, every output format, and exit codes for CI."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import onnx
import pytest

from support.training_code import CODE, LINE, exported

PARSERS = {
    "json": json.loads,
    "sarif": json.loads,
    "junit": ET.fromstring,
    "github": str.splitlines,
    "markdown": str.splitlines,
    "text": str.splitlines,
}


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def test_good(cli, model, folder):
    """A good model gives code 0, findings on stdout and no file."""
    done = cli("check", model)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("OK\n")
    assert "next: npuconv convert model.onnx\n" in done.out
    assert listing(folder) == ["model.onnx"]


def test_refused(cli, refused, folder):
    """A refused model gives code 1 and names the node."""
    done = cli("check", refused)
    assert (done.code, done.err) == (1, "")
    assert "SHP001" in done.out
    assert "volume" in done.out
    assert listing(folder) == ["refused.onnx"]


def test_same_findings_as_convert(cli, refused, model):
    """check and convert give the same findings."""
    for name in (refused, model):
        checked = json.loads(cli("check", name, "--output-format", "json").out)
        cli("convert", name, "--report", "r.json")
        converted = json.loads(Path("r.json").read_text("utf-8"))
        assert converted["findings"] == checked["findings"]


@pytest.mark.parametrize("form", PARSERS)
@pytest.mark.parametrize("count", [1, 2])
def test_output_format(cli, model, refused, form, count):
    """Every format parses, for one model and for several, and names the node."""
    done = cli("check", *[refused, model][:count], "--output-format", form)
    assert (done.code, done.err) == (1, "")
    assert PARSERS[form](done.out) is not None
    assert "volume" in done.out
    assert "\x1b" not in done.out


def test_many(cli, model, refused, folder):
    """Files and directories together, each model once; the worst code wins."""
    (folder / "more" / "deep").mkdir(parents=True)
    shutil.copy(model, folder / "more" / "b.onnx")
    shutil.copy(model, folder / "more" / "deep" / "a.onnx")
    (folder / "more" / "readme.txt").write_text("no model")
    done = cli("check", model, "more", "more/b.onnx", model, "--output-format", "json")
    assert done.code == 0
    paths = [r["model"]["path"] for r in json.loads(done.out)["reports"]]
    assert paths == ["model.onnx", "more/b.onnx", "more/deep/a.onnx"]
    assert cli("check", "more", refused).code == 1


def test_folder_of_converted(cli, model, folder):
    """Results of convert in a directory are not checked."""
    assert cli("convert", model).code == 0
    done = cli("check", ".", "--output-format", "json")
    assert done.code == 0
    assert json.loads(done.out)["model"]["path"] == "model.onnx"
    assert cli("check", ".", "model.npu.onnx").code == 1
    (folder / "model.onnx").unlink()
    done = cli("check", ".")
    assert done.code == 2
    assert "but for what convert has written (*.npu.onnx)" in done.error


def test_broken_among_good(cli, model, refused, folder):
    """An unreadable model gives code 2; the others are reported."""
    (folder / "broken.onnx").write_bytes(b"\x00\x01")
    done = cli("check", "broken.onnx", refused, "nothing.onnx", model, "--output-format", "json")
    assert done.code == 2
    assert len(done.errors) == len(done.err.splitlines()) == 2
    assert "broken.onnx" in done.errors[0]
    assert "nothing.onnx" in done.errors[1]
    paths = [r["model"]["path"] for r in json.loads(done.out)["reports"]]
    assert paths == ["refused.onnx", "model.onnx"]


def test_all_broken(cli, folder):
    """Stdout is empty if there are errors only, and reports hold them."""
    (folder / "broken.onnx").write_bytes(b"\x00\x01")
    done = cli("check", "broken.onnx", "--report", "r.json")
    assert (done.code, done.out) == (2, "")
    assert "broken.onnx" in done.error
    found = json.loads((folder / "r.json").read_text())
    assert found["reports"] == []
    assert [one["path"] for one in found["unreadable"]] == ["broken.onnx"]


@pytest.mark.parametrize("form", [form for form in PARSERS if form != "text"])
@pytest.mark.parametrize("count", [0, 1])
def test_documents_tell_of_what_cannot_be_read(cli, model, form, count):
    """Documents hold unreadable models, too."""
    done = cli("check", *[model][:count], "nothing.onnx", "--output-format", form)
    assert done.code == 2
    assert "nothing.onnx: no such file" in done.out
    if form == "json":
        assert len(json.loads(done.out)["reports"]) == count
    if form == "junit":
        assert ET.fromstring(done.out).get("errors") == "1"
    if form == "sarif":
        (run,) = json.loads(done.out)["runs"]
        assert not run["invocations"][0]["executionSuccessful"]


def test_a_flag_that_suits_one_of_several(cli, model, refused):
    """A model without the input of a flag is reported; the others are checked."""
    done = cli("check", model, refused, "--input-shape", "nobody=1,2", "--output-format", "json")
    assert done.code == 2
    assert [one["path"] for one in json.loads(done.out)["unreadable"]] == [model, refused]


def test_quiet_documents(cli, model):
    """-q does not suppress a document."""
    assert cli("check", model, "-q").out == ""
    assert json.loads(cli("check", model, "-q", "--output-format", "json").out)["findings"]


@pytest.mark.parametrize("given", [[""], ["m.onnx", "--config", ""], ["m.onnx", "--baseline", ""]])
def test_empty_names(cli, given):
    """An empty name is refused."""
    done = cli("check", *given)
    assert (done.code, done.out) == (2, "")
    assert "empty" in done.error or "''" in done.error


def test_a_folder_with_a_models_name(cli, model, folder):
    """A folder with a name of a model is searched."""
    (folder / "more.onnx").mkdir()
    shutil.copy(model, folder / "more.onnx" / "a.onnx")
    done = cli("check", ".", "--output-format", "json")
    assert [r["model"]["path"] for r in json.loads(done.out)["reports"]] == [
        "model.onnx",
        "more.onnx/a.onnx",
    ]


def test_empty_directory(cli, folder):
    """A directory without models is a mistake, not a success."""
    (folder / "empty").mkdir()
    done = cli("check", "empty")
    assert (done.code, done.out) == (2, "")
    assert "empty: no .onnx file in this directory" in done.error


@pytest.mark.parametrize("count", [1, 2])
def test_report(cli, model, refused, folder, count):
    """--report writes all models into one file, besides what stdout gets."""
    names = [refused, model][:count]
    done = cli("check", *names, "--report", "r.json", "--report", "r.sarif", "-q")
    assert (done.code, done.out) == (1, "")
    assert cli("check", *names, "--output-format", "json").out == (folder / "r.json").read_text()
    json.loads((folder / "r.sarif").read_text())


def test_report_into_nowhere(cli, model):
    """A report that cannot be written is code 2."""
    done = cli("check", model, "--report", "nowhere/r.json")
    assert done.code == 2
    assert "nowhere/r.json" in done.error


def test_verbose_and_timings(cli, model):
    """-v shows more findings; --timings the time of each stage."""
    assert len(cli("check", model, "-v").out) > len(cli("check", model).out)
    timed = json.loads(cli("check", model, "--timings", "--output-format", "json").out)
    assert timed["timings"]


def test_target(cli, model, folder):
    """--target takes a name or a file, and suggests a similar name."""
    yaml = cli("target", "show", "npu-int8", "--format", "yaml").out
    (folder / "mine.yaml").write_text(yaml)
    assert cli("check", model, "--target", "mine.yaml").code == 0
    done = cli("check", model, "--target", "npu-in8")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'npu-int8'?" in done.error


@pytest.mark.e2e
def test_as_a_program(shell, model, refused):
    """A process has the same code and streams."""
    done = shell("check", model, refused, "--output-format", "github")
    assert (done.code, done.err) == (1, "")
    assert "::error" in done.out


def test_source_root_of_a_configuration(cli, folder):
    """The folder of the training code is relative to the file that names it."""
    (folder / "net/src/models").mkdir(parents=True)
    (folder / "net/src/models/net.py").write_text(CODE)
    onnx.save(exported(), folder / "net/m.onnx")
    config = folder / "net/npuconv.yaml"
    config.write_text("{source_root: src, assume: [kernel_h=1], fit: false}\n")
    arguments = ["check", "net/m.onnx", "--config", str(config.relative_to(folder))]
    done = cli(*arguments, "--output-format", "github")
    assert done.code == 1
    assert f"::error file=net/src/models/net.py,line={LINE},title=SHP006 " in done.out
    config.write_text("source_root: gone\n")
    assert "source_root: net/gone: no such file or folder" in cli(*arguments).error
    flag = cli("check", "net/m.onnx", "--source-root", "gone")
    assert (flag.code, "source_root gone: no such folder" in flag.error) == (2, True)
