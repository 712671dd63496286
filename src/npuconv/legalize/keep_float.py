"""Nodes that the user keeps float on the host."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from npuconv.errors import UsageError
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.target import Target

BY_OPERATOR = "op:"
_NEAR = 3  # names that an error suggests
_SIMILAR = 0.4  # cutoff of difflib; patterns are shorter than names


def find(model: Model, patterns: Iterable[str], target: Target) -> dict[str, str]:
    """The nodes of the model as it came that some pattern fits.

    A pattern is of names, or of operators after ``op:``.

    Returns:
        By label of a node, the first pattern that fits.

    Raises:
        UsageError: a pattern fits nothing, or there is no host to keep anything on.
    """
    listed = list(patterns)
    if listed and target.unlisted_operators == "error":
        raise UsageError(
            f"keep_float {listed[0]!r}: target {target.name} has no host that could run it",
            hint="its file says unlisted_operators: error",
        )
    matches: dict[str, str] = {}
    for pattern in listed:
        labels = [model.label(node) for node in model.nodes() if _fits(model, node, pattern)]
        if not labels:
            raise _nothing(model, pattern)
        for label in labels:
            matches.setdefault(label, pattern)
    return matches


def names(model: Model, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the pattern of every node that comes from a node of ``labels``, by node name."""
    return {
        node.name: next(labels[label] for label in model.origin(node) if label in labels)
        for node in model.nodes()
        if not labels.keys().isdisjoint(model.origin(node))
    }


def _fits(model: Model, node: Node, pattern: str) -> bool:
    if not pattern.startswith(BY_OPERATOR):
        return query.matches(model.label(node), pattern)
    operator = pattern.removeprefix(BY_OPERATOR)
    return query.matches(node.op, operator) or query.matches(query.qualified(node), operator)


def _nothing(model: Model, pattern: str) -> UsageError:
    """The error of a pattern that fits no node."""
    nodes, missing = model.nodes(), "node of that name"
    listed, prefix = [model.label(node) for node in nodes], ""
    if pattern.startswith(BY_OPERATOR):
        listed, prefix, missing = [query.qualified(n) for n in nodes], BY_OPERATOR, "such operator"
    near = _near(pattern.removeprefix(prefix), list(dict.fromkeys(listed)))
    hints = ", ".join(f"'{prefix}{name}'" for name in near)
    hint = (
        f"did you mean {hints}?" if near else "npuconv inspect lists them; op:Conv means all Conv"
    )
    return UsageError(f"keep_float {pattern!r}: {model.name} has no {missing}", hint=hint)


def _near(pattern: str, listed: list[str]) -> list[str]:
    """Return names that contain the letters of the pattern, then names with similar spelling."""
    letters = pattern.replace("*", "").replace("?", "").lower()
    inside = [name for name in listed if letters and letters in name.lower()]
    lower = {name.lower(): name for name in reversed(listed)}
    alike = difflib.get_close_matches(letters, list(lower), _NEAR, _SIMILAR)
    return list(dict.fromkeys((*inside, *(lower[name] for name in alike))))[:_NEAR]
