"""Reports with graphs of any shape, for the picture on the HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuconv.schemas.report import NodeInfo, Report, SourceNode, TensorSpec
from report.factory import make_report
from report.plan_factory import planned


def node(name: str, reads: Sequence[str], makes: str, op: str = "Conv", **more: Any) -> NodeInfo:
    """One node; on the device unless told otherwise."""
    values: dict[str, Any] = {
        "placement": "device",
        "reason": "",
        "macs": 1000,
        "parameters": 10,
        "form": op,
        "inputs": tuple(reads),
        "outputs": (makes,),
        "shape": (1, 8, 4, 4),
        "subgraph": 1,
    }
    return NodeInfo(name=name, op=op, **(values | more))


def report_of(nodes: Sequence[NodeInfo], **changes: Any) -> Report:
    """The report of a model that reads ``image`` and makes ``boxes``."""
    return make_report(nodes=tuple(nodes), **changes)


def rewritten() -> Report:
    """Return the report of a grouped convolution that was split, and a Mul merged into it."""
    source = (
        SourceNode(name="g", form="Conv 3x3, group 2", inputs=("image",), outputs=("t",)),
        SourceNode(name="m", form="Mul", inputs=("t",), outputs=("u",)),
        SourceNode(name="s", form="Sigmoid", inputs=("u", "outer"), outputs=("boxes",)),
    )
    nodes = [
        node("g", ["image"], "a", placement="host"),
        node("g", ["a"], "u"),
        node("s", ["u"], "boxes", "Sigmoid", placement="host"),
    ]
    plan = (planned("g", becomes="2 Conv 3x3", passes=("split",)),)
    return report_of(nodes, source_nodes=source, plan=plan)


def chain(length: int) -> list[NodeInfo]:
    """A deep network with residual connections."""
    places = ("device", "device", "device", "undocumented", "device", "host", "device")
    made, last = [], "image"
    for at in range(length):
        skips = at % 7 == 0 and at > 6
        reads = (last, f"t{at - 6}") if skips else (last,)
        last = "boxes" if at == length - 1 else f"t{at}"
        op = "Add" if skips else "Conv"
        name = f"/block{at // 7}/layer{at % 7}/{op}"
        made.append(node(name, reads, last, op, placement=places[at % 7], macs=at * 1000))
    return made


def output(name: str) -> TensorSpec:
    """An output of a model."""
    return TensorSpec(name=name, dtype="float32", shape=(1, 8, 4, 4))
