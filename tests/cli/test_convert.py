"""``npuconv convert``: what is written, what is said, and what decides about it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from npuconv import executor
from npuconv.quantize.settings import STEPS
from support.builders import Net, images

SYNTHETIC = "npuconv: no calibration data: "
WRITTEN = ["model.npu.onnx", "model.npu.report.html", "model.npu.report.json"]


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def report(path="model.npu.report.json"):
    return json.loads(Path(path).read_text("utf-8"))


def operators(path="model.npu.onnx"):
    return {n.op_type for n in onnx.load(path).graph.node}


@pytest.fixture
def calibration(folder):
    """Samples for the model."""
    np.savez(folder / "samples.npz", x=images(16, 1, 8, 8))
    return "samples.npz"


@pytest.fixture
def dynamic(folder):
    """A model whose extents are open, and whose stride makes them matter."""
    net = Net(x=("N", 3, "H", "W")).conv("x", auto_pad="SAME_UPPER", strides=[2, 2])
    onnx.save(net.model(), folder / "dynamic.onnx")
    return "dynamic.onnx"


@pytest.mark.parametrize(("form", "said"), [("qdq", True), ("qoperator", False)])
def test_a_processor_that_saturates(cli, model, monkeypatch, form, said):
    """Its onnxruntime computes other numbers from conversions: which session option helps."""
    monkeypatch.setattr(executor, "saturates", lambda: True)
    done = cli("convert", model, "--format", form)
    assert ("session.x64quantprecision" in done.err) == said


def test_alone(cli, model, folder):
    """The model alone is enough: model and two reports lie beside it, stderr says how good."""
    done = cli("convert", model)
    assert done.code == 0
    assert listing(folder) == ["model.npu.onnx", *WRITTEN[1:], "model.onnx"]
    lines = done.err.splitlines()
    assert lines[0].startswith(f"{SYNTHETIC}built-in photographs, assumed pixels in")
    following = "npuconv split model.npu.onnx -o model.npu.parts"
    assert lines[1:] == [
        f"npuconv: wrote {', '.join([WRITTEN[0], *WRITTEN[:0:-1]])}",
        f"npuconv: split it for a driver with: {following}",
    ]
    assert done.out.startswith("CONVERTED, 1 warning: accuracy is unproven")
    assert "next: npuconv convert model.onnx --calibration FOLDER\n" in done.out
    assert "accuracy is unproven" in done.out
    assert any("accuracy is unproven" in w for w in report()["summary"]["warnings"])
    assert "accuracy is unproven" in report()["summary"]["headline"]
    assert "QLinearConv" in operators()
    session = ort.InferenceSession(WRITTEN[0], providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": images(3, 1, 8, 8)})[0].shape == (3, 10)


def test_beside_the_model(cli, model, folder):
    """Outputs lie beside the model, not in the current directory."""
    (folder / "sub").mkdir()
    (folder / model).rename(folder / "sub" / model)
    assert cli("convert", "sub/model.onnx").code == 0
    assert listing(folder) == ["sub"]
    assert listing(folder / "sub") == ["model.npu.onnx", *WRITTEN[1:], "model.onnx"]


def test_output(cli, model, folder):
    """-o names the model; the reports go with it."""
    (folder / "out").mkdir()
    assert cli("convert", model, "-o", "out/small.onnx").code == 0
    assert listing(folder / "out") == ["small.onnx", "small.report.html", "small.report.json"]
    assert listing(folder) == ["model.onnx", "out"]


def test_every_report(cli, model, folder):
    """--report is repeatable, and the suffix picks the renderer; only these are written."""
    names = [f"r.{suffix}" for suffix in ("json", "html", "md", "sarif", "xml", "txt")]
    flags = [part for name in names for part in ("--report", name)]
    done = cli("convert", model, "--format", "float", *flags)
    assert done.code == 0
    assert listing(folder) == sorted([*names, "model.npu.onnx", "model.onnx"])
    text = {name: (folder / name).read_text("utf-8") for name in names}
    assert json.loads(text["r.json"])["schema_version"] == 1
    assert json.loads(text["r.sarif"])["version"] == "2.1.0"
    assert ET.fromstring(text["r.xml"]).tag == "testsuites"
    assert text["r.html"].lower().startswith("<!doctype html>")
    assert text["r.md"].startswith("#")
    assert text["r.txt"].startswith("CONVERTED: model.onnx on npu-int8")


@pytest.mark.parametrize("command", ["convert", "check"])
@pytest.mark.parametrize("name", ["r.pdf", "r", "r.github"])
def test_unknown_suffix(cli, model, folder, command, name):
    """A report of an unknown kind is refused before any work is done."""
    done = cli(command, model, "--report", name)
    assert (done.code, done.out) == (2, "")
    assert name in done.error
    assert ".sarif" in done.error
    assert listing(folder) == ["model.onnx"]


@pytest.mark.parametrize(
    ("form", "there", "gone"),
    [
        ("qoperator", {"QLinearConv"}, {"Conv", "BatchNormalization"}),
        ("qdq", {"Conv", "QuantizeLinear", "DequantizeLinear"}, {"QLinearConv"}),
        ("weights", {"Conv", "DequantizeLinear"}, {"QuantizeLinear", "QLinearConv"}),
        ("float", {"Conv"}, {"DequantizeLinear", "QLinearConv", "BatchNormalization"}),
    ],
)
def test_format(cli, model, form, there, gone):
    """--format decides about the operators; only some forms need samples."""
    done = cli("convert", model, "--format", form)
    assert done.code == 0
    assert there <= operators()
    assert not gone & operators()
    assert (SYNTHETIC in done.err) == (form in ("qoperator", "qdq"))


def test_io(cli, model):
    """--io int8 makes inputs and outputs int8, and says their scales."""
    assert cli("convert", model, "--io", "int8").code == 0
    proto = onnx.load("model.npu.onnx")
    kinds = {t.type.tensor_type.elem_type for t in (*proto.graph.input, *proto.graph.output)}
    assert onnx.TensorProto.INT8 in kinds
    assert any(entry.key.startswith("npuconv.scale.") for entry in proto.metadata_props)


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_method(cli, model, calibration, method):
    """--method is used, and the report says so; with samples nothing is called unproven."""
    done = cli("convert", model, "--calibration", calibration, "--method", method)
    assert done.code == 0
    assert report()["quantization"]["method"] == method
    assert report()["quantization"]["synthetic"] is False
    assert "unproven" not in done.err + done.out


def test_without(cli, model, calibration):
    """Steps of quantization are left out one by one, several with commas."""
    written = []
    for flags in ([], ["--without", "gptq-rounding"], ["--without", "gptq-rounding,range-margin"]):
        assert cli("convert", model, "--calibration", calibration, *flags, "-q").code == 0
        written.append(Path("model.npu.onnx").read_bytes())
    assert len(set(written)) == 3


def test_without_what_is_no_step(cli, model, folder):
    """The mistake is the user's, and the steps are named."""
    done = cli("convert", model, "--without", "gptq")
    assert (done.code, done.out) == (2, "")
    assert "--without" in done.err
    assert all(step in done.err for step in STEPS)
    assert listing(folder) == ["model.onnx"]


