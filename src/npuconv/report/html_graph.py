"""The graph of a report: nodes as boxes, their places, and a card with details of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from npuconv.report import words
from npuconv.report.escape import visible
from npuconv.report.graph_layout import BOX, HEIGHT, Drawing, arrange, draw
from npuconv.report.groups import anchor, group_by, kind
from npuconv.report.terminal import elide
from npuconv.schemas.quality import LayerQuant, TensorQuant
from npuconv.schemas.report import FindingInfo, NodeInfo, Report

_FUSED = ("Relu", "Clip")  # in one box with the convolution that they follow
_BRIEF, _TITLE, _NAME = 11, 21, 26  # columns of text that fit into a box
_SHADES = 5  # of a box, by its share of the MACs or of the noise
_MAX_FINDINGS = 6  # on a card
_MAX_TENSORS = 2  # on a card
_OPEN = ("error", "warning", "unknown")  # kinds left to look at, the most severe first

Row = tuple[str, str]
FindingRow = tuple[str, str, str]


@dataclass(frozen=True)
class Box:
    """One box of the graph: nodes, or an input or output of the model."""

    # Parallel nodes of one kind, each possibly followed by its activation; empty for an input or
    # output of the model.
    nodes: tuple[NodeInfo, ...]
    title: str
    name: str  # the name in the source model
    reads: tuple[str, ...]  # the tensors that lead here
    makes: tuple[str, ...]  # the tensors that lead on
    # Of a node of the source: placement of what it became, or ``gone``; and ``changed`` where it
    # became something else.
    place: str = "end"
    rows: tuple[Row, ...] = ()  # details of such a node

    @property
    def placement(self) -> str:
        """Placement of its nodes; ``end`` for an input or output of the model."""
        return self.nodes[0].placement if self.nodes else self.place

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of all nodes; ``None`` if any is unknown."""
        return words.total(node.macs for node in self.nodes)

    @property
    def parameters(self) -> int:
        """Number of parameters of all nodes."""
        return sum(node.parameters for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes in the source model, each once."""
        if self.rows:
            return (self.name,)
        return tuple(dict.fromkeys(node.name for node in self.nodes))


def boxes_of(report: Report) -> tuple[Box, ...]:
    """Return the boxes in topological order; none if the report has no graph."""
    if not any(node.outputs for node in report.nodes):
        return ()
    return _with_ends(report, _join_alike(_fuse(report)))


def source_boxes(report: Report) -> tuple[Box, ...]:
    """Return the boxes of the model as it came; none if the report has no such graph."""
    if not report.source_nodes:
        return ()
    places: dict[str, str] = {}
    for node in report.nodes:  # what is on the device counts, where a node became several
        if places.get(node.name) != "device":
            places[node.name] = node.placement
    rewritten = {row.node: row for row in report.plan}
    boxes = []
    for one in report.source_nodes:
        place, row = places.get(one.name, "gone"), rewritten.get(one.name)
        rows = [
            ("node", one.name),
            ("runs on", place if place != "gone" else "merged into others, or removed"),
        ]
        if row is not None:
            place += " changed"
            rows += [("becomes", row.becomes), ("by", ", ".join(row.passes))]
        boxes.append(Box((), one.form, one.name, one.inputs, one.outputs, place, tuple(rows)))
    return _with_ends(report, boxes)


def _with_ends(report: Report, boxes: Iterable[Box]) -> tuple[Box, ...]:
    inputs = [Box((), "input", one.name, (), (one.name,)) for one in report.model.inputs]
    outputs = [Box((), "output", one.name, (one.name,), ()) for one in report.model.outputs]
    return (*inputs, *boxes, *outputs)


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


def fused_activations(report: Report) -> dict[str, NodeInfo]:
    """Return the tensors that only an activation of the device reads, and that activation."""
    readers = Counter(t for node in report.nodes for t in node.inputs)
    outputs = {output.name for output in report.model.outputs}
    return {
        node.inputs[0]: node
        for node in report.nodes
        if node.op in _FUSED
        and node.placement == "device"
        and len(node.inputs) == 1
        and readers[node.inputs[0]] == 1
        and node.inputs[0] not in outputs
    }


def _fuse(report: Report) -> list[Box]:
    """Return a box for every node, together with the activation that reads its output."""
    fused, boxes = fused_activations(report), []
    hidden = set[int]()
    for node in report.nodes:
        if id(node) in hidden:
            continue
        last, title = node, node.form or node.op
        if node.placement == "device" and node.outputs:
            reader = fused.get(node.outputs[0])
            if reader is not None and reader.subgraph == node.subgraph:
                last, title = reader, f"{title} + {reader.op}"
                hidden.add(id(reader))
        nodes = (node,) if last is node else (node, last)
        boxes.append(Box(nodes, title, node.name, node.inputs, last.outputs))
    return boxes


def _join_alike(boxes: Iterable[Box]) -> list[Box]:
    """Join the boxes of one source node that do the same in parallel."""
    depth: dict[str, int] = {}
    alike: dict[object, list[Box]] = {}
    for box in boxes:
        level = 1 + max((depth.get(tensor, 0) for tensor in box.reads), default=0)
        depth.update(dict.fromkeys(box.makes, level))
        alike.setdefault((box.name, box.title, box.placement, level), []).append(box)
    last = len(depth) + 1
    joined = map(_join, alike.values())
    return sorted(joined, key=lambda box: max((depth[t] for t in box.makes), default=last))


def _join(same: list[Box]) -> Box:
    if len(same) == 1:
        return same[0]
    return Box(
        nodes=tuple(node for box in same for node in box.nodes),
        title=f"{len(same)} x {same[0].title}",
        name=same[0].name,
        reads=tuple(dict.fromkeys(t for box in same for t in box.reads)),
        makes=tuple(t for box in same for t in box.makes),
    )


@dataclass(frozen=True)
class Card:
    """A box in its place, with the details that are shown when it is picked."""

    box: Box
    x: int  # of its left end, in pixels at 100 %
    y: int  # of its top
    brief: str  # the operator alone, shown where the drawing is small
    title: str  # cut to the box, as the name
    name: str
    worst: str  # kind of the most severe open finding; empty without one
    count: int  # of open findings
    macs_shade: int  # 0 for no MACs, up to 5 for the largest number of a box
    noise_shade: int  # 0 for no noise in the outputs, up to 5 for the largest share of a box
    rows: tuple[Row, ...]  # label and text of each detail
    findings: tuple[FindingRow, ...]  # kind, text and anchor of each, the most severe first

    @property
    def data(self) -> dict[str, object]:
        """Content of the card for the script of the page."""
        return {
            "title": visible(self.box.title),
            "name": visible(self.box.name),
            "names": [visible(name) for name in self.box.names],
            "rows": [[key, visible(text)] for key, text in self.rows],
            "findings": [[label, visible(text), to] for label, text, to in self.findings],
        }


@dataclass(frozen=True)
class Picture:
    """The graph as the page draws it."""

    drawing: Drawing
    cards: tuple[Card, ...]
    edges: tuple[tuple[int, int], ...]
    box: tuple[int, int] = (BOX, HEIGHT)

    @property
    def data(self) -> dict[str, object]:
        """Cards and edges for the script of the page."""
        return {"cards": [card.data for card in self.cards], "edges": self.edges}

    @property
    def gone(self) -> int:
        """Number of source nodes of which nothing is left."""
        return sum(card.box.place.startswith("gone") for card in self.cards)

    @property
    def has_noise(self) -> bool:
        """True if any card shows a share of the noise."""
        return any(card.noise_shade for card in self.cards)


def picture(report: Report) -> Picture | None:
    """Draw the graph of a report; ``None`` if the report has none."""
    return _draw(report, boxes_of(report))


def source_picture(report: Report) -> Picture | None:
    """Draw the graph of the model as it came; ``None`` if nothing of it was rewritten."""
    return _draw(report, source_boxes(report))


def _draw(report: Report, boxes: tuple[Box, ...]) -> Picture | None:
    if not boxes:
        return None
    edges = edges_of(boxes)
    drawing = draw(arrange(len(boxes), edges))
    details = _Details(report)
    most = max(box.macs or 0 for box in boxes), max(map(details.noise, boxes))
    cards = tuple(
        details.card(box, place, *most) for box, place in zip(boxes, drawing.boxes, strict=True)
    )
    return Picture(drawing, cards, edges)


class _Details:
    """Lookup of layers, tensors and findings of a report by their names."""

    def __init__(self, report: Report) -> None:
        quant = report.quantization
        self.layers = group_by(quant.layers if quant else (), _source_node)
        self.tensors = {tensor.name: tensor for tensor in (quant.tensors if quant else ())}
        self.findings = group_by(report.findings, lambda one: one.node)

    def noise(self, box: Box) -> float:
        """Return the share of the noise that the nodes of a box make, 0..1."""
        layers = (one for name in box.names for one in self.layers.get(name, ()))
        return sum(layer.noise_share or 0.0 for layer in layers)

    def card(self, box: Box, place: tuple[int, int], most_macs: int, most_noise: float) -> Card:
        """Return the card of a box at its place; the shades compare it with the largest."""
        findings = [one for name in box.names if name for one in self.findings.get(name, ())]
        layers = [one for name in box.names for one in self.layers.get(name, ())]
        kinds = [_kind(finding) for finding in findings if _kind(finding) in _OPEN]
        return Card(
            box=box,
            x=place[0] - BOX // 2,
            y=place[1],
            brief=_cut(visible(_operator(box)), _BRIEF),
            title=_cut(visible(box.title), _TITLE),
            name=elide(visible(box.name), _NAME),
            worst=min(kinds, key=_OPEN.index, default=""),
            count=len(kinds),
            macs_shade=_shade(box.macs or 0, most_macs),
            noise_shade=_shade(self.noise(box), most_noise),
            rows=tuple(self._rows(box, layers)),
            findings=tuple(_finding_rows(findings)),
        )

    def _rows(self, box: Box, layers: Iterable[LayerQuant]) -> list[Row]:
        if not box.nodes:
            return list(box.rows)
        first, last = box.nodes[0], box.nodes[-1]
        reason = f": {first.reason}" if first.reason else ""
        rows = [
            ("nodes" if len(box.names) > 1 else "node", ", ".join(box.names)),
            ("runs on", f"{first.placement}{reason}"),
        ]
        rows += [("subgraph", str(first.subgraph))] if first.subgraph else []
        rows += [("makes", words.shape(last.shape))] if last.shape else []
        if box.macs != 0 or box.parameters:
            costs = f"{words.quantity(box.macs)} MACs, {box.parameters:,} parameters"
            rows.append(("costs", costs))
        rows += [row for layer in layers for row in _layer_rows(layer)]
        tensors = [self.tensors[t] for t in box.makes if t in self.tensors]
        return rows + [row for tensor in tensors[:_MAX_TENSORS] for row in _tensor_rows(tensor)]


def _source_node(layer: LayerQuant) -> str:
    """Return the node of a layer: ``Conv`` of ``Conv (2 of 4)``."""
    head, bracket, tail = layer.name.rpartition(" (")
    return head if bracket and tail.endswith(")") and " of " in tail else layer.name


def _operator(box: Box) -> str:
    return box.nodes[0].op.rpartition(".")[2] if box.nodes else box.title.split(" ")[0]


def _cut(text: str, width: int) -> str:
    """Return the text cut to the width in columns; an ellipsis marks the cut."""
    text = text[: width + 1]  # a character takes a cell at least
    while cell_len(text) > width:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def _layer_rows(layer: LayerQuant) -> list[Row]:
    rows = [("SQNR so far", words.sqnr(layer.sqnr_db, layer.cosine))]
    if layer.noise_share is not None:
        rows.append(("of the noise", words.percent(layer.noise_share)))
    if layer.weights is not None:
        rows.append(("weights", f"{layer.weights.minimum:.4g} to {layer.weights.maximum:.4g}"))
    return rows


def _tensor_rows(tensor: TensorQuant) -> list[Row]:
    scales = f"{tensor.scale:.4g}"
    if tensor.channels > 1 and tensor.smallest_scale is not None:
        scales = f"{tensor.smallest_scale:.4g} to {scales}, {tensor.channels} channels"
    return [
        ("range seen", f"{tensor.minimum:.4g} to {tensor.maximum:.4g}"),
        ("scale", scales),
        ("clipped", words.percent(tensor.clip_fraction)),
    ]


def _kind(finding: FindingInfo) -> str:
    """Return the kind that a finding counts as; ``note`` if a baseline accepts it."""
    return "note" if finding.accepted else kind(finding)


def _finding_rows(findings: Iterable[FindingInfo]) -> list[FindingRow]:
    order = (*_OPEN, "note", "rewritten")
    unique_rows = dict.fromkeys(
        (_kind(one), f"{one.name}: {one.message}", anchor(one)) for one in findings
    )
    rows = sorted(unique_rows, key=lambda row: order.index(row[0]))
    hidden = len(rows) - _MAX_FINDINGS
    more = [("note", f"and {hidden} more, see the findings", "findings")] if hidden > 0 else []
    return rows[:_MAX_FINDINGS] + more


def _shade(value: float, most: float) -> int:
    """Return 0 for nothing, up to 5; by the square root, so that small shares differ."""
    if value <= 0 or most <= 0:
        return 0
    return max(1, min(_SHADES, round(_SHADES * (value / most) ** 0.5)))
