"""Contents of a model as numbers, for ``npuconv inspect``."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import onnx

from npuconv.config import Options
from npuconv.errors import NpuconvError
from npuconv.model import Model, Node, Tensor, Window, load, query, shapes, window
from npuconv.model.conv import flat_pads
from npuconv.model.nhwc import as_float
from npuconv.partition import costs
from npuconv.records import dataclass
from npuconv.report.words import total


@dataclass(frozen=True)
class NodeSummary:
    """One node of the model, unchanged."""

    name: str
    op: str
    output: str
    parameters: int
    macs: int | None


@dataclass(frozen=True)
class Convolution(NodeSummary):
    """One convolution of the model, unchanged."""

    mode: str
    input: str
    kernel: str
    strides: str
    dilations: str
    group: int
    pads: str


@dataclass(frozen=True)
class Inspection:
    """A model in numbers."""

    path: str
    sha256: str
    ir_version: int
    opset: int
    producer: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]
    nodes: int
    in_subgraphs: int
    parameters: int
    macs: int | None
    peak_bytes: int | None  # largest number of bytes of all tensors between nodes at a time
    peak_int8_bytes: int | None  # the same number with the float tensors in int8
    peak_node: str  # node that runs at that time
    attributes: dict[str, dict[str, int]]  # number of convolutions by attribute and value
    convolutions: tuple[Convolution, ...]
    steps: tuple[NodeSummary, ...]
    calibration: str  # data that convert would assume without --calibration, and why


def inspect(
    source: str | Path | onnx.ModelProto, input_shape: dict[str, tuple[int, ...]] | None = None
) -> Inspection:
    """Return the contents of a model, and the samples that a conversion would assume.

    Raises:
        ModelError: not a valid model.
    """
    model = load.load(source)
    shapes.fix_inputs(model, input_shape or {})
    shapes.infer(model)
    nodes = [node for node, _ in model.walk()]
    inside = len(nodes) - len(model.nodes())
    header = model.header
    windows = ((node, as_float(node)) for node in model.nodes())
    convolutions = tuple(
        _convolution(model, node, win)
        for node, plain in windows
        if plain.op in query.CONVOLUTIONS and (win := window(plain)) is not None
    )
    worst = costs.peak(model)
    results = [n.outputs[0] for n in nodes if query.qualified(n) == "Constant" and n.outputs]
    shapes_of = [t.shape for t in query.constants(model.graph.nodes)]
    shapes_of += [query.static_shape(tensor) or (0,) for tensor in results]
    names = ("op", "mode", "kernel", "strides", "dilations", "pads")
    counts = {name: Counter(getattr(conv, name) for conv in convolutions) for name in names}
    return Inspection(
        path=model.name,
        sha256=model.sha256,
        ir_version=header.ir_version,
        opset=model.opset,
        producer=f"{header.producer_name} {header.producer_version}".strip(),
        inputs=tuple(_tensor(t) for t in model.graph.inputs),
        outputs=tuple(_tensor(t) for t in model.graph.outputs),
        operators=dict(sorted(Counter(query.qualified(n) for n in nodes).items())),
        nodes=len(nodes),
        in_subgraphs=inside,
        parameters=sum(math.prod(shape) for shape in shapes_of),
        macs=total(costs.macs(node) for node in model.nodes()),
        peak_bytes=worst.bytes if worst else None,
        peak_int8_bytes=worst.int8_bytes if worst else None,
        peak_node=worst.node if worst else "",
        attributes={
            name: dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))
            for name, count in counts.items()
            if count
        },
        convolutions=convolutions,
        steps=tuple(_summary(model, node) for node in model.nodes()),
        calibration=_assumed_samples(source, input_shape or {}),
    )


def _assumed_samples(
    source: str | Path | onnx.ModelProto, input_shape: dict[str, tuple[int, ...]]
) -> str:
    from npuconv.data.builtin import choose_builtin
    from npuconv.legalize.legal import legalize

    try:
        legal = legalize(source, Options(input_shape=input_shape, verify=False))
        if legal.plan.convolutions:
            return choose_builtin(legal.model, legal.options.preprocess).sentence
    except NpuconvError:  # ``check`` reports the reason
        pass
    return ""


def _summary(model: Model, node: Node) -> NodeSummary:
    return NodeSummary(
        name=model.label(node),
        op=query.qualified(node),
        output=_dims(query.shape(node.outputs[0])) if node.outputs else "",
        parameters=costs.parameters(node),
        macs=costs.macs(node),
    )


def _convolution(model: Model, node: Node, win: Window) -> Convolution:
    pads = ",".join(map(str, flat_pads(win.pads)))
    summary = {**vars(_summary(model, node)), "parameters": win.parameters()}  # without the bias
    return Convolution(
        **summary,
        mode=win.mode,
        input=_dims(query.shape(node.inputs[0])),
        kernel="x".join(map(str, win.kernel or ())),
        strides="x".join(map(str, win.strides)),
        dilations="x".join(map(str, win.dilations)),
        group=win.group,
        pads=pads if win.auto_pad == "NOTSET" else win.auto_pad,
    )


def _dims(dims: tuple[int | str | None, ...] | None) -> str:
    return "?" if dims is None else "x".join("?" if d is None else str(d) for d in dims)


def _tensor(tensor: Tensor) -> str:
    return f"{tensor.name}: {query.dtype_name(tensor) or '?'} {_dims(query.shape(tensor))}"
