"""``npuconv verify``: what is printed, what is written, the exit code."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.emit import keys
from npuconv.evaluate.matching import LayerPair, record
from support.builders import Net
from support.int8_pairs import explicit_model, float_model, integer_model, samples
from support.vendor_tools import REFUSES, environment


@pytest.fixture
def pair(folder):
    """Both models and samples for them, as arguments."""
    onnx.save(float_model(), folder / "f.onnx")
    onnx.save(integer_model(), folder / "q.onnx")
    np.savez(folder / "x.npz", x=samples(6))
    return ["verify", "f.onnx", "q.onnx", "--data", "x.npz"]


def lines(text: str) -> list[str]:
    """Return the lines of a text without padding of columns."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_text(cli, pair):
    """Models, samples, the whole, outputs, layers."""
    done = cli(*pair)
    assert (done.code, done.err) == (0, "")
    found = lines(done.out)
    assert found[0].startswith("float f.onnx (sha256 ")
    assert found[1].startswith("int8 q.onnx (sha256 ")
    assert found[2] == "on 6 samples: x.npz"
    assert found[3].startswith("SQNR ")
    assert "output SQNR cosine max error top-1" in found
    assert "layer SQNR cosine max error" in found
    assert any(line.startswith("conv ") for line in found)


@pytest.mark.parametrize("saturates", [True, False])
def test_a_processor_that_saturates(cli, pair, monkeypatch, saturates):
    """A note on stderr names conversions with int8 weights; the report stays the same."""
    monkeypatch.setattr(executor, "saturates", lambda: saturates)
    assert cli(*pair).err == "", "int8 by int8 is exact"
    onnx.save(explicit_model(), "q.onnx")
    done = cli(*pair)
    assert ("q.onnx: on this processor" in done.err) == saturates
    assert ("session.x64quantprecision" in done.err) == saturates
    assert "processor" not in done.out
    assert cli(*pair, "-q").err == ""


def test_narrow(cli, pair, monkeypatch):
    """A long name loses its middle, the numbers stay whole."""
    monkeypatch.setenv("COLUMNS", "80")
    model = integer_model()
    model.graph.node[1].name = "features/" * 20
    onnx.save(model, "q.onnx")
    done = cli(*pair)
    assert max(map(len, done.out.splitlines())) <= 80
    (line,) = [line.split() for line in done.out.splitlines() if "features/" in line]
    assert line[0].startswith("features/")
    assert line[0].endswith("/features/")
    assert "..." in line[0]
    assert line[2] == "dB"


def test_titles_are_as_wide_as_they_are(cli, pair):
    """A narrow table does not squeeze its title."""
    lines_shown = cli(*pair).out.splitlines()
    (title,) = [line for line in lines_shown if line.startswith("layers, worst first")]
    assert title.startswith("layers, worst first, errors of earlier ones included (")
    assert [line for line in lines_shown if line != line.rstrip()] == []


def test_many_outputs(cli, folder):
    """The title says how many of them are shown."""
    net = Net(x=(1, 3, 6, 6))
    for number in range(12):
        net.op("Relu", "x", to=f"y{number}")
    net.output(*(f"y{number}" for number in range(12)))
    onnx.save(net.model(), folder / "m.onnx")
    short, full = cli("verify", "m.onnx", "m.onnx").out, cli("verify", "m.onnx", "m.onnx", "-v").out
    assert "\noutputs, worst first (10 of 12)\n" in short
    assert "\noutputs\n" in full


def test_json(cli, pair, folder):
    """JSON goes to stdout and into a file, with the same text."""
    done = cli(*pair, "--output-format", "json", "--report", "r.json")
    found = npuconv.VerifyReport.model_validate_json(done.out)
    assert found.samples == 6
    assert (folder / "r.json").read_text() == done.out
    schema = json.loads(cli("schema", "report").out)["$defs"]["VerifyReport"]
    assert set(json.loads(done.out)) == set(schema["properties"])


def test_text_report(cli, pair, folder):
    """No blanks at the ends of lines; nothing on stdout if quiet."""
    done = cli(*pair, "-q", "--report", "r.txt")
    assert (done.code, done.out, done.err) == (0, "", "")
    text = (folder / "r.txt").read_text()
    assert "SQNR" in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_page(cli, pair, folder):
    """The suffix picks the page."""
    assert cli(*pair, "-q", "--report", "r.html").code == 0
    assert "<title>SQNR " in (folder / "r.html").read_text("utf-8")


