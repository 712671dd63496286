"""Input that is wrong or strange: one line and code 2, or findings; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.builders import Net, digits, images

X = (1, 3, 8, 8)


def tensor(name: str, shape, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, values) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


def weights(*shape: int, kind=np.float32) -> onnx.TensorProto:
    return constant("w", np.random.default_rng(0).uniform(-1, 1, shape).astype(kind))


def build(nodes, inputs, outputs, constants=(), *, opset=17, functions=(), **domains: int):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, v) for d, v in domains.items()),
    ]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=8 if opset < 21 else 10, functions=functions
    )


def conv(weight=None, x=X, y=(None,) * 4, *, kind=TensorProto.FLOAT, opset=17, **attrs):
    """Return a model of one convolution, valid or not."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c", **attrs)
    outputs, inputs = [tensor("y", y, kind)], [tensor("x", x, kind)]
    return build([node], inputs, outputs, [weight or weights(4, 3, 3, 3)], opset=opset)


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
    "not-an-archive": ("s.npz", write(b"hello"), "neither .npz nor .npy"),
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


# Models that are strange, but valid.


def float16():
    return conv(weights(4, 3, 3, 3, kind=np.float16), kind=TensorProto.FLOAT16)


def float64():
    return conv(weights(4, 3, 3, 3, kind=np.float64), kind=TensorProto.DOUBLE)


def bfloat16():
    raw = helper.make_tensor("w", TensorProto.BFLOAT16, [3, 3, 1, 1], np.ones(9, np.float32))
    return conv(raw, kind=TensorProto.BFLOAT16, opset=22)


def bfloat16_weights(kind: int = TensorProto.BFLOAT16, opset: int = 17):
    raw = helper.make_tensor("raw", kind, [3, 3, 1, 1], np.ones(9, np.float32))
    nodes = [
        helper.make_node("Cast", ["raw"], ["w"], to=1),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    return build(nodes, [tensor("x", X)], [tensor("y", X)], [raw], opset=opset)


def odd_weight(value: float):
    array = np.ones((4, 3, 3, 3), np.float32)
    array.flat[3] = value
    return conv(constant("w", array))


def zero_weights():
    return conv(constant("w", np.zeros((4, 3, 3, 3), np.float32)))


def rank_zero():
    return build([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [])], [tensor("y", [])])


def scalar_beside():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    inputs = [tensor("x", X), tensor("s", [])]
    return build(nodes, inputs, [tensor("y", (1, 4, 6, 6))], [weights(4, 3, 3, 3)])


def output_is_input():
    proto = conv()
    proto.graph.output.append(proto.graph.input[0])
    return proto


def output_is_weight():
    proto = conv()
    proto.graph.output.append(tensor("w", (4, 3, 3, 3)))
    return proto


def unknown_domain():
    return Net(x=X).conv("x").op("Magic", domain="my.ops").model()


def branches():
    w = weights(4, 3, 3, 3)
    sides = {}
    for side in ("then", "else"):
        node = helper.make_node("Conv", ["x", "w"], [side], name=f"{side}_conv")
        sides[f"{side}_branch"] = helper.make_graph([node], side, [], [tensor(side, (None,) * 4)])
    inputs = [tensor("x", X), tensor("c", [], TensorProto.BOOL)]
    return build(
        [helper.make_node("If", ["c"], ["y"], **sides)], inputs, [tensor("y", (None,) * 4)], [w]
    )


def loop():
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Conv", ["s", "w"], ["t"])],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("s", X)],
        [tensor("on", [], TensorProto.BOOL), tensor("t", X)],
    )
    node = helper.make_node("Loop", ["n", "c", "x"], ["y"], body=body)
    constants = [weights(3, 3, 1, 1), constant("n", np.int64(2)), constant("c", np.bool_(True))]
    return build([node], [tensor("x", X)], [tensor("y", X)], constants)


def sequence():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("SequenceConstruct", ["c", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
    ]
    constants = [weights(3, 3, 1, 1), constant("i", np.int64(0))]
    return build(nodes, [tensor("x", X)], [tensor("y", X)], constants)


def sequence_output():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("SequenceConstruct", ["c", "x"], ["s"]),
    ]
    output = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, X)
    return build(nodes, [tensor("x", X)], [output], [weights(4, 3, 3, 3)])


def strings():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Identity", ["s"], ["t"]),
    ]
    outputs = [tensor("y", (1, 4, 6, 6)), tensor("t", [2], TensorProto.STRING)]
    constants = [weights(4, 3, 3, 3), constant("s", np.array(["a", "b"], dtype=object))]
    return build(nodes, [tensor("x", X)], outputs, constants)


def string_input():
    proto = strings()
    del proto.graph.initializer[1]
    proto.graph.input.append(tensor("s", [2], TensorProto.STRING))
    return proto


def function(*, hides_conv: bool):
    inner = (
        helper.make_node("Conv", ["a", "k"], ["b"])
        if hides_conv
        else helper.make_node("Relu", ["a"], ["b"])
    )
    names = ["a", "k"] if hides_conv else ["a"]
    made = helper.make_function("my", "F", names, ["b"], [inner], [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("F", ["x", "w"], ["y"], domain="my")]
    if not hides_conv:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("F", ["c"], ["y"], domain="my"),
        ]
    return build(
        nodes,
        [tensor("x", X)],
        [tensor("y", (1, 4, 6, 6))],
        [weights(4, 3, 3, 3)],
        functions=[made],
        my=1,
    )


