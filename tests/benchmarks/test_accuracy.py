"""Feeds, costs and tables of the accuracy benchmark."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from accuracy import Row, answers, heading, line, seconds, summary
from harness.feeds import open_session, read_feeds, settle
from harness.process import measure
from onnx import TensorProto, helper


def _scale(path: Path, factor: float) -> Path:
    """y = factor * x, of shape [N, 4]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    constant = helper.make_tensor("f", TensorProto.FLOAT, [], [factor])
    node = helper.make_node("Mul", ["x", "f"], ["y"])
    graph = helper.make_graph([node], "scale", [x], [y], [constant])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


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
