"""The facts that a target file can speak of."""

from __future__ import annotations

import pytest

from npuconv.target.facts import FACTS, lookup

REQUIRED = [
    "rank",
    "auto_pad",
    "group",
    "pad_value",
    "kernel_h",
    "kernel_w",
    "stride_h",
    "stride_w",
    "dilation_h",
    "dilation_w",
    "pad_top",
    "pad_left",
    "pad_bottom",
    "pad_right",
    "pad_max",
    "in_n",
    "in_c",
    "in_h",
    "in_w",
    "out_n",
    "out_c",
    "out_h",
    "out_w",
    "weight_n",
    "weight_c",
    "weight_h",
    "weight_w",
    "dilated_kernel_h",
    "dilated_kernel_w",
    "kernel_volume",
    "channel_multiplier",
    "bias",
    "bias_dtype",
    "dtype",
    "weight_dtype",
    "mode",
    "layout",
    "weight_abs_sum_max",
    "ceil_mode",
    "count_include_pad",
    "pad_mode",
    "pad_outside_hw",
    "blocksize",
    "C",
]


@pytest.mark.parametrize("name", REQUIRED)
def test_known(name):
    """Every fact that chips need is there, under its own name, with a help text."""
    assert FACTS[name].name == name
    assert FACTS[name].help


def test_names_are_unique():
    """No fact hides another."""
    assert len(FACTS) == len(set(FACTS))
    assert all(fact.alias_of in ("", *FACTS) for fact in FACTS.values())


def test_choices_are_of_words():
    """Only a word has choices."""
    assert all(fact.kind == "str" for fact in FACTS.values() if fact.choices)
    assert {fact.kind for fact in FACTS.values()} == {"int", "str", "bool"}


def test_lookup():
    """C is in_c, unless it is given itself; what is not known is None."""
    assert lookup({"in_c": 32}, "C") == 32
    assert lookup({"in_c": 32, "C": 16}, "C") == 16
    assert lookup({"in_c": 0}, "in_c") == 0
    assert lookup({}, "C") is None
    assert lookup({"other": 1}, "other") == 1
    assert lookup({}, "other") is None
