"""Every hostile case, by family."""

from __future__ import annotations

from functools import cache

from hostile import (
    arrays,
    attributes,
    bombs,
    graphs,
    labels,
    names,
    outside,
    pictures,
    protobufs,
    tensors,
    weights,
    yamls,
)
from hostile.case import Case

_FAMILIES = (
    protobufs,
    tensors,
    bombs,
    graphs,
    outside,
    weights,
    attributes,
    names,
    yamls,
    arrays,
    pictures,
    labels,
)


@cache
def corpus() -> tuple[Case, ...]:
    """All cases, in the order of the families; their names are unique."""
    found = tuple(case for family in _FAMILIES for case in family.cases())
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found


def find(name: str) -> Case:
    """The case of that name."""
    return next(case for case in corpus() if case.name == name)
