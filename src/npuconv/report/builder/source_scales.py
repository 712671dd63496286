"""Row of the report on a model that was quantized already: what is kept of it, what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.arithmetic.encoding import HIGHEST
from npuconv.quantize import kept
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.quantize.state import DeviceGraph, QuantState

_WHY = {
    kept.CENTRED: "the device pads it with the integer 0",
    kept.MOVED: "the lowest integer has to stand for 0 where a Relu or a Pad is left out",
    kept.NARROWED: "a Clip ends where int8 does",
}


def source_scales(graph: DeviceGraph, state: QuantState) -> schema.SourceScales | None:
    """Return what is kept of a quantized model; None for a float model.

    Args:
        graph: the legal float model, before it is lowered.
        state: how it is quantized.
    """
    source = graph.source_scales
    if not source:
        return None
    found = kept.match_groups(graph.model, graph.plan, source)
    own = [g for g in graph.plan.groups if state.methods.get(g.name) in (kept.METHOD, kept.MOVED)]
    labels = [state.roundings.get(conv.name, "") for conv in graph.plan.device]
    changed = {
        **dict(_tensors(graph, state, found)),
        **found.changed,
        **dict(_layers(graph, state)),
    }
    return schema.SourceScales(
        tensors=sum(len(group.tensors) for group in own),
        all_tensors=sum(len(group.tensors) for group in graph.plan.groups),
        layers=sum(label.startswith(kept.METHOD) for label in labels),
        all_layers=len(labels),
        changed=tuple(schema.ChangedScale(name=n, reason=r) for n, r in changed.items()),
    )


def _tensors(graph: DeviceGraph, state: QuantState, found: kept.Kept) -> Iterator[tuple[str, str]]:
    for group in graph.plan.groups:
        before, method = found.groups.get(group.name), state.methods.get(group.name, "")
        if before is not None and method in _WHY:
            yield group.name, f"{_WHY[method]}: {_difference(before, state.encodings[group.name])}"


def _difference(before: Encoding, after: Encoding) -> str:
    cut = float(before.nominal) * (HIGHEST - int(before.zeros[0]))
    zeros = f"zero point {int(before.zeros[0])} becomes {int(after.zeros[0])}"
    ratio = float(after.nominal) / float(before.nominal)
    if ratio == 1:
        return f"{zeros}, and values above {cut:.4g} are no longer cut off"
    return f"{zeros}, steps are {ratio:.2f} times as large"


def _layers(graph: DeviceGraph, state: QuantState) -> Iterator[tuple[str, str]]:
    for conv in graph.plan.device:
        label = state.roundings.get(conv.name, "")
        if label.startswith(f"{kept.METHOD}, "):
            yield graph.model.label(conv), f"weights {label.removeprefix(f'{kept.METHOD}, ')}"
        elif conv.name in state.lost:
            yield graph.model.label(conv), state.lost[conv.name]
