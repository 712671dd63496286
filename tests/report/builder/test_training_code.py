"""Training code in the report: of nodes, findings and layers."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.report import render
from support.builders import Net, images
from support.training_code import CODE, LINE, TEXT, exported

REFUSED = {"assume": ["dilation_h=1"], "fit": False}  # nothing rewrites a dilation then


def check(**options):
    """A report with an error for each of four convolutions."""
    model = exported(count=4, dilations=[2, 2], pads=[2, 2, 2, 2])
    return npuconv.check(model, **REFUSED, **options)


def test_nodes_and_findings():
    """Each has module, class and line."""
    report = check()
    assert [node.source.module for node in report.nodes] == [f"stem.{n}.conv" for n in range(4)]
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert len(errors) == 4
    for source in [node.source for node in report.nodes] + [f.node_source for f in errors]:
        assert source.class_name == "Conv2d in Block"
        assert (source.frame.file, source.frame.line, source.frame.text) == (
            "models/net.py", LINE, TEXT,
        )  # fmt: skip
    assert {len(node.source.frames) for node in report.nodes} == {3}
    assert {finding.node_source.frames for finding in errors} == {()}


def test_rewritten_nodes():
    """A node that was merged into another has its own source in its findings."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3), name="/stem/conv/Conv")
    report = npuconv.check(net.batchnorm(4, name="/stem/bn/BatchNormalization").model())
    assert {n.name: n.source.module for n in report.nodes} == {"/stem/conv/Conv": "stem.conv"}


def test_files_of_a_folder(tmp_path, monkeypatch):
    """With ``source_root``, the path of the file there and its present line are reported."""
    (tmp_path / "src/models").mkdir(parents=True)
    (tmp_path / "src/models/net.py").write_text(f"# licence\n{CODE}")
    monkeypatch.chdir(tmp_path)
    frame = check(source_root="src").nodes[0].source.frame
    assert (frame.path, frame.line) == ("src/models/net.py", LINE + 1)


@pytest.mark.parametrize("form", ["text", "markdown", "html", "junit", "github"])
def test_people_read_it(form):
    """Module and line stand beside the node, and many nodes are counted by module."""
    text = " ".join(render(check(), form).split())
    assert "stem.0.conv, models/net.py:11" in text
    assert form == "junit" or "4 nodes of stem" in text


def test_names_that_say_the_same():
    """The module is not repeated where only the name of the node has it."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3), name="/stem/conv/Conv")
    report = npuconv.check(net.model())
    assert report.nodes[0].source.module == "stem.conv"
    assert "stem.conv" not in render(report, "text")


def test_layers():
    """Layers of a conversion, and of a verification, have modules."""
    model, data = exported(count=4), {"x": images(8, 4, 16, 16)}
    result = npuconv.convert(model, calibration=data)
    names = [f"stem.{n}.conv" for n in range(4)]
    assert [layer.module for layer in result.report.quantization.layers] == names
    verified = npuconv.verify(model, result.model, data)
    assert [layer.module for layer in verified.layers] == names
