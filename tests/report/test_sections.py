"""Tables of a report that text, Markdown and the page share."""

from __future__ import annotations

from npuconv.report.sections import subgraphs
from npuconv.schemas.report import Report


def test_subgraphs(report: Report) -> None:
    """Unknown bytes of one tensor make those of the subgraph unknown."""
    device = report.device
    assert device is not None
    first, second = device.subgraphs[:2]
    row = subgraphs(device).rows[0]
    assert row[:3] == ("1", "1", "1.0 k")
    assert row[5:] == ("226.0 KiB", "512 B")
    port = first.inputs[0].model_copy(update={"bytes": None})
    unknown = (
        first.model_copy(update={"inputs": (port,)}),
        second.model_copy(update={"macs": None}),
    )
    rows = subgraphs(device.model_copy(update={"subgraphs": unknown})).rows
    assert (rows[0][5], rows[1][2]) == ("unknown", "unknown")