def test_minimum(cli, pair):
    """Exit code 1 where it is missed, and a line that says so."""
    assert cli(*pair, "--min-sqnr", "10").code == 0
    done = cli(*pair, "--min-sqnr", "99.5")
    assert done.code == 1
    assert lines(done.out)[-1] == "missed: less than 99.5 dB"


def test_labels(cli, pair, folder):
    """Labels give the share of right answers of each model."""
    session = npuconv.executor.Session(float_model())
    right = [int(session.run({"x": x[None]})["y"].argmax()) for x in samples(6)]
    np.save(folder / "l.npy", np.asarray(right))
    done = cli(*pair, "--labels", "l.npy")
    (line,) = [line for line in lines(done.out) if line.startswith("right on")]
    assert line.startswith("right on 6 labelled samples: float 100.0 %, int8 ")


def test_worst_first(cli, pair):
    """Ten layers, with -v all; those that are not compared are counted, with -v named."""
    model = integer_model()
    layers = [LayerPair(f"n{k:02}", "r", "r/int8", 0.04 * (1 + k / 20)) for k in range(12)]
    layers.append(LayerPair("gone", "nowhere", "r/int8", 1.0))
    model.metadata_props.add(key=keys.LAYERS, value=record(layers))
    onnx.save(model, "q.onnx")
    short, full = cli(*pair).out, cli(*pair, "-v").out
    shown = [line.split()[0] for line in short.splitlines() if line.startswith("  n")][:10]
    assert shown == [f"n{k:02}" for k in range(11, 1, -1)]
    assert "n00" in full
    assert "not compared: 1 layer, whose tensors" in " ".join(short.split())
    assert "not compared: 1 layer (gone), whose tensors" in " ".join(full.split())


def test_exact(cli, pair):
    """A model beside itself has no number of decibels."""
    done = cli("verify", "f.onnx", "f.onnx", *pair[3:])
    assert "SQNR exact, cosine 1.00000, largest error 0" in lines(done.out)


def test_made_up_samples(cli, pair):
    """Are warned of."""
    assert "warning: the samples are made up" in cli(*pair[:3]).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "f.onnx"], "Missing argument 'INT8.onnx'"),
        (["verify", "f.onnx", "no.onnx"], "no.onnx: no such file"),
        (["verify", "f.onnx", "q.onnx", "--data", "no.npz"], "no.npz: no such file"),
        (
            ["verify", "f.onnx", "q.onnx", "--report", "r.pdf"],
            "r.pdf: no report format of verify",
        ),
        (["verify", "f.onnx", "q.onnx", "--report", "no/r.json"], "the folder 'no' does not exist"),
        (["verify", "f.onnx", "q.onnx", "--labels", "l.tsv"], "names image files"),
        (["verify", "f.onnx", "q.onnx", "--samples", "0"], "--samples"),
        (["verify", "f.onnx", "q.onnx", "--vendor-python", "x"], "--vendor-python needs --vendor"),
        (["verify", "f.onnx", "other.onnx"], "its outputs are z, those of f.onnx are y"),
    ],
)
def test_mistakes(cli, pair, folder, arguments, message):
    """One line, exit code 2, nothing written."""
    del pair
    onnx.save(Net(x=(1, 3, 6, 6)).op("Relu", to="z").model(), folder / "other.onnx")
    (folder / "l.tsv").write_text("a.png\t1\n")
    before = sorted(folder.iterdir())
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.error
    assert sorted(folder.iterdir()) == before


