"""Models that are strange, but valid: findings or a result, never a bug of ours."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.builders import Net
from support.raw_models import X, as_program, build, constant, conv, tensor, weights


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


FORMATS = ("qoperator", "qdq", "weights", "float")
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


@pytest.mark.e2e
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