def test_select(cli, refused):
    """--select keeps only some findings; prefixes work, and it is repeatable by comma."""
    found = json.loads(cli("check", refused, "--output-format", "json").out)["findings"]
    assert len({f["code"] for f in found}) > 1
    kept = json.loads(cli("check", refused, "--output-format", "json", "--select", "SHP001").out)
    assert {f["code"] for f in kept["findings"]} == {"SHP001"}
    both = cli("check", refused, "--output-format", "json", "--select", "SHP001,OPS")
    assert "SHP001" in {f["code"] for f in json.loads(both.out)["findings"]}


def test_ignore(cli, refused):
    """--ignore drops findings, and what is not there does not fail."""
    assert cli("check", refused).code == 1
    done = cli("check", refused, "--output-format", "json", "--ignore", "SHP,QNT,DTY")
    assert not [f for f in json.loads(done.out)["findings"] if f["code"].startswith("SHP")]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--fail-on", "error"], 0),
        (["--fail-on", "never"], 0),
        (["--fail-on", "unknown"], 1),
        (["--unknown", "fail"], 1),
        (["--unknown", "pass", "--fail-on", "unknown"], 0),
        (["--unknown", "warn"], 0),
    ],
)
def test_fail_on(cli, model, folder, flags, code):
    """--fail-on and --unknown decide about the exit code, of convert as of check."""
    assert cli("check", model, *flags).code == code
    assert cli("convert", model, "--format", "float", *flags).code == code
    assert (folder / "model.npu.onnx").exists() == (code == 0)


