"""Two models side by side, as plain numbers: for ``npuconv inspect --diff``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv.inspection import Convolution, Inspection, read, summarize

if TYPE_CHECKING:
    import onnx

    from npuconv.model.core import Model

Sides = tuple[str, str]  # before, after
_OF_ONE = ("operator", "kernel", "weights", "MACs")  # told where only one side is a convolution


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
class Comparison:
    """Two models, and what differs."""

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
) -> Comparison:
    """Compare two models; nothing is changed.

    Args:
        before: path or ModelProto.
        after: the same model later, float or int8.
        input_shape: extents for dynamic dimensions of both.

    Raises:
        ModelError: one is not a valid model.
    """
    source = read(before, input_shape)
    old, new = summarize(source), summarize(read(after, input_shape))
    names = sorted({*old.operators, *new.operators})
    counts = {op: Counts(old.operators.get(op, 0), new.operators.get(op, 0)) for op in names}
    return Comparison(old, new, counts, _matches(_operators(source), old, new))


def _operators(model: Model) -> dict[str, str]:
    """Return every top-level node's name with its operator."""
    return {model.label(node): node.op for node in model.nodes()}


def _matches(operators: dict[str, str], before: Inspection, after: Inspection) -> tuple[Match, ...]:
    """Convolutions by the node of the model before that they come from.

    What a rewrite makes is named after the node it stands for: ``up`` becomes ``up/Conv``.
    """
    old = _by_name(before.convolutions, lambda name: name)
    new = _by_name(after.convolutions, lambda name: _source(name, operators))
    return tuple(
        _match(name, operators.get(name, ""), old.get(name, []), new.get(name, []))
        for name in dict.fromkeys((*old, *new))
    )


def _by_name(
    found: Iterable[Convolution], key: Callable[[str], str]
) -> dict[str, list[Convolution]]:
    groups: dict[str, list[Convolution]] = {}
    for one in found:
        groups.setdefault(key(one.name), []).append(one)
    return groups


def _source(name: str, names: dict[str, str]) -> str:
    """Return the longest name that the node can be called after; itself where there is none."""
    ends = [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] in "/_")]
    return next((name[:end] for end in ends if name[:end] in names), name)


def _match(name: str, op: str, before: list[Convolution], after: list[Convolution]) -> Match:
    old, new = _told(before, op), _told(after, "")
    asked = old if before and after else _OF_ONE
    differs = {what: (old[what], new[what]) for what in asked if old[what] != new[what]}
    return Match(name, tuple(before), tuple(after), differs)


def _told(found: list[Convolution], op: str) -> dict[str, str]:
    """Return the properties to compare, as text; of several convolutions all values that occur."""
    ops = _values(one.op for one in found) or op
    return {
        "operator": f"{len(found)} {ops}" if len(found) > 1 else ops,
        "input": _values(one.input for one in found),
        "output": _values(one.output for one in found),
        "kernel": _values(one.kernel for one in found),
        "strides": _values(one.strides for one in found),
        "dilations": _values(one.dilations for one in found),
        "group": _values(str(one.group) for one in found),
        "pads": _values(one.pads for one in found),
        "weights": _sum(one.parameters for one in found),
        "MACs": _sum(one.macs for one in found),
    }


def _values(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _sum(numbers: Iterable[int | None]) -> str:
    listed = list(numbers)
    if not listed:
        return ""
    return "?" if None in listed else f"{sum(n or 0 for n in listed):,}"
