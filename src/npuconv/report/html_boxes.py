"""The nodes of a report as the boxes of a picture, and what leads from one to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from npuconv.schemas.report import NodeInfo, Report

FUSED = ("Relu", "Clip")  # a box with the convolution that they follow


@dataclass(frozen=True)
class Box:
    """One box of the graph: nodes, or an input or output of the model.

    Attributes:
        nodes: parallel nodes of one kind, each possibly followed by its activation; empty
            for an input or output of the model.
        title: what they do.
        name: what the user calls them.
        reads: the tensors that lead here.
        makes: the tensors that lead on.
    """

    nodes: tuple[NodeInfo, ...]
    title: str
    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]

    @property
    def placement(self) -> str:
        """Placement of its nodes; ``end`` for an input or output of the model."""
        return self.nodes[0].placement if self.nodes else "end"

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of all nodes."""
        each = [node.macs for node in self.nodes]
        return None if None in each else sum(number or 0 for number in each)

    @property
    def parameters(self) -> int:
        """Number of parameters of all nodes."""
        return sum(node.parameters for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes by the user's names, each once."""
        return tuple(dict.fromkeys(node.name for node in self.nodes))


def boxes_of(report: Report) -> tuple[Box, ...]:
    """The picture's boxes in topological order; none where the report has no graph."""
    if not any(node.outputs for node in report.nodes):
        return ()
    model = report.model
    inputs = [Box((), "input", one.name, (), (one.name,)) for one in model.inputs]
    outputs = [Box((), "output", one.name, (one.name,), ()) for one in model.outputs]
    return (*inputs, *_alike(_fused(report)), *outputs)


def edges_of(boxes: Iterable[Box]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (from, to) of connected boxes, each once; the first is always lower."""
    makers: dict[str, int] = {}
    found: dict[tuple[int, int], None] = {}
    for at, box in enumerate(boxes):
        for tensor in box.reads:
            if makers.get(tensor, at) != at:
                found[makers[tensor], at] = None
        makers.update(dict.fromkeys(box.makes, at))
    return tuple(found)


def activations(report: Report) -> dict[str, NodeInfo]:
    """Tensors that only an activation of the device reads, and that activation."""
    readers = Counter(t for node in report.nodes for t in node.inputs)
    kept = {one.name for one in report.model.outputs}
    return {
        node.inputs[0]: node
        for node in report.nodes
        if node.op in FUSED
        and node.placement == "device"
        and len(node.inputs) == 1
        and readers[node.inputs[0]] == 1
        and node.inputs[0] not in kept
    }


def _fused(report: Report) -> list[Box]:
    """Every node in a box, with the activation that the device applies to its output."""
    behind, made = activations(report), []
    hidden = set[int]()
    for node in report.nodes:
        last = behind.get(node.outputs[0]) if node.placement == "device" and node.outputs else None
        if id(node) in hidden:
            continue
        if last is not None and last.subgraph == node.subgraph:
            hidden.add(id(last))
            made.append(_box((node, last), f"{node.form or node.op} + {last.op}"))
        else:
            made.append(_box((node,), node.form or node.op))
    return made


def _box(nodes: tuple[NodeInfo, ...], title: str) -> Box:
    return Box(nodes, title, nodes[0].name, nodes[0].inputs, nodes[-1].outputs)


def _alike(boxes: list[Box]) -> list[Box]:
    """Parts of one source node that do the same side by side share a box."""
    groups: dict[object, list[Box]] = {}
    depth: dict[str, int] = {}
    for box in boxes:
        level = 1 + max((depth.get(tensor, 0) for tensor in box.reads), default=0)
        depth.update(dict.fromkeys(box.makes, level))
        groups.setdefault((box.name, box.title, box.placement, level), []).append(box)
    joined = [_join(group) for group in groups.values()]
    return sorted(joined, key=lambda box: _depth(box, depth))


def _depth(box: Box, depth: dict[str, int]) -> int:
    return max((depth.get(t, 0) for t in box.makes), default=len(depth) + 1)


def _join(group: list[Box]) -> Box:
    if len(group) == 1:
        return group[0]
    return Box(
        nodes=tuple(node for box in group for node in box.nodes),
        title=f"{len(group)} x {group[0].title}",
        name=group[0].name,
        reads=tuple(dict.fromkeys(t for box in group for t in box.reads)),
        makes=tuple(t for box in group for t in box.makes),
    )
