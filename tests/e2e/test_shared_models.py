"""Real models, where somebody has them: no exception, legal results, accuracy kept.

The models are not part of the project; without them these tests are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import cli
from npuconv.rules import RULES
from npuconv.schemas.report import Report
from support.asserts import session
from support.real_models import MODELS, ROOT, each, feeds, name_of, needs_models, shapes_of

pytestmark = pytest.mark.e2e

SHARED = ROOT.parent / "shared"
DATA = SHARED / "data"
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def runs(path: Path, model: onnx.ModelProto, report: Report) -> None:
    """The written model has the interface of the original, and gives finite numbers for zeros."""
    runtime, original = (session(source, optimize=True) for source in (model, path))
    assert [i.name for i in runtime.get_inputs()] == [i.name for i in original.get_inputs()]
    assert [o.name for o in runtime.get_outputs()] == [o.name for o in original.get_outputs()]
    assumed = " ".join(report.summary.warnings)
    feeds = {}
    for wanted in runtime.get_inputs():
        dims = [d if isinstance(d, int) else 1 for d in wanted.shape]
        if said := re.search(rf"{re.escape(wanted.name)}=([\d,]+)", assumed):
            dims = [int(d) for d in said[1].split(",")]
        feeds[wanted.name] = np.zeros(dims, KINDS[wanted.type])
    assert all(np.isfinite(np.asarray(value)).all() for value in runtime.run(None, feeds))


@needs_models
@pytest.mark.parametrize("path", each(*MODELS), ids=name_of)
def test_check_and_convert_agree(path, conversions):
    """check and convert say the same, and what convert writes loads and runs."""
    before = npuconv.check(path, max_samples=2, input_shape=shapes_of(path))
    assert before.summary.exit_code in (0, 1)
    made = conversions.of(path)
    if before.summary.exit_code:
        assert made.path is None
        assert made.report.findings == before.findings
        return
    of_samples = {rule.code for rule in RULES if rule.stage in ("calibrated", "measured")}
    same = [f for f in made.report.findings if f.code not in of_samples]
    assert tuple(same) == before.findings
    onnx.checker.check_model(made.model)
    runs(path, made.model, made.report)


# Their float graph leaves out the roundings of the original.
QUANTIZED = ("kws_micro_emx_qdq", "kws_micro_emx_qop", "mnist_quant_connxr")

REFUSED = {
    "brainchop_gw_ae": "SHP001",  # three axes, none of which can go
}


@needs_models
@pytest.mark.parametrize("path", each(*MODELS), ids=name_of)
def test_float_is_the_original(path):
    """A legalized model is the same function, with legal convolutions only."""
    name = path.parent.name
    options = {"format": "float", "input_shape": shapes_of(path)}
    if name in REFUSED:
        with pytest.raises(npuconv.UnsupportedModelError) as caught:
            npuconv.convert(path, **options)
        errors = {f.code for f in caught.value.report.findings if f.severity == "error"}
        assert REFUSED[name] in errors
        return
    model = npuconv.convert(path, **options).model
    assert illegal(model) == []
    original = onnx.load(path)
    every = (session(path, optimize=True), session(model, optimize=True), session(path))
    for seed in range(2):
        given = feeds(original, seed, **shapes_of(path))
        for values in zip(*(one.run(None, given) for one in every), strict=True):
            assert close(*values[:2]) if name in QUANTIZED else near(*values)


def illegal(model: onnx.ModelProto) -> list[str]:
    """Float convolutions that the notes do not allow."""
    weights = {t.name: t.dims for t in model.graph.initializer}
    found = []
    for node in model.graph.node:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "ConvTranspose":
            found.append(node.name)
        if node.op_type == "Conv":
            dims, group = weights[node.input[1]], attrs.get("group", 1)
            pads = attrs.get("auto_pad", b"NOTSET") == b"NOTSET"
            if len(dims) != 4 or (group != 1 and dims[1] != 1) or not pads:
                found.append(node.name)
    return found


def close(old: np.ndarray, new: np.ndarray) -> bool:
    """At least 20 dB."""
    wide = old.astype(np.float64)
    return bool(((wide - new) ** 2).sum() <= (wide**2).sum() * 1e-2)


def near(old: np.ndarray, new: np.ndarray, again: np.ndarray) -> bool:
    """At least 90 dB, or as near as the original is to itself without optimizations.

    A sigmoid of nearly 0 has so few digits in float32 that it misses 90 dB against itself.
    """
    assert old.shape == new.shape
    if old.dtype.kind != "f":
        return bool((old == new).all())
    error, own = (float(((old.astype(np.float64) - x) ** 2).sum()) for x in (new, again))
    allowed = float((old.astype(np.float64) ** 2).sum()) * 1e-9
    return error <= (4 * own if own > allowed else allowed)


def top1(model: onnx.ModelProto | Path, x: np.ndarray, labels: np.ndarray) -> float:
    """Share of the samples whose largest output is the label, in percent, one at a time."""
    runtime = session(model, optimize=True)
    name = runtime.get_inputs()[0].name
    guessed = [runtime.run(None, {name: x[k : k + 1]})[0].argmax() for k in range(len(x))]
    return 100 * float(np.mean(np.asarray(guessed) == labels))


def test_check_fits_a_screen(capsys):
    """check prints at most 40 lines of 80 on a model with 400 rewrites and 200 notes."""
    path = SHARED / "models" / "ppocrv4_det" / "model.onnx"
    if not path.exists():
        pytest.skip("no real model beside the project")
    assert cli.execute(["check", str(path)]) == 0
    lines = "".join(capsys.readouterr()).splitlines()
    assert 10 < len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("name", "file", "points"),
    [("mnist8_cntk", "mnist3000.npz", 1.0), ("mlperf_tiny_kws_dscnn", "kws500.npz", 2.0)],
)
def test_accuracy(name, file, points):
    """Calibrated on 64 real samples, scored on all others."""
    path = SHARED / "models" / name / "model.onnx"
    if not path.exists() or not (DATA / file).exists():
        pytest.skip("no real model or data beside the project")
    with np.load(DATA / file) as data:
        x, labels = data["x"], data["y"]
    if x.dtype == np.uint8:
        x = (x[:, None] / 255).astype(np.float32)
    wanted = session(path).get_inputs()[0].name
    result = npuconv.convert(path, calibration={wanted: x[:64]})
    before, after = top1(path, x[64:], labels[64:]), top1(result.model, x[64:], labels[64:])
    assert before > 85
    assert before - after <= points
