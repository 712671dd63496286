"""Requantization in a target file."""

from __future__ import annotations

import pytest

from npuconv.cli.target import block_rows
from npuconv.errors import TargetError
from npuconv.target import Target
from npuconv.target.description import Requantize
from support.target_files import NUMBERS, chip


def with_key(value: object) -> Target:
    """A target whose activations have the key."""
    return chip("Conv", also={"activations": {**NUMBERS, "requantize": value}})


def test_default():
    """Float, as everywhere until somebody says otherwise."""
    assert chip("Conv").activations.requantize == Requantize(kind="float")
    assert str(with_key("float").activations.requantize) == "float"


def test_gemmlowp():
    """Gemmlowp has no numbers to choose."""
    target = with_key("gemmlowp")
    assert str(target.activations.requantize) == "gemmlowp"
    with pytest.raises(TargetError, match="'max_shift' belongs to kind: shift"):
        with_key({"kind": "gemmlowp", "max_shift": 3})


def test_accumulate():
    """Int8 unless the file says so; not with the kernels of TFLite, which add no accumulators."""
    assert chip("Conv").activations.accumulate == "int8"
    adds = {**NUMBERS, "accumulate": "int32"}
    assert chip("Conv", also={"activations": adds}).activations.accumulate == "int32"
    with pytest.raises(TargetError, match="accumulate: int32 needs requantize: float or shift"):
        chip("Conv", also={"activations": {**adds, "requantize": "gemmlowp"}})
    with pytest.raises(TargetError, match="accumulate"):
        chip("Conv", also={"activations": {**NUMBERS, "accumulate": "int64"}})


def test_shift():
    """Shift is given in short, or with all keys."""
    short = with_key("shift").activations.requantize
    assert (short.kind, short.multiplier_bits, short.rounding) == ("shift", 16, "half_away")
    full = {"kind": "shift", "multiplier_bits": 8, "max_shift": 31, "rounding": "half_even"}
    target = with_key(full)
    assert target.activations.requantize.model_dump() == full
    assert ("requantize", "shift, 8 bits, at most 31, half_even", "") in block_rows(
        target.activations
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("shfit", "did you mean 'shift'"),
        ({"kind": "shift", "bits": 8}, "bits"),
        ({"kind": "shift", "multiplier_bits": 32}, "multiplier_bits"),
        ({"kind": "shift", "rounding": "up"}, "rounding"),
        ({"kind": "float", "multiplier_bits": 8}, "'multiplier_bits' belongs to kind: shift"),
        ({"multiplier_bits": 8}, "'multiplier_bits' belongs to kind: shift"),
    ],
)
def test_mistakes(value, message):
    """Are errors of the file."""
    with pytest.raises(TargetError, match=message):
        with_key(value)
