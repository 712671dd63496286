"""Names that act on whoever reads them: terminals, CI systems, browsers, parsers, the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from hostile.case import Case, Cases, model, raw
from support.builders import Net, digits
from support.training_code import annotate, trace

EVIL = {
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "newline-error": "a\n::error file=x::forged",
    "carriage-return": "good\r::error::forged",
    "azure": "##[error]forged ##vso[task.complete]",
    "teamcity": "##teamcity[testFailed name='x']",
    "script": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "attribute": '" onmouseover="alert(1)" x="',
    "cdata": "]]><failure/><![CDATA[",
    "entity": "&lt;b&gt; &#0; &xxe;",
    "xml-forbidden": "\x01\x08\x0b\ufffe\uffff",
    "template": "{{ 7 * 7 }}{% for x in y %}",
    "percent": "%s%s%n%d%(x)s %0A::error::%25",
    "braces": "{0} {evil!r} {__class__}",
    "markdown": "](http://evil) `x` | **b** <details>\n# head",
    "bidi": "\u202eevil\u2066\u200b\ufeff",
    "separators": "a\u2028b\u2029c\x85d",
    "nul": "a\0b",
    "long": "n" * 1_000_000,
    "long-words": "word " * 100_000,
    "combining": "e" + "\u0301" * 50_000,
    "blanks": " \t\n ",
    "path": "../../../../etc/passwd",
    "flag": "--help",
    "json": '", "verdict": "converted", "x": "',
    "shell": "$(touch /tmp/owned); `id` | sh",
    "pattern": "[a-z]*?{x,y}!",
    "wide": "\U0001f4a3" * 1000,
}
_EVERY = ("node", "tensor", "code")
_WORST = ("ansi", "newline-error", "azure", "script", "xml-forbidden", "nul", "long", "path")
_NO_FILE_NAMES = {"nul", "long", "long-words", "combining", "wide", "path", "blanks"}


def cases() -> Cases:
    """Every evil name in every place."""
    for name, text in EVIL.items():
        for place, put in _PLACES.items():
            if place in _EVERY or name in _WORST:
                options = {"source_root": "."} if place == "code" else {}
                case = f"name/{place}-{name}"
                yield Case(case, "every output", model(put(text)), options=options)
        if name not in _NO_FILE_NAMES and "/" not in text:
            yield _file(name, text + ".onnx")
    yield from _undecodable()


def _refused() -> Net:
    """Findings of all kinds, so that names stand in every part of a report."""
    net = Net(x=(1, 3, 8, 8)).conv("x", dilations=[2, 2], strides=[2, 1]).op("Relu")
    return net.conv(weight=(4, 4, 1, 1), auto_pad="SAME_UPPER").op("HardSwish")


def _node(text: str) -> onnx.ModelProto:
    proto = _refused().model()
    for number, node in enumerate(proto.graph.node):
        node.name = f"{text}{number or ''}"
    return proto


def _tensor(text: str) -> onnx.ModelProto:
    proto = digits()
    _rename(proto, proto.graph.node[2].output[0], text)
    _rename(proto, "x", f"{text}_in")
    return proto


def _rename(proto: onnx.ModelProto, old: str, new: str) -> None:
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = new if name == old else name
    for info in (*proto.graph.input, *proto.graph.output):
        info.name = new if info.name == old else info.name


def _kind(text: str) -> onnx.ModelProto:
    proto = _refused().op("Custom", domain="custom").model()
    proto.graph.node[-1].op_type = text
    proto.graph.node[-1].domain = text[:100]
    proto.opset_import[-1].domain = text[:100]
    return proto


def _header(text: str) -> onnx.ModelProto:
    proto = digits()
    proto.producer_name = proto.producer_version = proto.domain = proto.doc_string = text
    proto.graph.name = proto.graph.doc_string = proto.graph.node[0].doc_string = text
    proto.metadata_props.add(key=text, value=text)
    return proto


def _dimension(text: str) -> onnx.ModelProto:
    proto = digits()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = text
    return proto


def _code(text: str) -> onnx.ModelProto:
    """Training code of that name, beside code whose path leads out of the folder."""
    proto = _refused().model()
    for number, node in enumerate(proto.graph.node):
        frames = (f"../../{text}.py", 1, text), (f"{text}.py", 2**31 * number, text)
        annotate(node, [text, f"{text}.{number}"], [text, f"net.{text}"], trace(*frames))
        node.metadata_props.add(key=text, value=text)
    return proto


_PLACES: dict[str, Callable[[str], onnx.ModelProto]] = {
    "node": _node,
    "tensor": _tensor,
    "operator": _kind,
    "header": _header,
    "dimension": _dimension,
    "code": _code,
}


def _file(name: str, file: str) -> Case:
    def write(folder: Path) -> None:
        raw(_refused().model().SerializeToString(), file)(folder)

    return Case(f"name/file-{name}", "every output", write, model=file)


def _undecodable() -> Cases:
    """Text of a protobuf that is not UTF-8."""
    proto = _refused().model()
    annotate(proto.graph.node[0], ["module0"], [], "")
    data = proto.SerializeToString()
    for name, old in {
        "node": b"conv0",
        "tensor": b"t1",
        "operator": b"HardSwish",
        "input": b"x",
        "metadata": b"module0",
    }.items():
        bad = data.replace(old, b"\xff" * len(old))
        yield Case(f"name/not-utf8-{name}", "decoding", raw(bad))
