"""Flags in messages, as a jobs file has them."""

from __future__ import annotations

import pytest

from npuconv.batch.worker import as_keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("give --preprocess unit|raw", "give preprocess.preset unit|raw"),
        ("--mean without --std", "preprocess.mean without preprocess.std"),
        ("--input-layout nhwc", "preprocess.layout nhwc"),
        ("--layout nhwc", "layout nhwc"),
        ("--input-shape x=1: no", "input_shape x=1: no"),
        ("with --no-verify", "with verify: false"),
        ("--other, a--mean, --mean-of, x --", "--other, a--mean, --mean-of, x --"),
    ],
)
def test_as_keys(text, expected):
    """Only those of options."""
    assert as_keys(text) == expected
