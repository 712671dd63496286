"""Scores, costs, table and picture of the accuracy benchmark."""

import math
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from recipes.feeds import open_session, read_feeds, settle
from recipes.measure import measure
from recipes.picture import plot
from recipes.scoring import Reference, Sums, score_files
from recipes.table import Row, answers, heading, line, seconds, summary


def _scale(path: Path, factor: float) -> Path:
    """y = factor * x, of shape [N, 4]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    constant = helper.make_tensor("f", TensorProto.FLOAT, [], [factor])
    node = helper.make_node("Mul", ["x", "f"], ["y"])
    graph = helper.make_graph([node], "scale", [x], [y], [constant])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32))
    return path


def test_sums_are_decibels() -> None:
    sums = Sums()
    for value in (3.0, 4.0):
        sums.add(np.full(2, value), np.full(2, value * 1.1))
    assert sums.sqnr == pytest.approx(20)
    assert sums.cosine == pytest.approx(1)
    sums.add(np.ones(1), np.array([math.nan]))
    assert sums.sqnr == -math.inf


def test_sums_of_the_same_are_exact() -> None:
    sums = Sums()
    sums.add(np.ones(2), np.ones(2))
    assert sums.sqnr == math.inf


def test_scores_compare_answers(tmp_path: Path, samples: Path) -> None:
    model = _scale(tmp_path / "float.onnx", 1)
    reference = Reference(model, samples, samples, 1)
    close, opposite = (reference.score(_scale(tmp_path / "q.onnx", f)) for f in (0.9, -1))
    assert close.whole.sqnr == pytest.approx(20, abs=1e-3)
    assert close.outputs["y"].sqnr == close.whole.sqnr
    assert (close.agreement, close.answers) == (1, 10)
    assert close.many.sqnr == pytest.approx(20, abs=1e-3)
    assert close.many.signal == pytest.approx(2 * close.whole.signal)
    assert opposite.agreement == 0


@pytest.mark.e2e
def test_a_file_that_fails_leaves_the_others(tmp_path: Path, samples: Path) -> None:
    model = _scale(tmp_path / "float.onnx", 1)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"junk")
    failed, exact = score_files(model, samples, None, None, [broken, model])
    assert "broken.onnx" in failed.error
    assert exact.whole.sqnr == math.inf
    assert exact.agreement is None


def test_rows_get_a_batch_axis_and_complete_inputs_do_not(tmp_path: Path) -> None:
    session = open_session(_scale(tmp_path / "float.onnx", 1))
    for shape, first in (((5, 4), (1, 4)), ((5, 1, 4), (1, 4))):
        np.savez(tmp_path / "x.npz", x=np.zeros(shape, np.float32))
        feeds = list(read_feeds(session, tmp_path / "x.npz"))
        assert len(feeds) == 5
        assert feeds[0]["x"].shape == first


def test_settled_models_have_fixed_shapes(tmp_path: Path) -> None:
    proto = settle(_scale(tmp_path / "float.onnx", 1), {"x": np.zeros((1, 4), np.float32)})
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 4]


@pytest.mark.e2e
def test_memory_is_the_childs_and_failures_are_said() -> None:
    mine = bytearray(300 * 2**20)
    good = measure([sys.executable, "-c", "pass"])
    assert good.code == 0
    assert good.mib < 100 < len(mine)
    bad = measure([sys.executable, "-c", "raise SystemExit('no luck')"])
    assert (bad.code, bad.error) == (1, "no luck")
    late = measure([sys.executable, "-c", "import time; time.sleep(30)"], seconds=1)
    assert late.error == "ended after 1 s"


ROWS = [
    Row("a", "ours", sqnr=31.24, agreement=0.5, wall=2, memory=1.5),
    Row("a", "peer", error="no luck"),
]


def test_a_row_has_a_cell_for_each_column() -> None:
    assert line(ROWS) == "| a | 31.2 | - | 50.0 % | 2.00 | 1.50 |"
    assert heading(["ours", "peer"]).splitlines()[0].count("|") == line(ROWS).count("|")


def test_the_summary_compares_with_the_first() -> None:
    more = [
        Row("b", "ours", sqnr=30, wall=4, memory=2),
        Row("b", "peer", sqnr=29, wall=8, memory=9),
    ]
    text = summary([*ROWS, *more])
    assert "| ours | 3.00 | 1.75 | 0.00 | 0 | 0 | 0 |" in text
    assert "| peer | 8.00 | 9.00 | -1.00 | 0 | 1 | 1 |" in text
    assert "- a, peer: no luck" in text


def test_a_picture_has_a_dot_for_each_figure(tmp_path: Path) -> None:
    written = plot([*ROWS, Row("b", "ours", sqnr=math.inf, wall=3)], tmp_path / "x.svg")
    circles = ElementTree.parse(written).iter("{http://www.w3.org/2000/svg}circle")
    titles = [title.text for circle in circles for title in circle]
    assert titles == ["a, ours: 31.2 dB, 2.0x"]


def test_answers_on_more_samples() -> None:
    """Only of models that classify; what failed is a dash."""
    rows = [
        Row("a", "ours", 20.0, agreement=0.991, many=21.04),
        Row("a", "other", error="no"),
        Row("b", "ours", 30.0),
        Row("b", "other", 30.0),
    ]
    assert answers(rows).splitlines()[-1] == "| a | 21.0 dB, 99.1 % | - |"
    assert answers(rows[2:]) == ""


def test_seconds() -> None:
    """Seconds computed have a line for each model."""
    rows = [Row("a", "ours", 20.0, cpu=3.04), Row("a", "peer", error="x")]
    assert seconds(rows).splitlines()[-1] == "| a | 3.0 | - |"