def test_preprocessing_is_that_of_convert(cli, pair, folder):
    """The same flags, the same configuration file."""
    from PIL import Image

    (folder / "p").mkdir()
    rng = np.random.default_rng(0)
    for k in range(2):
        pixels = rng.integers(0, 256, (9, 9, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"p/{k}.png")
    flags = ["--preprocess", "signed", "--resize", "6,6"]
    done = cli(*pair[:3], "--calibration", "p", *flags, "--output-format", "json")
    assert json.loads(done.out)["samples"] == 2
    (folder / "c.yaml").write_text("preprocess: {preset: signed, resize: [6, 6]}\ncalibration: p\n")
    again = cli(*pair[:3], "--config", "c.yaml", "--output-format", "json")
    assert again.out == done.out


def test_parts_of_an_output(cli, folder):
    """Parts follow their output, marked as parts."""
    net = Net(x=(1, 1, 4, 4)).op("Exp", "x", to="boxes").op("Sigmoid", "x", to="scores")
    onnx.save(net.op("Concat", "boxes", "scores", axis=1, to="y").model(), folder / "m.onnx")
    done = cli("verify", "m.onnx", "m.onnx")
    rows = [line for line in lines(done.out) if line.startswith(("y ", "part "))]
    assert [row.split(" exact")[0] for row in rows] == ["y", "part boxes", "part scores"]


@pytest.mark.e2e
def test_a_vendor_accepts(cli, folder):
    """The verdict and the outputs of the simulator, in every form."""
    net = Net(x=(1, 4))
    scale, zero = net.constant(np.float32(0.5)), net.constant(np.int8(0))
    net.op("QuantizeLinear", "x", scale, zero).op("DequantizeLinear", net.last, scale, zero, to="y")
    onnx.save(net.output("y").model(), "m.onnx")
    np.savez("x.npz", x=np.arange(24, dtype=np.float32).reshape(6, 4))
    body = (
        "    layers = [['a', 'Relu', 'CPU', '']]\n"
        "    outputs = [[f['x'] + np.float32(2 * (f['x'] > 17))] for f in feeds]\n"
        "    return {'accepted': True, 'default_device': 'NPU', 'layers': layers}, outputs\n"
    )
    flags = ("--vendor", "qnn", "--vendor-python", environment(folder, body))
    pair = ("verify", "m.onnx", "m.onnx", "--data", "x.npz")
    done = cli(*pair, *flags, "--report", "r.json")
    assert done.code == 0
    found = lines(done.out)
    start = found.index("Qualcomm QNN, emulated Hexagon HTP: qnn 1.2.3")
    assert found[start + 1 :] == [
        "verdict accepted",
        "placement 1 node on CPU, 2 nodes on NPU",
        "SQNR 22.6 dB, cosine 0.99897, largest error 2",
        "outputs of the simulator, and steps from the int8 model",
        "output SQNR equal 1 step 2 3 more largest",
        "y 22.6 dB 75.0 % 0.0 % 0.0 % 0.0 % 25.0 % 4",
        "not on the NPU",
        "a (Relu): on CPU",
    ]
    report = npuconv.VerifyReport.model_validate_json((folder / "r.json").read_text())
    assert (report.passed, report.vendor.verdict) == (True, "accepted")
    assert report.vendor.outputs[0].differences == (18, 0, 0, 0, 6)
    assert cli(*pair, *flags, "-q", "--report", "r.html").code == 0
    assert 'id="vendor"' in (folder / "r.html").read_text("utf-8")


@pytest.mark.e2e
def test_a_vendor_refuses(cli, pair, folder):
    """Exit code 1; the missed goal is another line; the page has the reason."""
    flags = ("--vendor", "qnn:v75", "--vendor-python", environment(folder, REFUSES))
    done = cli(*pair, *flags, "--report", "r.html")
    assert done.code == 1
    assert "verdict refused: not every node compiles" in lines(done.out)
    assert "qnn 1.2.3 for v75" in done.out
    assert "conv (Conv): kernel is too large" in done.out
    assert "missed" not in done.out
    page = (folder / "r.html").read_text("utf-8")
    assert "REFUSED" in page
    assert "kernel is too large" in page
    assert "missed: less than 99 dB" in cli(*pair, *flags, "--min-sqnr", "99").out


def test_a_vendor_that_cannot_be_asked(cli, pair, folder):
    """Before any work, with a fix."""
    for name, text in (
        ("qnn", "--vendor qnn: Qualcomm QNN, emulated Hexagon HTP is not installed"),
        (
            "vela",
            "--vendor vela reads .tflite files, not q.onnx (npuconv convert --format tflite",
        ),
        ("hexagon", "unknown tool 'hexagon' (known: qnn, rknn, vela, litert, openvino)"),
    ):
        python = sys.executable if name == "vela" else folder / "absent"
        done = cli(*pair, "--vendor", name, "--vendor-python", python)
        assert done.code == 2
        assert text in done.error
