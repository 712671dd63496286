"""Input that is wrong or strange: one line and code 2, or findings; never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from support.builders import Net, digits, images
from support.raw_models import X, as_program, build, constant, conv, tensor, weights

# Files that are no valid model: name -> what to write, what is said of it.


def cycle() -> bytes:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return build(nodes, [tensor("x", X)], [tensor("b", X)]).SerializeToString()


def missing_tensor() -> bytes:
    nodes = [helper.make_node("Add", ["x", "gone"], ["y"], name="sum")]
    return build(nodes, [tensor("x", X)], [tensor("y", X)]).SerializeToString()


def missing_output() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return build(nodes, [tensor("x", X)], [tensor("z", X)]).SerializeToString()


def no_nodes() -> bytes:
    return build([], [tensor("x", X)], [tensor("x", X)]).SerializeToString()


def short_weights() -> bytes:
    proto = conv()
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    return proto.SerializeToString()


def from_the_future() -> bytes:
    proto = conv()
    proto.opset_import[0].version = 9999
    return proto.SerializeToString()


def external_data() -> bytes:
    proto = conv()
    onnx.external_data_helper.set_external_data(proto.graph.initializer[0], "gone.bin")
    proto.graph.initializer[0].ClearField("raw_data")
    return proto.SerializeToString()


def twice() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    return build(nodes, [tensor("x", X)], [tensor("y", X)]).SerializeToString()


def without_shape(**attrs) -> bytes:
    return conv(y=None, **attrs).SerializeToString()


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "text": (lambda: b"hello, this is a letter\n" * 9, "a text file"),
    "truncated": (lambda: digits().SerializeToString()[:-700], "not an ONNX model"),
    "garbage": (lambda: bytes(range(256)) * 4, "not an ONNX model"),
    "picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(99), "not an ONNX model"),
    "no-graph": (lambda: onnx.ModelProto(ir_version=8).SerializeToString(), "it has no graph"),
    "no-nodes": (no_nodes, "has no nodes"),
    "cycle": (cycle, "a cycle"),
    "missing-tensor": (missing_tensor, "'gone', which no node makes"),
    "missing-output": (missing_output, "output 'z' is made by no node"),
    "twice": (twice, "already made by another node"),
    "short-weights": (short_weights, "but holds 428 bytes"),
    "opset": (from_the_future, "opset 9999 is newer"),
    "external-data": (external_data, "external data"),
    "attribute-of-wrong-type": (lambda: without_shape(strides=1), "Mismatched attribute type"),
    "unknown-attribute": (lambda: without_shape(stride=[1, 1]), "Unrecognized attribute: stride"),
}


@pytest.mark.parametrize("command", ["convert", "check", "inspect"])
@pytest.mark.parametrize("kind", FILES)
def test_no_model(cli, folder, command, kind):
    """A file that is no valid model: code 2, one line with file and cause, nothing written."""
    make, cause = FILES[kind]
    (folder / "input.onnx").write_bytes(make())
    refuses(cli, folder, [command, "input.onnx"], "input.onnx", cause)


@pytest.mark.parametrize("command", ["convert", "check", "inspect"])
@pytest.mark.parametrize(
    ("name", "cause"), [("gone.onnx", "no such file"), ("a/gone", "no such file")]
)
def test_no_file(cli, folder, command, name, cause):
    """A missing file is reported."""
    refuses(cli, folder, [command, name], name, cause)


@pytest.mark.parametrize("command", ["convert", "inspect"])
@pytest.mark.parametrize("name", ["input.onnx", ".", "..", "input.onnx/.."])
def test_directory(cli, folder, command, name):
    """A directory is not a model."""
    (folder / "input.onnx").mkdir()
    refuses(cli, folder, [command, name], name, "is a directory")


def refuses(cli, folder, arguments, file, cause):
    """Check for code 2, one line of error with file and cause, and no new file."""
    before = sorted(folder.rglob("*"))
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert file in done.error
    assert cause in done.error
    others = [line for line in done.err.splitlines() if line != done.error]
    assert all(line.startswith("npuconv: no calibration data") for line in others)
    assert sorted(folder.rglob("*")) == before


# Samples that do not fit.


def archive(**arrays) -> Callable:
    return lambda path: np.savez(path, **arrays)


def write(data: bytes) -> Callable:
    return lambda path: path.write_bytes(data)


SAMPLES: dict[str, tuple[str, Callable, str]] = {
    "wrong-name": ("s.npz", archive(image=images(4, 1, 9, 9)), "no array named 'x'; found 'image'"),
    "wrong-shape": ("s.npz", archive(x=images(4, 3, 8, 8)), "has shape [4, 3, 8, 8]"),
    "wrong-rank": ("s.npz", archive(x=images(64)), "has shape [64]"),
    "wrong-type": ("s.npz", archive(x=np.zeros((4, 1, 8, 8), np.uint8)), "is uint8"),
    "none": ("s.npz", archive(x=images(0, 1, 8, 8)), "there are no samples"),
    "not-an-archive": ("s.npz", write(b"hello"), "not a valid .npz or .npy file"),
    "truncated": ("s.npz", write(b"PK\x03\x04" + bytes(9)), "damaged"),
    "empty": ("s.npz", write(b""), "empty"),
    "npy-of-wrong-shape": ("s.npy", lambda path: np.save(path, images(4, 8)), "has shape [4, 8]"),
    "no-image": ("s.png", write(b"hello"), "not an image"),
    "no-jpeg": ("s.jpg", write(b"\xff\xd8\xff\xe0" + bytes(20)), "s.jpg"),
    "unknown-kind": ("s.pdf", write(b"hello"), "not a source of samples"),
    "empty-list": ("s.txt", write(b"# nothing\n"), "the list is empty"),
    "list-of-nothing": ("s.txt", write(b"gone.png\n"), "no such file: gone.png"),
    "empty-directory": ("samples", lambda path: path.mkdir(), "no .npz"),
    "nothing": ("gone.npz", lambda _path: None, "no such file or directory"),
}


GRAY = ("--color", "gray", "--preprocess", "unit")


@pytest.mark.parametrize("kind", SAMPLES)
def test_bad_samples(cli, model, folder, kind):
    """Samples that cannot be used: code 2, one line with file and cause, nothing written."""
    name, make, cause = SAMPLES[kind]
    make(folder / name)
    refuses(cli, folder, ["convert", model, "--calibration", name, *GRAY], name, cause)


def test_image_in_a_directory(cli, model, folder):
    """The invalid image of a folder is named."""
    from PIL import Image

    (folder / "photos").mkdir()
    Image.new("L", (8, 8)).save(folder / "photos" / "a.png")
    (folder / "photos" / "b.png").write_bytes(b"hello")
    refuses(
        cli, folder, ["convert", model, "--calibration", "photos", *GRAY], "b.png", "not an image"
    )


# Destinations that cannot be written.


@pytest.mark.parametrize(
    ("flags", "file", "cause"),
    [
        (["-o", "gone/out.onnx"], "gone/out.onnx", "does not exist"),
        (["--report", "gone/r.json"], "gone/r.json", "does not exist"),
        (["-o", "model.onnx/out.onnx"], "model.onnx/out.onnx", "does not exist"),
        (["-o", "."], ".", "is a directory"),
        (["-o", "out.txt"], "out.txt", "a model is written as .onnx, or as .tflite with"),
        (["-o", "out"], "out", "not a name of a model"),
        (["-o", "out.tflite"], "out.tflite", "add --format tflite, or name the file .onnx"),
    ],
    ids=str,
)
def test_bad_destination(cli, model, folder, flags, file, cause):
    """A destination that cannot be written is refused before any work."""
    done = cli("convert", model, *flags)
    refuses(cli, folder, ["convert", model, *flags], file, cause)
    assert done.err.splitlines() == done.errors  # nothing but the error


def test_folder_that_takes_no_files(cli, model, folder):
    """A folder that takes no files is refused."""
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.access(closed, os.W_OK):  # we are root
        if not os.path.isdir("/proc/self"):  # noqa: PTH112
            pytest.skip("every folder is writable here")
        done = cli("convert", model, "-o", "/proc/self/out.onnx")
        assert done.code == 2
        assert "/proc/self/out.onnx" in done.error
        return
    refuses(cli, folder, ["convert", model, "-o", "closed/out.onnx"], "closed/out.onnx", "writable")


# Models whose shapes contradict: findings, or a line that says where; never a bug of ours.


def matmul(x, w):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="m")]
    return build(
        nodes,
        [tensor("x", x)],
        [tensor("y", (None, None))],
        [constant("w", np.ones(w, np.float32))],
    )


CONTRADICTIONS = {
    "matmul": lambda: matmul((1, 8), (7, 4)),
    "matmul-dynamic": lambda: matmul(("N", 8), (7, 4)),
    "channels": lambda: conv(weights(4, 5, 3, 3)),
    "rank": lambda: conv(weights(4, 3, 3)),
    "input-rank": lambda: conv(x=(1, 3, 8)),
    "kernel-shape": lambda: conv(kernel_shape=[5, 5]),
    "kernel-too-large": lambda: conv(weights(4, 3, 11, 11)),
    "zero-stride": lambda: conv(strides=[0, 1]),
    "one-stride": lambda: conv(strides=[1]),
    "two-pads": lambda: conv(pads=[1, 1]),
    "negative-pads": lambda: conv(pads=[-1, 0, 0, 0]),
    "no-group": lambda: conv(group=0),
    "group": lambda: conv(group=2),
    "auto-pad": lambda: conv(auto_pad="SAME"),
    "auto-pad-with-pads": lambda: conv(auto_pad="SAME_UPPER", pads=[1, 1, 1, 1]),
    "no-output-channels": lambda: conv(weights(0, 3, 3, 3)),
    "no-input-channels": lambda: conv(weights(4, 0, 3, 3)),
    "no-kernel": lambda: conv(weights(4, 3, 0, 3)),
    "no-weights": lambda: conv(constant("w", np.zeros(0, np.float32))),
    "bias": lambda: biased(5),
    "add": lambda: Net(x=X).conv("x").op("Add", "t0", "x").model(),
    "concat": lambda: (
        Net(x=X, z=(1, 3, 7, 7)).op("Concat", "x", "z", axis=1).conv("", (4, 6, 3, 3)).model()
    ),
    "pads-too-short": lambda: Net(x=X).pad([1, 1]).conv().model(),
    "two-open-extents": lambda: Net(x=X).conv("x").reshape([-1, -1]).model(),
}


def biased(count: int) -> onnx.ModelProto:
    net = Net(x=X)
    return net.op("Conv", "x", net.random(4, 3, 3, 3), net.random(count)).model()


FORMATS = ("qoperator", "qdq", "weights", "float")


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_contradiction(cli, folder, kind):
    """check and every form of convert agree: refused by a finding, or as no valid model."""
    onnx.save(CONTRADICTIONS[kind](), folder / "input.onnx")
    checked = cli("check", "input.onnx")
    assert checked.code in (1, 2)
    assert "Traceback" not in checked.err
    if checked.code == 2:
        assert "input.onnx" in checked.error
    for form in FORMATS:
        done = cli("convert", "input.onnx", "--format", form)
        assert (done.code, done.errors) == (checked.code, checked.errors)
    assert not (folder / "input.npu.onnx").exists()


@pytest.mark.e2e
def test_as_a_program(folder):
    """A program shows one line, too: no warning, no library's log."""
    kinds = ("text", "cycle", "attribute-of-wrong-type")
    for kind in kinds:
        (folder / f"{kind}.onnx").write_bytes(FILES[kind][0]())
    out, ended = as_program(*(f"check {kind}.onnx" for kind in kinds))
    assert out == ""
    for (code, lines), kind in zip(ended, kinds, strict=True):
        assert (code, len(lines)) == (2, 1)
        assert lines[0].startswith(f"npuconv: error: {kind}.onnx")
