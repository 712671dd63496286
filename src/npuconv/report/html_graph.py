"""The graph of a report as a picture: boxes in their places, and what is said of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npuconv.report import words
from npuconv.report.digest import kind
from npuconv.report.escape import visible
from npuconv.report.html_boxes import Box, activations, boxes_of, edges_of
from npuconv.report.html_columns import HEIGHT, draw
from npuconv.report.html_layers import BOX, arrange
from npuconv.report.layout import cells, elide
from npuconv.schemas.report import FindingInfo, LayerQuant, Report, TensorQuant

_BRIEF, _TITLE, _NAME = 11, 21, 26  # columns of text that fit into a box
_SHADES = 5  # of a box, by its share of the MACs or of the noise
_TOLD = 6  # findings of a box that are told
_LABELS = ("error", "warning", "unknown")  # what is left to look at, the worst first

Row = tuple[str, str]


@dataclass(frozen=True)
class Card:
    """A box in its place, with what is shown when it is picked."""

    box: Box
    x: int
    y: int
    brief: str  # shown where nothing else can be read
    title: str
    name: str
    worst: str  # kind of the worst finding; empty without one
    count: int  # findings that are left
    macs_shade: int
    noise_shade: int
    rows: tuple[Row, ...]
    findings: tuple[Row, ...]

    @property
    def told(self) -> dict[str, object]:
        """Content of the card, as data for the script of the page."""
        return {
            "title": visible(self.box.title),
            "name": visible(self.box.name),
            "names": [visible(name) for name in self.box.names],
            "rows": [[key, visible(text)] for key, text in self.rows],
            "findings": [[label, visible(text)] for label, text in self.findings],
        }


@dataclass(frozen=True)
class Picture:
    """The graph as the page draws it."""

    width: int
    height: int
    cards: tuple[Card, ...]
    paths: dict[int, str]
    far: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    box: tuple[int, int] = (BOX, HEIGHT)

    @property
    def told(self) -> dict[str, object]:
        """Cards and edges, as data for the script of the page."""
        return {"cards": [card.told for card in self.cards], "edges": self.edges}

    @property
    def has_noise(self) -> bool:
        """True if any card shows a share of the noise."""
        return any(card.noise_shade for card in self.cards)


def picture(report: Report) -> Picture | None:
    """The graph of a report; ``None`` where the report has none."""
    boxes = boxes_of(report)
    if not boxes:
        return None
    edges = edges_of(boxes)
    drawing = draw(arrange(len(boxes), edges))
    about = _About(report)
    most = max((box.macs or 0 for box in boxes), default=0)
    cards = tuple(
        about.card(box, place, most) for box, place in zip(boxes, drawing.boxes, strict=True)
    )
    return Picture(drawing.width, drawing.height, cards, drawing.paths, drawing.far, edges)


class _About:
    """Lookup of what a report says about its nodes, by their names."""

    def __init__(self, report: Report) -> None:
        quant = report.quantization
        self.layers = _by_source(quant.layers if quant else ())
        self.tensors = {one.name: one for one in (quant.tensors if quant else ())}
        self.cut = activations(report)
        self.findings: dict[str, list[FindingInfo]] = {}
        for finding in report.findings:
            if finding.node:
                self.findings.setdefault(finding.node, []).append(finding)

    def card(self, box: Box, place: tuple[int, int], most: int) -> Card:
        """Return the card of a box at its place, with what the report says about its nodes."""
        found = [one for name in box.names for one in self.findings.get(name, ())]
        left = [one for one in found if _kind(one) in _LABELS]
        layers = [one for name in box.names for one in self.layers.get(name, ())]
        noise = sum(one.noise_share or 0.0 for one in layers)
        kinds = {_kind(one) for one in left}
        return Card(
            box=box,
            x=place[0] - BOX // 2,
            y=place[1],
            brief=_head(visible(_brief(box)), _BRIEF),
            title=_head(visible(box.title), _TITLE),
            name=elide(visible(box.name), _NAME),
            worst=next((name for name in _LABELS if name in kinds), ""),
            count=len(left),
            macs_shade=_shade(box.macs or 0, most),
            noise_shade=_shade(noise, 1.0),
            rows=tuple(self._rows(box, layers)),
            findings=tuple(_told(found)),
        )

    def _rows(self, box: Box, layers: list[LayerQuant]) -> list[Row]:
        if not box.nodes:
            return []
        names = ", ".join(box.names)
        first, last = box.nodes[0], box.nodes[-1]
        rows = [("nodes" if len(box.names) > 1 else "node", names)]
        rows.append(
            ("runs on", f"{first.placement}: {first.reason}" if first.reason else first.placement)
        )
        rows += [("subgraph", str(first.subgraph))] if first.subgraph else []
        rows += [("makes", words.shape(last.shape))] if last.shape else []
        if box.macs != 0 or box.parameters:
            rows.append(
                ("costs", f"{words.quantity(box.macs)} MACs, {box.parameters:,} parameters")
            )
        rows += [row for layer in layers for row in _layer(layer)]
        stored = [self.tensors[t] for t in box.makes if t in self.tensors]
        return rows + [row for tensor in stored[:2] for row in _tensor(tensor)]


def _brief(box: Box) -> str:
    """The operator alone."""
    return box.nodes[0].op.rpartition(".")[2] if box.nodes else box.title


def _head(text: str, width: int) -> str:
    """Cut the text to the width; a cut is marked by an ellipsis."""
    text = text[: width + 1]  # a character takes a cell at least
    while cells(text) > width:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def _by_source(layers: tuple[LayerQuant, ...]) -> Mapping[str, list[LayerQuant]]:
    """Layers by the node they stand for: ``Conv (2 of 4)`` is one of Conv."""
    found: dict[str, list[LayerQuant]] = {}
    for layer in layers:
        head, bracket, tail = layer.name.rpartition(" (")
        part = bracket and tail.endswith(")") and " of " in tail
        found.setdefault(head if part else layer.name, []).append(layer)
    return found


def _layer(layer: LayerQuant) -> list[Row]:
    rows = [("SQNR so far", words.sqnr(layer.sqnr_db, layer.cosine))]
    if layer.noise_share is not None:
        rows.append(("of the noise", words.percent(layer.noise_share)))
    if layer.weights is not None:
        low, high = layer.weights.minimum, layer.weights.maximum
        rows.append(("weights", f"{low:.4g} to {high:.4g}"))
    return rows


def _tensor(tensor: TensorQuant) -> list[Row]:
    scales = f"{tensor.scale:.4g}"
    if tensor.channels > 1 and tensor.smallest_scale is not None:
        scales = f"{tensor.smallest_scale:.4g} to {scales}, {tensor.channels} channels"
    seen = f"{tensor.minimum:.4g} to {tensor.maximum:.4g}"
    return [
        ("range seen", seen),
        ("scale", scales),
        ("clipped", words.percent(tensor.clip_fraction)),
    ]


def _kind(finding: FindingInfo) -> str:
    """Return the kind that a finding counts as; ``note`` if a baseline accepts it."""
    return "note" if finding.accepted else kind(finding)


def _told(findings: list[FindingInfo]) -> list[Row]:
    order = (*_LABELS, "note", "rewritten")
    listed = dict.fromkeys((_kind(one), f"{one.name}: {one.message}") for one in findings)
    rows = sorted(listed, key=lambda row: order.index(row[0]))
    more = len(rows) - _TOLD
    return rows[:_TOLD] + ([("note", f"and {more} more, see the findings")] if more > 0 else [])


def _shade(value: float, most: float) -> int:
    """0 for nothing, up to 5; by the square root, so that small shares are told apart."""
    if value <= 0 or most <= 0:
        return 0
    return max(1, min(_SHADES, round(_SHADES * (value / most) ** 0.5)))