def test_never_fails_but_writes_no_illegal_model(cli, refused, folder):
    """--fail-on never lets check pass; convert still has no legal model to write."""
    assert cli("check", refused, "--fail-on", "never").code == 0
    assert cli("convert", refused, "--fail-on", "never").code == 1
    assert not (folder / "refused.npu.onnx").exists()


def test_input_shape(cli, dynamic):
    """--input-shape fixes what the model leaves open."""
    assert cli("check", dynamic).code == 1
    for shape in ("x=1,3,16,16", "x=1x3x16x16"):
        done = cli("convert", dynamic, "--input-shape", shape)
        assert done.code == 0
    dims = onnx.load("dynamic.npu.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [1, 3, 16, 16]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("1,3,8,8", "is not NAME=1,3,224,224"),
        ("x=1,b", "is not NAME=1,3,224,224"),
        ("=1", "is not NAME=1,3,224,224"),
        ("y=1,3,8,8", "no such input"),
        ("x=1,3,8", "the model says N,3,H,W"),
        ("x=1,4,8,8", "the model says N,3,H,W"),
        ("x=1,3,0,8", "must be positive"),
    ],
)
@pytest.mark.parametrize("command", ["convert", "check", "inspect"])
def test_bad_input_shape(cli, dynamic, command, shape, said):
    """A shape that is none, or does not fit, is one line."""
    done = cli(command, dynamic, "--input-shape", shape)
    assert (done.code, done.out) == (2, "")
    assert said in done.error


@pytest.mark.parametrize("command", ["convert", "check"])
def test_what_a_form_cannot_hold(cli, folder, command):
    """The finding names the input, in both commands."""
    onnx.save(Net(x=("N", 3, "H", "W")).conv("x").model(), folder / "open.onnx")
    done = cli(command, "open.onnx", "--target", "ethos-u55")
    assert done.code == 1
    assert "OPS010 form-cannot-hold" in done.out
    assert "input 'x': extent 2 is H" in " ".join(done.out.split())


def test_config(cli, model, folder):
    """--config has the same keys; a flag wins over it, and it over the default."""
    (folder / "c.yaml").write_text("format: qdq\nmethod: minmax\nmax_samples: 3\n")
    assert cli("convert", model, "--config", "c.yaml", "--method", "entropy").code == 0
    assert report()["quantization"]["method"] == "entropy"
    assert report()["quantization"]["format"] == "qdq"
    assert report()["quantization"]["samples"] <= 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("format: qdq\nmetod: mse\n", "c.yaml:2:1: "),
        ("preprocess:\n  meen: [1]\n", "c.yaml:2:3: "),
        ("format: qdp\n", "c.yaml:1:1: format: 'qdp'"),
        ("format: [\n", "c.yaml:2:1: "),
    ],
)
def test_bad_config(cli, model, folder, text, said):
    """A fault of a configuration is named with file, line and column."""
    (folder / "c.yaml").write_text(text)
    done = cli("convert", model, "--config", "c.yaml")
    assert (done.code, done.out) == (2, "")
    assert said in done.error
    assert listing(folder) == ["c.yaml", "model.onnx"]


def test_bad_config_key_is_suggested(cli, model, folder):
    """A misspelt key comes with the one that was meant."""
    (folder / "c.yaml").write_text("metod: mse\n")
    done = cli("check", model, "--config", "c.yaml")
    assert done.code == 2
    assert "did you mean 'method'?" in done.error


