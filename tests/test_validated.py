"""Records of files are what pydantic makes of them, with and without it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv import validated
from npuconv.target import builtin_names, read
from npuconv.target.description import Description
from npuconv.validated import Before, Bounded, Field, Record, faults, read_json


def _short(value):
    return {"size": value} if type(value) is int else value


class Inner(Record):
    """A record in a record."""

    size: Annotated[int, Bounded(ge=0, lt=9)]
    label: str = Field(default="", keys=("if",), max_length=3)

    def check(self):
        """Refuse a size of 7."""
        if self.size == 7:
            raise ValueError("no 7")


class Every(Record):
    """A field for each kind of type."""

    flag: bool = False
    share: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    word: Literal["a", "b", 1] = "a"
    pair: tuple[int, str] | None = None
    sizes: tuple[Annotated[float, Bounded(gt=0)], ...] = Field(default=(), max_length=2)
    listed: list[int] = Field(default_factory=lambda: [1], min_length=1)
    inner: Annotated[Inner, Before(_short)] = Inner(size=1)
    named: dict[str, Inner | bool] = Field(default_factory=dict)
    free: Any = None
    strict: Annotated[bool, Bounded(strict=True)] | Annotated[int, Bounded(strict=True)] = 1
    older: int = Field(default=3, keys=("older", "old"))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10),
    st.integers(),
    st.floats(),
    st.sampled_from(("a", "b", "1", "")),
)
INNER = st.fixed_dictionaries({"size": SCALARS}, optional={"if": SCALARS, "label": SCALARS})
VALUES = SCALARS | INNER | st.lists(SCALARS | INNER, max_size=3)
KEYS = (*Every.model_fields, "old", "other")


@given(st.dictionaries(st.sampled_from(KEYS), VALUES | st.dictionaries(st.just("k"), VALUES)))
def test_what_is_read_without_pydantic_is_what_pydantic_reads(data):
    """Both records are equal, and state the same fields; others are left to pydantic."""
    try:
        found = validated._read(Every, data)
    except (ValueError, TypeError, KeyError):
        return
    slow = validated._adapter(Every).validate_python(data)
    assert repr(found) == repr(slow)
    assert found.model_fields_set == slow.model_fields_set


@pytest.mark.parametrize("name", builtin_names())
def test_targets_are_read_as_pydantic_reads_them(name):
    """Built-in targets take the short way."""
    data = read(name).data
    short = validated._read(Description, data)
    assert repr(short) == repr(validated._adapter(Description).validate_python(data))


def test_a_fault_is_described_by_pydantic():
    """All faults, each with its place."""
    with pytest.raises(ValueError, match="no 7") as caught:
        Every.model_validate({"inner": 7, "share": 2, "other": 1, "named": {"k": {"size": 9}}})
    assert [fault["loc"] for fault in faults(caught.value)][:2] == [("share",), ("inner",)]


class Finite(Record):
    """A record with a setting of pydantic."""

    model_config: ClassVar = {"allow_inf_nan": False}
    size: float


def test_settings_of_pydantic_hold():
    """A record that has some is not read without it."""
    assert Finite.model_validate({"size": 1.5}).size == 1.5
    with pytest.raises(ValueError, match="finite"):
        Finite.model_validate({"size": float("nan")})


def test_a_record_is_a_value():
    """Copies and dumps state what they were given."""
    record = Every.model_validate({"pair": [1, "x"], "inner": {"size": 2, "if": "y"}})
    assert record.model_dump(by_alias=True, exclude_unset=True) == {
        "pair": (1, "x"), "inner": {"size": 2, "if": "y"},
    }  # fmt: skip
    assert record.model_dump(mode="json", exclude_defaults=True) == {
        "pair": [1, "x"], "inner": {"size": 2, "label": "y"},
    }  # fmt: skip
    copy = record.model_copy({"older": 3})
    assert copy == record
    assert copy.model_fields_set == {"pair", "inner", "older"}
    assert Every.model_validate_json(record.model_dump_json(by_alias=True)) == record
    assert pickle.loads(pickle.dumps(copy)).model_fields_set == copy.model_fields_set
    assert Inner.from_attributes(record, size=4) == Inner(size=4)


def test_the_schema_is_that_of_pydantic():
    """Keys, bounds and descriptions are those of the fields."""
    schema = Every.model_json_schema()
    assert schema["$defs"]["Inner"]["properties"]["if"] == {
        "default": "", "maxLength": 3, "title": "If", "type": "string",
    }  # fmt: skip
    assert schema["additionalProperties"] is False


def test_a_whole_number_beyond_all_floats():
    """It is a fault, not an overflow."""
    with pytest.raises(ValueError, match="share"):
        Every.model_validate({"share": 10**400})
    with pytest.raises(ValueError):
        read_json(float, "9" * 400)


@pytest.mark.parametrize("text", ["[1", "[{}]", '[{"size": "1"}]', "[" * 10**5, "3"])
def test_a_list_that_cannot_be_read(text):
    """A stranger's text raises nothing else."""
    with pytest.raises(ValueError):
        read_json(list[Inner], text)


def test_a_conversion_does_without_pydantic():
    """Options, a target and the report need it for faults only."""
    code = (
        "import sys, npuconv.cli.convert, npuconv.schemas.report;"
        "from npuconv.target import Target;"
        "from npuconv.config import make_options; make_options({'max_samples': 3});"
        "Target.load('npu-int8'); sys.exit('pydantic' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
