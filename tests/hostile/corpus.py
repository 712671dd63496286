"""Every hostile case, by family."""

from __future__ import annotations

from functools import cache

from hostile import (
    arrays,
    attributes,
    bombs,
    folders,
    graphs,
    labels,
    names,
    outside,
    pictures,
    preparations,
    protobufs,
    quantized,
    tensors,
    tflites,
    vendors,
    weights,
    yamls,
)
from hostile.case import Case

_FAMILIES = {
    "protobuf": protobufs,
    "tensor": tensors,
    "bomb": bombs,
    "graph": graphs,
    "external": outside,
    "weights": weights,
    "quantized": quantized,
    "attribute": attributes,
    "name": names,
    "yaml": yamls,
    "array": arrays,
    "picture": pictures,
    "preparation": preparations,
    "labels": labels,
    "folder": folders,
    "tflite": tflites,
    "vendor": vendors,
}


@cache
def corpus() -> tuple[Case, ...]:
    """All cases, in the order of the families; their names are unique."""
    found = tuple(case for family in _FAMILIES.values() for case in family.cases())
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found


def find(name: str) -> Case:
    """Return the case of that name; only its family is built."""
    family = _FAMILIES[name.partition("/")[0]]
    return next(case for case in family.cases() if case.name == name)
