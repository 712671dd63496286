"""Dataclasses that share their methods behave as those of Python."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from npuconv.records import KW_ONLY, dataclass, field, replace


@dataclass(frozen=True)
class Point:
    """Values with each kind of default."""

    x: int
    y: int = 0
    label: str = field(default="", compare=False, repr=False)
    _: KW_ONLY
    tags: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Point3(Point):
    """Inherits fields."""

    z: int = 1


@dataclass
class Mutable:
    """May change."""

    z: int


def test_values_are_given_by_place_and_by_name():
    point = Point(1, label="a")
    assert (point.x, point.y, point.label, point.tags) == (1, 0, "a", [])
    assert point.tags is not Point(1).tags
    assert Point3(1, 2, z=3).z == 3


def test_records_show_compare_and_hash_their_fields():
    assert repr(Point(1)) == "Point(x=1, y=0, tags=[])"
    assert Point(1, label="a") == Point(1) != Point(2)
    assert Point3(1) != Point(1)
    assert len({Point(1), Point(1, 0, "b"), Point(2)}) == 2


def test_records_are_replaced_copied_and_read():
    point = replace(Point(1), y=5)
    assert dataclasses.asdict(point) == {"x": 1, "y": 5, "label": "", "tags": []}
    assert pickle.loads(pickle.dumps(point)) == point


def test_frozen_records_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    mutable = Mutable(1)
    mutable.z = 5
    assert mutable == Mutable(5)


@pytest.mark.parametrize(("args", "values"), [((), {}), ((1, 2, "", [], 5), {}), ((1,), {"w": 1})])
def test_wrong_values_are_errors(args, values):
    with pytest.raises(TypeError, match="Point"):
        Point(*args, **values)