def sparse(*, coordinates: bool = False):
    indices = [[0, 0, 0, 0], [1, 1, 0, 0]] if coordinates else [0, 4]
    values = constant("w", np.array([1, 2], np.float32))
    both = helper.make_sparse_tensor(values, constant("i", np.array(indices)), [3, 3, 1, 1])
    proto = conv(weights(3, 3, 1, 1))
    del proto.graph.initializer[:]
    proto.graph.sparse_initializer.append(both)
    return proto


def variances(value: float, epsilon: float):
    net = Net(x=X).conv("x").batchnorm(4, epsilon=epsilon)
    last = net.initializers[-1]
    last.CopyFrom(constant(last.name, np.full(4, value, np.float32)))
    return net.model()


def positions():
    return Net(x=X).conv("x").op("NonZero").model()


def divides_by_zero():
    nodes = [
        helper.make_node("Div", ["a", "b"], ["k"]),
        helper.make_node("Cast", ["k"], ["f"], to=1),
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Add", ["c", "f"], ["y"]),
    ]
    constants = [weights(4, 3, 3, 3), constant("a", np.int64([1])), constant("b", np.int64([0]))]
    return build(nodes, [tensor("x", X)], [tensor("y", (1, 4, 6, 6))], constants)


# name -> model, what check and convert give in each of FORMATS
STRANGE = {
    "float16": (float16, (0, 0, 0, 0)),
    "float64": (float64, (0, 0, 0, 0)),
    "bfloat16": (bfloat16, (0, 0, 0, 0)),
    "bfloat16-weights": (bfloat16_weights, (0, 0, 0, 0)),
    "float8-weights": (lambda: bfloat16_weights(TensorProto.FLOAT8E4M3FN, 19), (0, 0, 0, 0)),
    "nan-weight": (lambda: odd_weight(np.nan), (1, 1, 1, 1)),
    "infinite-weight": (lambda: odd_weight(np.inf), (1, 1, 1, 1)),
    "huge-weight": (lambda: odd_weight(3e38), (0, 0, 0, 0)),
    "tiny-weight": (lambda: odd_weight(1e-42), (0, 0, 0, 0)),
    "zero-weights": (zero_weights, (0, 0, 0, 0)),
    "rank-zero": (rank_zero, (1, 1, 1, 1)),
    "scalar-beside": (scalar_beside, (0, 0, 0, 0)),
    "empty-batch": (lambda: conv(x=(0, 3, 8, 8)), (2, 2, 0, 0)),
    "output-is-input": (output_is_input, (0, 0, 0, 0)),
    "output-is-weight": (output_is_weight, (0, 0, 0, 0)),
    "unknown-domain": (unknown_domain, (1, 1, 1, 1)),
    "if": (branches, (1, 1, 1, 1)),
    "loop": (loop, (1, 1, 1, 1)),
    "sequence": (sequence, (0, 0, 0, 0)),
    "sequence-output": (sequence_output, (0, 0, 0, 0)),
    "strings": (strings, (0, 0, 0, 0)),
    "string-input": (string_input, (2, 2, 0, 0)),
    "function": (lambda: function(hides_conv=False), (0, 0, 0, 0)),
    "function-with-conv": (lambda: function(hides_conv=True), (0, 0, 0, 0)),
    "sparse": (sparse, (0, 0, 0, 0)),
    "sparse-coordinates": (lambda: sparse(coordinates=True), (0, 0, 0, 0)),
    "negative-variance": (lambda: variances(-1, 1e-5), (0, 0, 0, 0)),
    "zero-variance": (lambda: variances(-1, 1.0), (0, 0, 0, 0)),
    "positions": (positions, (0, 0, 0, 0)),
    "unknown-rank": (lambda: conv(x=None), (2, 2, 0, 0)),
    "divides-by-zero": (divides_by_zero, (2, 2, 2, 2)),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_strange(cli, folder, kind):
    """A strange model is converted, refused by a finding, or refused in one line: check, too."""
    make, codes = STRANGE[kind]
    onnx.save(make(), folder / "input.onnx")
    assert cli("inspect", "input.onnx").code == 0
    # Of the forms with samples and of those without, each is taken by every other model.
    first = list(STRANGE).index(kind) % 2
    for form, wanted in [*zip(FORMATS, codes, strict=True)][first::2]:
        flags = ("--format", form, "--max-samples", 2)
        checked = cli("check", "input.onnx", *flags)
        done = cli("convert", "input.onnx", *flags, "-o", f"{form}.onnx")
        assert done.code == wanted
        assert "Traceback" not in done.err
        assert (checked.code, checked.errors) == (wanted, done.errors)
        assert len(done.errors) == (wanted == 2)
        assert (folder / f"{form}.onnx").exists() == (wanted == 0)


# Commands one after the other in one process; each ends with a line of its exit code.
PROGRAM = """
import sys
from npuconv.cli import main
for arguments in sys.argv[1:]:
    sys.argv = ["npuconv", *arguments.split()]
    try:
        main()
    except SystemExit as end:
        print("code", end.code, file=sys.stderr, flush=True)
"""


def as_program(*commands: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return stdout of all commands; exit code and lines on stderr of each."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    for line in done.stderr.splitlines():
        if line.startswith("code "):
            found.append((int(line.removeprefix("code ")), lines))
            lines = []
        else:
            lines.append(line)
    return done.stdout, found


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


@pytest.mark.e2e
def test_no_warnings(folder):
    """No warning of numpy is printed for numbers that overflow."""
    kinds = ("nan-weight", "infinite-weight", "negative-variance", "strings")
    for kind in kinds:
        onnx.save(STRANGE[kind][0](), folder / f"{kind}.onnx")
    _, ended = as_program(*(f"convert {kind}.onnx" for kind in kinds))
    for (code, lines), kind in zip(ended, kinds, strict=True):
        assert code == STRANGE[kind][1][0]
        assert all(line.startswith("npuconv: ") for line in lines)