def test_refused(cli, refused, folder):
    """A refused model: code 1, the reports are written, a model is not."""
    done = cli("convert", refused)
    assert done.code == 1
    assert listing(folder) == ["refused.npu.report.html", "refused.npu.report.json", "refused.onnx"]
    found = report("refused.npu.report.json")
    assert found["summary"]["verdict"] == "refused"
    assert found["summary"]["exit_code"] == 1
    assert [f["node"] for f in found["findings"] if f["code"] == "SHP001"] == ["volume"]
    assert done.out.startswith("REFUSED")
    assert "volume" in done.out
    assert "but no model" in done.err


@pytest.mark.parametrize(
    "flags",
    [
        ["-o", "model.onnx"],
        ["-o", "./model.onnx"],
        ["-o", "link.onnx"],
        ["-o", "a.json", "--report", "a.json"],
        ["--report", "link.json"],
    ],
    ids=" ".join,
)
def test_never_overwrites_the_model(cli, model, folder, flags):
    """The input stays as it is, whatever name it is called by."""
    (folder / "link.onnx").symlink_to(model)
    (folder / "link.json").symlink_to(model)
    before = (folder / model).read_bytes()
    done = cli("convert", model, *flags)
    assert (done.code, done.out) == (2, "")
    assert "would overwrite" in done.error
    assert (folder / model).read_bytes() == before
    assert listing(folder) == ["link.json", "link.onnx", "model.onnx"]


def test_overwrites_its_own_output(cli, model, folder):
    """A second run replaces what the first one wrote."""
    (folder / "model.npu.onnx").write_text("old")
    assert cli("convert", model).code == 0
    assert "QLinearConv" in operators()


def test_quiet(cli, model, refused):
    """-q prints nothing; the exit code and the files say it."""
    assert cli("convert", model, "-q") == type(cli("--version"))(0, "", "")
    done = cli("convert", refused, "-q")
    assert (done.code, done.out, done.err) == (1, "", "")
    done = cli("convert", "nothing.onnx", "-q")
    assert (done.code, done.out) == (2, "")
    assert "nothing.onnx" in done.error


def test_verbose(cli, model):
    """-v says more."""
    short, long = cli("convert", model), cli("convert", model, "-v")
    assert len(long.out) > len(short.out)


def test_timings(cli, model):
    """Only with --timings does the report say how long it took."""
    cli("convert", model)
    assert report()["timings"] is None
    cli("convert", model, "--timings")
    assert {t["stage"] for t in report()["timings"]} >= {"load", "quantize"}


def test_images(cli, folder):
    """A directory of images calibrates, preprocessed as the flags say."""
    from PIL import Image

    onnx.save(Net(x=("N", 3, 16, 16)).conv("x").op("Relu").model(), folder / "rgb.onnx")
    (folder / "photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    flags = ["--mean", "127.5,127.5,127.5", "--std", "127.5,127.5,127.5", "--resize", "16,16"]
    done = cli("convert", "rgb.onnx", "--calibration", "photos", *flags, "--color", "bgr")
    assert done.code == 0
    assert "photos" in report("rgb.npu.report.json")["quantization"]["source"]
    same = cli("convert", "rgb.onnx", "--calibration", "photos", "--preprocess", "signed",
               "--resize", "16,16", "--color", "bgr")  # fmt: skip
    shown = [one.out.partition("next: ")[0] for one in (same, done)]
    printed = [re.sub(r"\(photos, [^)]*\)", "", " ".join(one.split())) for one in shown]
    assert printed[0] == printed[1]


def test_absolute_paths_stay_out(cli, model, folder):
    """No report says where the files lie."""
    assert cli("convert", folder / model).code == 0
    for name in WRITTEN:
        assert str(folder).encode() not in (folder / name).read_bytes()


def test_refused_says_what_it_wrote(cli, refused, folder):
    """A model of an earlier run is not taken for the one that its report is about."""
    done = cli("convert", refused)
    assert (done.code, done.err) == (
        1,
        "npuconv: wrote refused.npu.report.json, refused.npu.report.html, but no model\n",
    )
    (folder / "refused.npu.onnx").write_bytes(b"old")
    done = cli("convert", refused)
    assert done.err.endswith("but no model; refused.npu.onnx is of an earlier run\n")
    assert (folder / "refused.npu.onnx").read_bytes() == b"old"
