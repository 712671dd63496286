"""The picture of the README, drawn from a report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from report.factory import EVIL, make_clean
from report.graphs import node, report_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool():
    """The script, loaded as a module."""
    spec = importlib.util.spec_from_file_location("picture", ROOT / "tools/report_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_node_is_drawn(tool):
    """The picture is XML with the names of all nodes, whatever they are."""
    nodes = [node(name, ["image"], f"t{at}") for at, name in enumerate(("conv_a", "b<c&d"))]
    text = tool.draw(report_of(nodes))
    shown = "".join(ET.fromstring(text).itertext())
    assert "conv_a" in shown
    assert "b<c&d" in shown
    assert text == tool.draw(report_of(nodes))


def test_hostile_names_stay_text(tool):
    """A name from a model never becomes an element."""
    nodes = [node(name, ["image"], f"t{at}") for at, name in enumerate(EVIL)]
    assert "<script" not in tool.draw(report_of(nodes))


def test_a_report_without_a_graph(tool, tmp_path):
    """Such a report has no picture; a wrong call says how to call it."""
    with pytest.raises(ValueError, match="no graph"):
        tool.draw(make_clean())
    assert tool.main([]) == 2
    path = tmp_path / "r.json"
    path.write_text(report_of([node("a", ["image"], "t")]).model_dump_json(by_alias=True))
    assert tool.main([str(path), str(tmp_path / "r.svg")]) == 0
    assert (tmp_path / "r.svg").read_text().startswith("<svg ")
