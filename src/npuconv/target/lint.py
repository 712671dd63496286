"""Every problem of a target file at once, not only the first."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.target import Target
from npuconv.target.semantics import semantic_problems

if TYPE_CHECKING:
    from npuconv.errors import _LocatedError
    from npuconv.yamlio import KeyPath


def lint(document: yamlio.Document) -> list[_LocatedError]:
    """Every problem of a target file, in the order of the file."""
    found = yamlio.problems(document, Target, error=TargetError)
    target = _salvage(document) if found else Target.model_validate(document.data)
    if target is not None:
        found += semantic_problems(target, document)
    return sorted(found, key=lambda error: (error.line, error.column))


def _salvage(document: yamlio.Document) -> Target | None:
    """The target without the limits and relations whose shape is wrong, if that is one."""
    data = copy.deepcopy(document.data)
    paths = {document.known(loc) for loc in _faults(data)}
    if any(len(path) < 4 or path[0] != "operators" for path in paths):
        return None  # the rest would only show faults that follow from this one
    for path in sorted({path[:4] for path in paths}, key=str, reverse=True):
        _drop(data, path)
    return None if _faults(data) else Target.model_validate(data)


def _faults(data: dict[str, Any]) -> list[KeyPath]:
    try:
        Target.model_validate(data)
    except ValidationError as cause:
        return [fault["loc"] for fault in cause.errors()]
    return []


def _drop(data: Any, path: KeyPath) -> None:
    for part in path[:-1]:
        data = data[part]
    # an item of a list keeps its index, so that the places of the others stay right
    if isinstance(data, list):
        data[int(path[-1])] = {"then": "true"}
    else:
        del data[path[-1]]
