"""TFLite files that npuconv has not written, or that somebody has changed since; for ``verify``.

Where LiteRT is not installed all of them are refused for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

import npuconv
from hostile.arrays import SHAPE, npy, zipped
from hostile.case import Case, Cases, good
from npuconv.emit import keys
from npuconv.emit.tflite.translate import ENDS, STORED, translate
from npuconv.tflite.flatbuffer import Graph, to_bytes
from support.builders import digits

_NAME = "int8.tflite"
_RECORDS = {
    "none": "",
    "null": "null",
    "nested": "[" * 100_000,
    "negative": '[["x",[0,-1,2,3]],["y",[0,1]]]',
    "twice": '[["x",[0,1,1,3]],["y",[0,1]]]',
    "too-few": '[["x",[0,2,3,1]]]',
    "rank": '[["x",[0,1]],["y",[0,1]]]',
    "huge": f'[["x",[{"9" * 5000}]],["y",[0,1]]]',
    "forged": '[["\\u001b[31m::error::",[0,2,3,1]],["y",[0,1]]]',
}
_LAYER = '[{"name":"conv0","tensor":"t2","stored":"t","scale":0.1,"zero_point":0}]'
_STORED = {
    "null": "null",
    "nested": "[" * 100_000,
    "outside": '[["t",[0,2,3,1],1000000]]',
    "huge": f'[["t",[0,2,3,1],{"9" * 5000}]]',
    "rank": '[["t",[0,1],0]]',
    "input": '[["t",[0,2,3,1],0]]',
    "many": "[" + ",".join(['["t",[0,2,3,1],0]'] * 10_000) + "]",
    "forged": '[["\\u001b[31m::error::",[0,2,3,1],0]]',
}
_CHANGES: dict[str, Callable[[Graph], object]] = {
    "tensor-outside": lambda graph: _first(graph, inputs=(0, 10**6)),
    "no-inputs": lambda graph: setattr(graph, "inputs", ()),
    "one-input": lambda graph: _first(graph, inputs=(0,)),
    "shape-huge": lambda graph: setattr(graph.tensors[graph.inputs[0]], "shape", (1 << 30,) * 4),
    "shape-negative": lambda graph: setattr(graph.tensors[graph.inputs[0]], "shape", (-1, 8, 8, 1)),
    "shape-empty": lambda graph: setattr(graph.tensors[graph.inputs[0]], "shape", (0, 8, 8, 1)),
    "reads-its-output": lambda graph: _first(graph, inputs=graph.operators[0].outputs),
}


def cases() -> Cases:
    """Every file."""
    whole = _file()
    for share in (0, 7, 20, 500, 900):
        yield _case(f"cut-{share}", whole[: len(whole) * share // 1000])
    for seed in range(12):
        yield _case(f"bytes-{seed}", _mutated(whole, seed))
    for name, record in _RECORDS.items():
        yield _case(f"record-{name}", _file(record=record))
    for name, stored in _STORED.items():
        yield _case(f"layers-{name}", _file(more={keys.LAYERS: _LAYER, STORED: stored}))
    for name, change in _CHANGES.items():
        yield _case(f"graph-{name}", _file(change))
    yield _case("text", b"hello")
    yield _case("pipe", None)


def _file(
    change: Callable[[Graph], object] = lambda _: None,
    record: str | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    made = translate(_model())
    ends = ",".join(f'["{e.name}",{list(e.order)}]' for e in (*made.inputs, *made.outputs))
    change(made.graph)
    return to_bytes(made.graph, "", {ENDS: f"[{ends}]" if record is None else record, **more})


@cache
def _model() -> onnx.ModelProto:
    return npuconv.convert(digits(), format="float").model


def _first(graph: Graph, inputs: tuple[int, ...]) -> None:
    graph.operators[0] = replace(graph.operators[0], inputs=inputs)


def _mutated(data: bytes, seed: int) -> bytes:
    rng, made = np.random.default_rng(seed), bytearray(data)
    for place in rng.integers(0, len(made), 8):
        made[place] = rng.integers(256)
    return bytes(made)


def _case(name: str, data: bytes | None) -> Case:
    def write(folder: Path) -> None:
        good(folder)
        body = np.zeros(SHAPE, np.float32).tobytes()
        (folder / "samples.npz").write_bytes(zipped(("x.npy", npy(SHAPE, body=body))))
        if data is None:
            os.mkfifo(folder / _NAME)
        else:
            (folder / _NAME).write_bytes(data)

    options = {"calibration": "samples.npz"}
    return Case(f"tflite/{name}", "TFLite files", write, options=options, int8=_NAME,
                commands=("verify",))  # fmt: skip
