"""Bytes that are nearly a model: cut, flipped, or lying about lengths, at every level."""

from __future__ import annotations

import gzip

import numpy as np
import onnx

from hostile.case import Case, Cases, model, raw, varint
from support.builders import Net, digits

CUTS, FLIPS = 12, 24
_LEVELS = {
    "graph": "model's graph",
    "node": "a node",
    "attribute": "an attribute",
    "tensor": "an initializer",
    "input": "an input",
    "opset": "an operator set",
}


def cases() -> Cases:
    """Every broken protobuf."""
    yield from _cut()
    yield from _flipped()
    yield from _levels()
    yield from _files()
    yield from _headers()


def _cut() -> Cases:
    data = digits().SerializeToString()
    for part in range(CUTS):
        at = len(data) * (part + 1) // (CUTS + 1) + part
        yield Case(f"protobuf/cut-{part}", "parser", raw(data[:at]))


def _flipped() -> Cases:
    """A few bits each; weights are most of the file, so names and shapes get half of them."""
    data = digits().SerializeToString()
    start = digits().graph.ByteSize() // 20
    for seed in range(FLIPS):
        rng = np.random.default_rng(seed)
        damaged = bytearray(data)
        for _ in range(1 + seed % 4):
            end = start if seed % 2 else len(data)
            damaged[int(rng.integers(end))] ^= 1 << int(rng.integers(8))
        yield Case(f"protobuf/flip-{seed}", "parser, checker", raw(bytes(damaged)))


def _parts() -> dict[str, bytes]:
    proto = digits()
    graph = proto.graph
    parts = (graph, graph.node[0], graph.node[0].attribute[0], graph.initializer[0])
    named = zip(_LEVELS, (*parts, graph.input[0], proto.opset_import[0]), strict=True)
    return {name: part.SerializeToString() for name, part in named}


def _levels() -> Cases:
    """At each level, the message that stands there is cut, swollen, or of another kind."""
    data = digits().SerializeToString()
    for name, part in _parts().items():
        at = data.index(part)
        changed = {
            "zeroed": bytes(len(part)),
            "first-tag": bytes([part[0] ^ 7]) + part[1:],
            "endless-varint": b"\x08" + b"\xff" * (len(part) - 1),
            "group": b"\x0b" * len(part),
            "long-length": part[:1] + b"\xff\xff\xff\xff\x0f" + part[6:],
            "not-utf8": part.replace(b"x", b"\xff").replace(b"t", b"\xfe"),
        }
        for how, text in changed.items():
            whole = data[:at] + text[: len(part)] + data[at + len(part) :]
            yield Case(f"protobuf/{name}-{how}", _LEVELS[name], raw(whole))


def _files() -> Cases:
    """Yield files that are no model, or one with things around it."""
    data = digits().SerializeToString()
    nested = b""
    for _ in range(300):
        nested = b"\x3a" + varint(len(nested)) + nested
    files = {
        "empty": b"",
        "one-byte": b"\x08",
        "text": b"ir_version: 8\n" * 40,
        "png": b"\x89PNG\r\n\x1a\n" + bytes(999),
        "gzip": gzip.compress(data, mtime=0),
        "zip": b"PK\x03\x04" + bytes(999),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "twice": data + data,
        "unknown-fields": data + b"\xfa\x7f\x04evil" * 20_000,
        "large-unknown-field": data + b"\xfa\x7f" + varint(40_000_000) + bytes(40_000_000),
        "nested-300": nested,
        "groups-5000": b"\x0b" * 5000,
        "long-varint": b"\x08" + b"\x80" * 30 + b"\x01",
        "promises-2-gb": b"\x3a\xff\xff\xff\xff\x07" + data,
        "tail": data + b"\n::error::forged\n",
    }
    for name, content in files.items():
        yield Case(f"protobuf/file-{name}", "parser", raw(content))


def _headers() -> Cases:
    changes = {
        "ir-negative": {"ir_version": -1},
        "ir-huge": {"ir_version": 2**62},
        "ir-zero": {"ir_version": 0},
        "version-negative": {"model_version": -(2**63)},
        "producer-long": {"producer_name": "p" * 1_000_000},
    }
    for name, fields in changes.items():
        proto = digits()
        for key, value in fields.items():
            setattr(proto, key, value)
        yield Case(f"protobuf/{name}", "header", model(proto))
    for name, versions in {
        "opset-none": [],
        "opset-zero": [0],
        "opset-negative": [-3],
        "opset-huge": [2**62],
        "opset-twice": [17, 9],
        "opset-many": list(range(1, 2000)),
    }.items():
        proto = digits()
        del proto.opset_import[:]
        proto.opset_import.extend(onnx.helper.make_opsetid("", v) for v in versions)
        yield Case(f"protobuf/{name}", "header", model(proto))
    yield Case("protobuf/no-graph", "header", model(onnx.ModelProto(ir_version=8)))
    bare = Net(x=(1, 3, 8, 8)).conv("x").model()
    del bare.graph.input[:]
    yield Case("protobuf/no-inputs", "header", model(bare))
