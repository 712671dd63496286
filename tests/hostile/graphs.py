"""Graphs that are none: cycles, names used twice, endless chains, subgraphs without end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from hostile.case import Case, Cases, model, raw, varint
from support.builders import Net

X = (1, 3, 8, 8)
Nodes = list[onnx.NodeProto]
_node, _info = helper.make_node, helper.make_tensor_value_info


def cases() -> Cases:
    """Every strange graph."""
    yield from _wired()
    yield from _long()
    yield from _deep()
    yield from _functions()
    yield from _changed()


def build(nodes: Nodes, outputs: tuple[str, ...] = ("y",), **domains: int) -> onnx.ModelProto:
    """A graph as it is, with a convolution's weights ``w`` and the input ``x``."""
    weight = np.random.default_rng(0).uniform(-1, 1, (3, 3, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [_info("x", TensorProto.FLOAT, X)],
        [_info(name, TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    imports = [helper.make_opsetid("", 17)]
    imports += [helper.make_opsetid(name, version) for name, version in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _wired() -> Cases:
    conv = _node("Conv", ["x", "w"], ["y"], name="c")
    for name, nodes in {
        "self-loop": [_node("Add", ["x", "y"], ["y"])],
        "cycle-of-two": [_node("Add", ["x", "b"], ["y"]), _node("Relu", ["y"], ["b"])],
        "cycle-of-50": [
            *(_node("Relu", [f"t{i}"], [f"t{(i + 1) % 50}"]) for i in range(50)),
            _node("Identity", ["t7"], ["y"]),
        ],
        "backwards": [_node("Relu", ["c"], ["y"]), _node("Conv", ["x", "w"], ["c"])],
        "same-result-twice": [conv, _node("Relu", ["x"], ["y"])],
        "same-node-name": [_node("Relu", ["x"], ["a"], name="c"), _node("Conv", ["a", "w"], ["y"])],
        "missing-input": [_node("Conv", ["gone", "w"], ["y"])],
        "missing-output": [_node("Conv", ["x", "w"], ["z"])],
        "no-inputs": [_node("Conv", [], ["y"])],
        "no-outputs": [conv, _node("Conv", ["x", "w"], [])],
        "empty-inputs": [_node("Conv", ["", "", ""], ["y"])],
        "empty-output": [_node("Conv", ["x", "w"], [""]), _node("Relu", ["x"], ["y"])],
        "9-inputs": [_node("Conv", ["x", *["w"] * 8], ["y"])],
        "9-outputs": [_node("Conv", ["x", "w"], ["y", *(f"o{i}" for i in range(8))])],
        "result-is-input": [_node("Conv", ["x", "w"], ["x"]), _node("Relu", ["x"], ["y"])],
        "result-is-weight": [_node("Conv", ["x", "w"], ["w"]), _node("Relu", ["w"], ["y"])],
        "weights-of-the-input": [_node("Conv", ["x", "x"], ["y"])],
        "weights-of-themselves": [_node("Conv", ["w", "w"], ["y"])],
        "no-operator": [_node("", ["x"], ["y"])],
        "unknown-operator": [_node("Evil", ["x"], ["y"])],
        "unknown-domain": [_node("Conv", ["x", "w"], ["y"], domain="evil")],
        "python-operator": [_node("PyOp", ["x"], ["y"], domain="ai.onnx.contrib", module="os")],
        "training": [_node("Gradient", ["x", "w"], ["y"], domain="ai.onnx.preview.training")],
        "optional": [_node("Optional", ["x"], ["o"]), _node("OptionalGetElement", ["o"], ["y"])],
        "sequence": [_node("SequenceConstruct", ["x"] * 2000, ["s"]),
                     _node("ConcatFromSequence", ["s"], ["y"], axis=0)],
    }.items():  # fmt: skip
        yield Case(f"graph/{name}", "order and names", model(build(nodes)))


def _long() -> Cases:
    def chain(count: int, op: str) -> Nodes:
        nodes = [_node("Conv", ["x", "w"], ["t0"], name="c")]
        nodes += [_node(op, [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
        return [*nodes, _node("Identity", [f"t{count}"], ["y"])]

    yield Case("graph/chain-100000", "node count", model(build(chain(100_000, "Abs"))))
    yield Case("graph/chain-5000", "recursion", model(build(chain(5_000, "Sigmoid"))))
    yield Case("graph/identities-8000", "sweeping", model(build(chain(8_000, "Identity"))))
    fan = [_node("Sin", ["x"], [f"t{i}"]) for i in range(2000)]
    yield Case("graph/fan-out-2000", "readers", model(build([*fan, _node("Relu", ["t1"], ["y"])])))
    fan.append(_node("Sum", [f"t{i}" for i in range(2000)], ["y"]))
    yield Case("graph/fan-in-2000", "inputs of a node", model(build(fan)))
    outputs = tuple(f"t{i}" for i in range(2000))
    yield Case("graph/2000-outputs", "outputs", model(build(fan[:2000], outputs)))
    wide = build([_node("Conv", ["x", "w"], ["y"])])
    wide.graph.input.extend(_info(f"i{i}", TensorProto.FLOAT, X) for i in range(1000))
    yield Case("graph/1000-inputs", "inputs", model(wide))
    convs = [_node("Conv", ["x", "w"], ["t0"])]
    convs += [_node("Conv", [f"t{i}", "w"], [f"t{i + 1}"]) for i in range(300)]
    shared = build([*convs, _node("Relu", ["t300"], ["y"])])
    yield Case("graph/shared-weights-300", "copies of weights", model(shared))


def _deep() -> Cases:
    for depth in (40, 60, 1000):
        yield Case(f"graph/bytes-{depth}-deep", "nesting", raw(_nested_bytes(depth)))
    for depth in (3, 12, 24, 30):
        for op in ("If", "Loop"):
            proto = build([_node("Conv", ["x", "w"], ["c"]), _nest(depth, op)])
            yield Case(f"graph/{op.lower()}-{depth}-deep", "nesting", model(proto))
    empty = onnx.GraphProto(name="empty")
    nodes = [_node("Conv", ["x", "w"], ["c"])]
    condition = [_node("ReduceSum", ["c"], ["s"], keepdims=0), _node("Cast", ["s"], ["b"], to=9)]
    for name, branches in {
        "empty": {"then_branch": empty, "else_branch": empty},
        "one-branch": {"then_branch": empty},
        "no-branch": {},
        "number-for-branch": {"then_branch": 1, "else_branch": 2},
    }.items():
        proto = build([*nodes, *condition, _node("If", ["b"], ["y"], **branches)])
        yield Case(f"graph/if-{name}", "subgraphs", model(proto))
    inner = helper.make_graph([_node("Relu", ["x"], ["c"])], "b", [], [_info("c", 1, None)])
    shadow = _node("If", ["b"], ["y"], then_branch=inner, else_branch=inner)
    yield Case("graph/if-shadows", "scopes", model(build([*nodes, *condition, shadow])))
    wrong = _node("Relu", ["c"], ["y"], alpha=inner)
    yield Case("graph/graph-in-relu", "subgraphs", model(build([*nodes, wrong])))


def _nest(depth: int, op: str) -> onnx.NodeProto:
    """A node inside a node inside a node; only the nesting is meant to be right."""
    made = _node("Relu", ["c"], ["y"])
    for level in range(depth):
        made.output[0] = f"y{level}"
        result = _info(f"y{level}", TensorProto.FLOAT, None)
        if op == "If":
            graph = helper.make_graph([made], "b", [], [result])
            other = helper.make_graph(
                [_node("Abs", ["c"], [f"z{level}"])], "b", [],
                [_info(f"z{level}", TensorProto.FLOAT, None)],
            )  # fmt: skip
            made = _node("If", ["x"], ["y"], then_branch=graph, else_branch=other)
        else:
            inputs = [_info(f"i{level}", 7, []), _info(f"g{level}", 9, [])]
            graph = helper.make_graph([made], "b", inputs, [_info(f"g{level}", 9, []), result])
            made = _node("Loop", ["", "x"], ["y"], body=graph)
    return made


def _nested_bytes(depth: int) -> bytes:
    """Deeper than protobuf's own library writes: graph in attribute in node in graph."""
    node = _node("Relu", ["c"], ["y"]).SerializeToString()
    for _ in range(depth):
        for tag in (b"\x0a", b"\x32", b"\x2a"):
            node = tag + varint(len(node)) + node
    graph = b"\x0a" + varint(len(node)) + node
    header = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    return header.SerializeToString() + b"\x3a" + varint(len(graph)) + graph


def _functions() -> Cases:
    def with_functions(*made: onnx.FunctionProto) -> onnx.ModelProto:
        nodes = [_node("Conv", ["x", "w"], ["c"]), _node("F", ["c"], ["y"], domain="f")]
        proto = build(nodes, f=1)
        proto.functions.extend(made)
        return proto

    def function(name: str, *calls: str) -> onnx.FunctionProto:
        nodes = [_node(op, [f"a{i}"], [f"a{i + 1}"], domain="f" if op in "FG" else "")
                 for i, op in enumerate(calls)]  # fmt: skip
        opset = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        return helper.make_function("f", name, ["a0"], [f"a{len(calls)}"], nodes, opset)

    for name, made in {
        "recursive": [function("F", "Relu", "F")],
        "mutually-recursive": [function("F", "G"), function("G", "F")],
        "undefined": [function("G", "Relu")],
        "twice": [function("F", "Relu"), function("F", "Abs")],
        "empty": [function("F")],
        "chain-2000": [function("F", *["Relu"] * 2000)],
        "calls-what-is-not-there": [function("F", "G")],
    }.items():
        yield Case(f"graph/function-{name}", "functions", model(with_functions(*made)))


def _changed() -> Cases:
    """A good model with one thing said twice, or left out."""

    def twice(part: Callable[[onnx.GraphProto], onnx.NodeProto]) -> onnx.ModelProto:
        proto = Net(x=X).conv("x", strides=[2, 2]).op("Relu").model()
        part(proto.graph)
        return proto

    changes: dict[str, Callable[[onnx.GraphProto], object]] = {
        "attribute-twice": lambda g: g.node[0].attribute.extend(list(g.node[0].attribute)),
        "attribute-unnamed": lambda g: setattr(g.node[0].attribute[0], "name", ""),
        "attribute-without-type": lambda g: g.node[0].attribute[0].ClearField("type"),
        "attribute-of-unknown-type": lambda g: (
            g.node[0].attribute.add().MergeFromString(b"\x0a\x05group\xa0\x01\x63")
        ),
        "attribute-reference": lambda g: setattr(g.node[0].attribute[0], "ref_attr_name", "z"),
        "input-twice": lambda g: g.input.append(g.input[0]),
        "output-twice": lambda g: g.output.append(g.output[0]),
        "output-is-input": lambda g: g.output.append(g.input[0]),
        "output-unnamed": lambda g: setattr(g.output[0], "name", ""),
        "no-list-of-outputs": lambda g: g.ClearField("output"),
        "graph-unnamed": lambda g: setattr(g, "name", ""),
        "info-twice": lambda g: g.value_info.extend([_info("t0", 1, X), _info("t0", 7, [2])]),
        "info-contradicts": lambda g: g.value_info.append(_info("t0", 7, [5, 5])),
    }
    for name, change in changes.items():
        yield Case(f"graph/{name}", "what is said twice", model(twice(change)))
