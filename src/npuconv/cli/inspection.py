"""Contents of one model, or of two models side by side, as numbers: for ``npuconv inspect``."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import onnx

from npuconv.config import Options
from npuconv.errors import NpuconvError
from npuconv.model import load, query, shapes
from npuconv.model.conv import Window, flat_pads, window
from npuconv.model.core import Model
from npuconv.model.nhwc import as_float
from npuconv.model.types import Node, Tensor
from npuconv.partition import costs
from npuconv.report.words import total

Sides = tuple[str, str]  # text of the model before, text of the model after
_ONE_SIDED = ("operator", "kernel", "weights", "MACs")  # compared if one side has no convolution


@dataclass(frozen=True)
class Convolution:
    """One convolution of the model, unchanged."""

    name: str
    op: str
    mode: str
    input: str
    output: str
    kernel: str
    strides: str
    dilations: str
    group: int
    pads: str
    parameters: int
    macs: int | None


@dataclass(frozen=True)
class NodeSummary:
    """One node of the model, unchanged."""

    name: str
    op: str
    output: str
    parameters: int
    macs: int | None


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
    calibration: str = ""  # data that convert would assume without --calibration, and why

    def as_json(self) -> str:
        """Return the inspection as JSON, for programs."""
        return json.dumps(asdict(self), indent=2) + "\n"


def inspect(
    source: str | Path | onnx.ModelProto, input_shape: dict[str, tuple[int, ...]] | None = None
) -> Inspection:
    """Return the contents of a model, and the samples that a conversion would assume.

    Raises:
        ModelError: not a valid model.
    """
    from npuconv.data.builtin import choose_builtin
    from npuconv.legalize.legal import legalize

    inspection = summarize(read(source, input_shape))
    try:
        legal = legalize(source, Options(input_shape=input_shape or {}, verify=False))
        if not legal.plan.convolutions:
            return inspection
        builtin = choose_builtin(legal.model, legal.options.preprocess, legal.expected)
    except NpuconvError:  # ``check`` reports the reason
        return inspection
    return replace(inspection, calibration=builtin.sentence)


def read(
    source: str | Path | onnx.ModelProto, input_shape: dict[str, tuple[int, ...]] | None = None
) -> Model:
    """Return a model with its shapes inferred.

    Raises:
        ModelError: not a valid model.
    """
    model = load.load(source)
    shapes.fix_inputs(model, input_shape or {})
    shapes.infer(model)
    return model


def summarize(model: Model) -> Inspection:
    """Return a model in numbers."""
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
        steps=tuple(
            NodeSummary(
                name=model.label(node),
                op=query.qualified(node),
                output=_dims(query.shape(node.outputs[0])) if node.outputs else "",
                parameters=costs.parameters(node),
                macs=costs.macs(node),
            )
            for node in model.nodes()
        ),
    )


def _convolution(model: Model, node: Node, win: Window) -> Convolution:
    pads = ",".join(map(str, flat_pads(win.pads)))
    return Convolution(
        name=model.label(node),
        op=query.qualified(node),
        mode=win.mode,
        input=_dims(query.shape(node.inputs[0])),
        output=_dims(query.shape(node.outputs[0])),
        kernel="x".join(map(str, win.kernel or ())),
        strides="x".join(map(str, win.strides)),
        dilations="x".join(map(str, win.dilations)),
        group=win.group,
        pads=pads if win.auto_pad == "NOTSET" else win.auto_pad,
        parameters=win.parameters(),
        macs=win.macs,
    )


def _dims(dims: tuple[int | str | None, ...] | None) -> str:
    return "?" if dims is None else "x".join("?" if d is None else str(d) for d in dims)


def _tensor(tensor: Tensor) -> str:
    return f"{tensor.name}: {query.dtype_name(tensor) or '?'} {_dims(query.shape(tensor))}"


# Two models side by side


@dataclass(frozen=True)
class Counts:
    """Number of nodes with one operator, in each of the two models."""

    before: int
    after: int


@dataclass(frozen=True)
class Match:
    """One node of the model before and its counterpart after, where either is a convolution."""

    name: str
    before: tuple[Convolution, ...]
    after: tuple[Convolution, ...]
    differs: dict[str, Sides]


@dataclass(frozen=True)
class ModelDifference:
    """Two models and their differences."""

    before: Inspection
    after: Inspection
    operators: dict[str, Counts]
    convolutions: tuple[Match, ...]

    def as_json(self) -> str:
        """Return the comparison as JSON, for programs."""
        return json.dumps(asdict(self), indent=2) + "\n"


def compare(
    before: str | Path | onnx.ModelProto,
    after: str | Path | onnx.ModelProto,
    input_shape: dict[str, tuple[int, ...]] | None = None,
) -> ModelDifference:
    """Compare two models; nothing is changed.

    Raises:
        ModelError: a file is not a valid model.
    """
    source = read(before, input_shape)
    old, new = summarize(source), summarize(read(after, input_shape))
    names = sorted({*old.operators, *new.operators})
    counts = {op: Counts(old.operators.get(op, 0), new.operators.get(op, 0)) for op in names}
    operators = {source.label(node): node.op for node in source.nodes()}
    return ModelDifference(old, new, counts, _matches(operators, old, new))


def _matches(operators: dict[str, str], before: Inspection, after: Inspection) -> tuple[Match, ...]:
    """Return convolutions by the node of the first model that they come from.

    Convolutions of a rewrite are named after the node that they replace: ``up`` becomes
    ``up/Conv``.
    """
    groups: dict[str, tuple[list[Convolution], list[Convolution]]] = {}
    for convolution in before.convolutions:
        groups.setdefault(convolution.name, ([], []))[0].append(convolution)
    for convolution in after.convolutions:
        name = convolution.name
        lengths = [len(name), *(i for i in range(len(name) - 1, 0, -1) if name[i] in "/_")]
        source = next((name[:n] for n in lengths if name[:n] in operators), name)
        groups.setdefault(source, ([], []))[1].append(convolution)
    matches = []
    for name, (old, new) in groups.items():
        texts, new_texts = _attributes(old, operators.get(name, "")), _attributes(new, "")
        compared = texts if old and new else _ONE_SIDED
        differs = {
            key: (texts[key], new_texts[key]) for key in compared if texts[key] != new_texts[key]
        }
        matches.append(Match(name, tuple(old), tuple(new), differs))
    return tuple(matches)


def _attributes(convolutions: list[Convolution], op: str) -> dict[str, str]:
    """Return the attributes to compare, as text; of several convolutions all values that occur."""

    def values(name: str) -> str:
        return "; ".join(dict.fromkeys(str(getattr(conv, name)) for conv in convolutions))

    def amount(numbers: list[int | None]) -> str:
        number = total(numbers)
        return "" if not numbers else "?" if number is None else f"{number:,}"

    number, ops = len(convolutions), values("op") or op
    names = ("input", "output", "kernel", "strides", "dilations", "group", "pads")
    return {
        "operator": f"{number} {ops}" if number > 1 else ops,
        **{name: values(name) for name in names},
        "weights": amount([conv.parameters for conv in convolutions]),
        "MACs": amount([conv.macs for conv in convolutions]),
    }
