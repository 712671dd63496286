"""The graph of a report: nodes as boxes, their places, and a card with details of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rich.cells import cell_len, set_cell_size

from npuconv.records import dataclass, replace
from npuconv.report import words
from npuconv.report.escape import elide, visible
from npuconv.report.graph_layout import BOX, HEIGHT, Drawing, draw
from npuconv.report.groups import anchor, group_by, kind
from npuconv.schemas.quality import LayerQuant, TensorQuant
from npuconv.schemas.report import FindingInfo, NodeInfo, Report

_FUSED = ("Relu", "Clip")  # operators that share the box of the convolution before them
_BRIEF, _TITLE, _NAME = 11, 21, 26  # columns of text that fit into a box
_SHADES = 5  # number of shades of a box, for its share of the MACs or of the noise
_MAX_FINDINGS = 6  # findings on a card
_MAX_TENSORS = 2  # tensors on a card
_OPEN = ("error", "warning", "unknown")  # kinds of open findings, the most severe first

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
    inputs: tuple[str, ...]  # input tensors
    outputs: tuple[str, ...]  # output tensors
    # Placement of its nodes; ``end`` for an input or output of the model. A source node has the
    # placement of its replacement, or ``gone``; and the suffix ``changed`` if it was rewritten.
    placement: str = "end"
    rows: tuple[Row, ...] = ()  # details of a source node

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
    """Return the boxes of the source model; none if the report does not have its graph."""
    if not report.source_nodes:
        return ()
    places: dict[str, str] = {}
    for node in report.nodes:  # a source node with one part on the device counts as device
        if places.get(node.name) != "device":
            places[node.name] = node.placement
    rewritten = {row.node: row for row in report.plan}
    boxes = []
    for source in report.source_nodes:
        place, row = places.get(source.name, "gone"), rewritten.get(source.name)
        runs_on = place if place != "gone" else "merged into others, or removed"
        details = [("node", source.name), ("runs on", runs_on)]
        if row is not None:
            place += " changed"
            details += [("becomes", row.becomes), ("by", ", ".join(row.passes))]
        boxes.append(Box(
            (), source.form, source.name, source.inputs, source.outputs, place, tuple(details)
        ))  # fmt: skip
    return _with_ends(report, boxes)


def _with_ends(report: Report, boxes: Iterable[Box]) -> tuple[Box, ...]:
    inputs = [Box((), "input", tensor.name, (), (tensor.name,)) for tensor in report.model.inputs]
    outputs = [
        Box((), "output", tensor.name, (tensor.name,), ()) for tensor in report.model.outputs
    ]
    return (*inputs, *boxes, *outputs)


def edges_of(boxes: Iterable[Box]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (from, to) of numbers of connected boxes, each once; from < to."""
    producers: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for number, box in enumerate(boxes):
        for tensor in box.inputs:
            if producers.get(tensor, number) != number:
                edges[producers[tensor], number] = None
        producers.update(dict.fromkeys(box.outputs, number))
    return tuple(edges)


