"""Training code of nodes, from metadata and names."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from npuconv.errors import ModelError, UsageError
from npuconv.model import load
from npuconv.model.source import Frame, Source, locate, read_source
from support.builders import Net
from support.training_code import CODE, LINE, TEXT, TORCH, annotate, exported, trace


def source_of(scopes=(), classes=(), text=""):
    """The source that the metadata of a node give."""
    node = onnx.NodeProto()
    annotate(node, scopes, classes, text)
    return read_source("node_conv2d", node.metadata_props)


def test_metadata_of_the_dynamo_exporter():
    """Module, class, and the innermost frame that is neither PyTorch's nor of another package."""
    source = load.load(exported()).sources["node_conv2d_0"]
    assert (source.module, source.class_name) == ("stem.0.conv", "Conv2d in Block")
    assert [frame.file for frame in source.frames] == ["train.py", "models/net.py", TORCH]
    assert source.frame == Frame("models/net.py", LINE, "forward", TEXT)


def test_trace_without_functions():
    """Function names and lines of code are optional."""
    text = '  File "a.py", line 3\nFile "b.py", line 4\n  return x\n  ~~~^\n'
    frames = source_of(text=text).frames
    assert [(f.file, f.line, f.function, f.text) for f in frames] == [
        ("a.py", 3, "", ""), ("b.py", 4, "", "return x"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "file",
    [
        TORCH, "site-packages/torch/nn/modules/conv.py", "<eval_with_key>.4",
        "C:\\py\\Lib\\site-packages\\timm\\net.py", "/usr/lib/python3.11/contextlib.py",
        "/home/me/pytorch/torch/nn/modules/linear.py", "/usr/lib/dist-packages/x.py",
    ],
)  # fmt: skip
def test_code_of_packages(file):
    """Frames of packages, and of code without a file, are not the user's."""
    assert source_of(text=trace(("net.py", 1, "a"), (file, 2, "b"))).frame.file == "net.py"
    assert source_of(text=trace((file, 2, "b"))).frame is None


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/encoder/layers.0/conv/Conv", "encoder.layers.0.conv"),
        ("/features/features.0/features.0.1/Relu_1", "features.0.1"),
        ("/Mul_8", ""),
        ("Conv_12", ""),
        ("model/block_1/conv2d/BiasAdd", "model.block_1.conv2d"),
        ("StatefulPartitionedCall/functional_1/conv2d/BiasAdd__11", "functional_1.conv2d"),
        ("model/activation/Relu;model/conv2d/BiasAdd;model/conv2d/Conv2D1__31", "model.conv2d"),
        ("model/dense/BiasAdd/ReadVariableOp/resource", "model.dense"),
        ("//", ""),
    ],
)
def test_scoped_names(name, module):
    """Names of the legacy exporter, TensorFlow and Keras have the module."""
    source = read_source(name, ())
    assert source == (Source(module) if module else None)


def test_sources_follow_copies_and_inner_graphs():
    """Nodes of subgraphs have sources, and a copy has those of its model."""
    branches = [Net(prefix=p).op("Relu", "x", name=f"/b/{p}/Relu") for p in "ab"]
    model = load.load(Net(x=(1, 2)).branch(*branches).model())
    assert {source.module for source in model.copy().sources.values()} == {"b.a", "b.b"}


def test_bounds():
    """Texts, and the number of frames, are bounded; the innermost frames stay."""
    frames = [(f"f{n}.py", n + 1, "x" * 400) for n in range(1000)]
    source = source_of(["m" * 10_000], ["c" * 10_000], trace(*frames))
    assert len(source.module) == len(source.frame.text) == 300
    assert len(source.frames) <= 32
    assert source.frame.file == "f999.py"
    huge = '  File "' * 100_000 + "'" * 100_000
    assert not source_of(text=huge).frames
    assert len(read_source("/a" * 100_000, ()).module) == 300


def test_text_that_is_not_text():
    """Metadata that are not UTF-8 are refused, as names are."""
    data = exported().SerializeToString()
    with pytest.raises(ModelError, match="not UTF-8"):
        load.load(onnx.ModelProto.FromString(data.replace(b"stem.0.conv", b"\xff" * 11)))


def located(folder, file, line=LINE, text=TEXT):
    """Path and line of a frame in a folder."""
    source = Source("m", "", (Frame(file, line, "forward", text),))
    (frame,) = locate({"conv": source}, str(folder))["conv"].frames
    return frame.path, frame.line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with training code, which is the current one."""
    (tmp_path / "src/models").mkdir(parents=True)
    (tmp_path / "src/models/net.py").write_text(CODE)
    (tmp_path / "secret.py").write_text(f"{TEXT}\n")
    (tmp_path / "src/notes.txt").write_text(f"{TEXT}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "file",
    [
        "models/net.py", "./models/net.py", "net/src/models/net.py", "C:\\net\\models\\net.py",
        "/home/someone/training/models/net.py",
    ],
)  # fmt: skip
def test_files_below_a_folder(folder, file):
    """The end of a path is looked up, so that it may come from another machine."""
    assert located("src", file) == ("src/models/net.py", LINE)
    assert located(folder / "src", file) == ("src/models/net.py", LINE)


@pytest.mark.parametrize(
    "file",
    [
        "../secret.py", "models/../../secret.py", "/etc/passwd", "notes.txt", "other.py", "a\0.py",
        "x" * 5000 + ".py", "models", "link.py", TORCH,
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_files_that_are_not_read(file):
    """No file outside of the folder, also by a link, and only files of Python."""
    Path("src/link.py").symlink_to("../secret.py")
    assert located("src", file) == ("", LINE)


def test_lines_that_have_moved(folder):
    """The present line counts: the nearest with the same code; without one there is no place."""
    assert located("src", "models/net.py", 400) == ("src/models/net.py", LINE)
    assert located("src", "models/net.py", text="return other(x)") == ("", LINE)
    (folder / "src/models/net.py").write_text(f"{TEXT}\n\n\n\n    {TEXT}\n{CODE}")
    assert located("src", "models/net.py", 4)[1] == 5
    assert located("src", "models/net.py", 2)[1] == 1
    assert located("src", "models/net.py", 5)[1] == located("src", "models/net.py", 6)[1] == 5
    (folder / "src/models/net.py").write_text(f"\f\u2028\x1c\r\n\r{TEXT}\n", newline="")
    assert located("src", "models/net.py", 9)[1] == 3


def test_folder_that_is_missing():
    """The option is named."""
    with pytest.raises(UsageError, match="source_root nowhere: no such folder"):
        locate({}, "nowhere")
