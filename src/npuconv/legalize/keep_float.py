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
    """Return the nodes of the source model that some pattern fits.

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
    nodes = model.labelled()
    matches: dict[str, str] = {}
    for pattern in listed:
        labels = [label for label, node in nodes if _fits(label, node, pattern)]
        if not labels:
            raise _nothing(nodes, pattern, model.name)
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


def _fits(label: str, node: Node, pattern: str) -> bool:
    if not pattern.startswith(BY_OPERATOR):
        return query.matches(label, pattern)
    operator = pattern.removeprefix(BY_OPERATOR)
    return query.matches(node.op, operator) or query.matches(query.qualified(node), operator)


def _nothing(nodes: Iterable[tuple[str, Node]], pattern: str, name: str) -> UsageError:
    """Return the error of a pattern that fits none of the labelled nodes of a model."""
    missing, listed, prefix = "node of that name", [label for label, _ in nodes], ""
    if pattern.startswith(BY_OPERATOR):
        missing, prefix = "such operator", BY_OPERATOR
        listed = [query.qualified(node) for _, node in nodes]
    near = _near(pattern.removeprefix(prefix), list(dict.fromkeys(listed)))
    hints = ", ".join(f"'{prefix}{name}'" for name in near)
    hint = (
        f"did you mean {hints}?" if near else "npuconv inspect lists them; op:Conv means all Conv"
    )
    return UsageError(f"keep_float {pattern!r}: {name} has no {missing}", hint=hint)


def _near(pattern: str, listed: list[str]) -> list[str]:
    """Return names that contain the letters of the pattern, then names with similar spelling."""
    letters = pattern.replace("*", "").replace("?", "").lower()
    inside = [name for name in listed if letters and letters in name.lower()]
    lower = {name.lower(): name for name in reversed(listed)}
    alike = difflib.get_close_matches(letters, list(lower), _NEAR, _SIMILAR)
    return list(dict.fromkeys((*inside, *(lower[name] for name in alike))))[:_NEAR]