def fused_activations(report: Report) -> dict[str, NodeInfo]:
    """Return the activations on the device by their input, if it has no other consumer."""
    consumers = Counter(tensor for node in report.nodes for tensor in node.inputs)
    outputs = {output.name for output in report.model.outputs}
    return {
        node.inputs[0]: node
        for node in report.nodes
        if node.op in _FUSED
        and node.placement == "device"
        and len(node.inputs) == 1
        and consumers[node.inputs[0]] == 1
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
        boxes.append(Box(nodes, title, node.name, node.inputs, last.outputs, node.placement))
    return boxes


def _join_alike(boxes: Iterable[Box]) -> list[Box]:
    """Join boxes of one source node that are parallel and have the same title and placement."""
    depth: dict[str, int] = {}
    parallel: dict[object, list[Box]] = {}
    for box in boxes:
        level = 1 + max((depth.get(tensor, 0) for tensor in box.inputs), default=0)
        depth.update(dict.fromkeys(box.outputs, level))
        parallel.setdefault((box.name, box.title, box.placement, level), []).append(box)
    last = len(depth) + 1
    joined = []
    for alike in parallel.values():
        first = alike[0]
        if len(alike) > 1:
            first = replace(
                first,
                nodes=tuple(node for box in alike for node in box.nodes),
                title=f"{len(alike)} x {first.title}",
                inputs=tuple(dict.fromkeys(tensor for box in alike for tensor in box.inputs)),
                outputs=tuple(tensor for box in alike for tensor in box.outputs),
            )
        joined.append(first)
    return sorted(joined, key=lambda box: max((depth[t] for t in box.outputs), default=last))


@dataclass(frozen=True)
class Card:
    """A box in its place, with the details that are shown when it is picked."""

    box: Box
    x: int  # left edge, in pixels at 100 %
    y: int  # top edge, in pixels at 100 %
    brief: str  # the operator alone, for a small drawing
    title: str  # title, cut to the width of the box
    name: str  # name, cut to the width of the box
    worst: str  # kind of the most severe open finding; empty without open findings
    count: int  # number of open findings
    macs_shade: int  # 0 for no MACs, up to 5 for the box with the most MACs
    noise_shade: int  # 0 for no noise in the outputs, up to 5 for the box with the most noise
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
    def removed_nodes(self) -> int:
        """Number of source nodes that were merged into others or removed."""
        return sum(card.box.placement.startswith("gone") for card in self.cards)

    @property
    def has_noise(self) -> bool:
        """True if any card shows a share of the noise."""
        return any(card.noise_shade for card in self.cards)


def picture(report: Report) -> Picture | None:
    """Draw the graph of a report; ``None`` if the report has none."""
    return _draw(report, boxes_of(report))


def source_picture(report: Report) -> Picture | None:
    """Draw the graph of the source model; ``None`` if nothing of it was rewritten."""
    return _draw(report, source_boxes(report))


def _draw(report: Report, boxes: tuple[Box, ...]) -> Picture | None:
    edges = edges_of(boxes)
    drawing = draw(len(boxes), edges)
    if drawing is None:
        return None
    quant = report.quantization
    layers = group_by(quant.layers if quant else (), _source_node)
    tensors = {tensor.name: tensor for tensor in (quant.tensors if quant else ())}
    findings = group_by(report.findings, lambda finding: finding.node)
    layers_of = [[layer for name in box.names for layer in layers.get(name, ())] for box in boxes]
    noise = [sum(layer.noise_share or 0.0 for layer in of_box) for of_box in layers_of]
    most_macs, most_noise = max(box.macs or 0 for box in boxes), max(noise)
    cards = []
    for number, (box, (x, y)) in enumerate(zip(boxes, drawing.boxes, strict=True)):
        of_box = [f for name in box.names if name for f in findings.get(name, ())]
        kinds = [_kind(finding) for finding in of_box if _kind(finding) in _OPEN]
        operator = box.nodes[0].op.rpartition(".")[2] if box.nodes else box.title.split(" ")[0]
        card = Card(
            box=box,
            x=x - BOX // 2,
            y=y,
            brief=_cut(operator, _BRIEF),
            title=_cut(box.title, _TITLE),
            name=elide(visible(box.name), _NAME),
            worst=min(kinds, key=_OPEN.index, default=""),
            count=len(kinds),
            macs_shade=_shade(box.macs or 0, most_macs),
            noise_shade=_shade(noise[number], most_noise),
            rows=tuple(_rows(box, layers_of[number], tensors)),
            findings=tuple(_finding_rows(of_box)),
        )
        cards.append(card)
    return Picture(drawing, tuple(cards), edges)


def _source_node(layer: LayerQuant) -> str:
    """Return the node of a layer: ``Conv`` of ``Conv (2 of 4)``."""
    head, bracket, tail = layer.name.rpartition(" (")
    return head if bracket and tail.endswith(")") and " of " in tail else layer.name


def _cut(text: str, width: int) -> str:
    """Return the text cut to the width in columns; an ellipsis marks the cut."""
    text = visible(text)
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def _rows(
    box: Box, layers: Iterable[LayerQuant], tensors: Mapping[str, TensorQuant]
) -> Iterator[Row]:
    """Yield label and text of the details of a box: place, costs, accuracy, ranges."""
    if not box.nodes:
        yield from box.rows
        return
    first, last = box.nodes[0], box.nodes[-1]
    yield "nodes" if len(box.names) > 1 else "node", ", ".join(box.names)
    yield "runs on", f"{first.placement}: {first.reason}" if first.reason else first.placement
    if first.subgraph:
        yield "subgraph", str(first.subgraph)
    if last.shape:
        yield "makes", words.shape(last.shape)
    if box.macs != 0 or box.parameters:
        yield "costs", f"{words.quantity(box.macs)} MACs, {box.parameters:,} parameters"
    for layer in layers:
        yield "SQNR so far", words.sqnr(layer.sqnr_db, layer.cosine)
        if layer.noise_share is not None:
            yield "of the noise", words.percent(layer.noise_share)
        if layer.weights is not None:
            yield "weights", f"{layer.weights.minimum:.4g} to {layer.weights.maximum:.4g}"
    for tensor in [tensors[name] for name in box.outputs if name in tensors][:_MAX_TENSORS]:
        scales = f"{tensor.scale:.4g}"
        if tensor.channels > 1 and tensor.smallest_scale is not None:
            scales = f"{tensor.smallest_scale:.4g} to {scales}, {tensor.channels} channels"
        yield "range seen", f"{tensor.minimum:.4g} to {tensor.maximum:.4g}"
        yield "scale", scales
        yield "clipped", words.percent(tensor.clip_fraction)


def _kind(finding: FindingInfo) -> str:
    """Return the kind that a finding counts as; ``note`` if a baseline accepts it."""
    return "note" if finding.accepted else kind(finding)


def _finding_rows(findings: Iterable[FindingInfo]) -> list[FindingRow]:
    order = (*_OPEN, "note", "rewritten")
    unique_rows = dict.fromkeys(
        (_kind(finding), f"{finding.name}: {finding.message}", anchor(finding))
        for finding in findings
    )
    rows = sorted(unique_rows, key=lambda row: order.index(row[0]))
    hidden = len(rows) - _MAX_FINDINGS
    more = [("note", f"and {hidden} more, see the findings", "findings")] if hidden > 0 else []
    return rows[:_MAX_FINDINGS] + more


def _shade(value: float, most: float) -> int:
    """Return a shade of 0 to 5 by the square root of a share, so that small shares differ."""
    if value <= 0 or most <= 0:
        return 0
    return max(1, min(_SHADES, round(_SHADES * (value / most) ** 0.5)))
