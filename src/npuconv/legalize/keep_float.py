"""Nodes that the user keeps float on the host."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain

from npuconv.errors import UsageError
from npuconv.model import Model, Node, query
from npuconv.target import Target

BY_OPERATOR, BY_MODULE = "op:", "module:"
_MISSING = {BY_OPERATOR: "such operator", BY_MODULE: "such module", "": "node of that name"}
_NEAR = 3  # names that an error suggests
_SIMILAR = 0.4  # cutoff of difflib; patterns are shorter than names


def find(model: Model, patterns: Iterable[str], target: Target) -> dict[str, str]:
    """Return the nodes of the source model that some pattern fits.

    A pattern is of names, of operators after ``op:``, or of modules of the training code after
    ``module:``; of a module all nodes inside are meant.

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
        prefix = next(p for p in _MISSING if pattern.startswith(p))
        text = pattern.removeprefix(prefix)
        nodes = [(label, _names(model, label, node, prefix)) for label, node in model.labelled()]
        labels = [label for label, names in nodes if any(query.matches(n, text) for n in names)]
        if not labels:
            near = _near(text, list(dict.fromkeys(chain(*(names for _, names in nodes)))))
            hints = ", ".join(f"'{prefix}{name}'" for name in near)
            advice = "npuconv inspect lists them; op:Conv means all Conv"
            raise UsageError(
                f"keep_float {pattern!r}: {model.name} has no {_MISSING[prefix]}",
                hint=f"did you mean {hints}?" if near else advice,
            )
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


def _names(model: Model, label: str, node: Node, prefix: str) -> tuple[str, ...]:
    """Return the names of a node that a pattern with this prefix may fit."""
    if prefix == BY_OPERATOR:
        return node.op, query.qualified(node)
    if prefix == BY_MODULE:
        source = model.sources.get(label)
        parts = source.module.split(".") if source is not None else []
        return tuple(accumulate(parts, "{}.{}".format))
    return (label,)


def _near(pattern: str, listed: list[str]) -> list[str]:
    """Return names that contain the letters of the pattern, then names with similar spelling."""
    letters = pattern.replace("*", "").replace("?", "").lower()
    inside = [name for name in listed if letters and letters in name.lower()]
    lower = {name.lower(): name for name in reversed(listed)}
    alike = difflib.get_close_matches(letters, list(lower), _NEAR, _SIMILAR)
    return list(dict.fromkeys((*inside, *(lower[name] for name in alike))))[:_NEAR]
