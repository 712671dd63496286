"""Tests of settings, sizes and durations."""

from __future__ import annotations

import pytest

from npuconv.batch.job import parse_seconds, parse_size


@pytest.mark.parametrize(
    ("text", "number"),
    [("4GiB", 4 << 30), ("512MiB", 512 << 20), ("1.5 kB", 1500), ("7", 7), (7, 7), ("2tb", 2e12)],
)
def test_sizes(text, number):
    """Sizes take binary and decimal units in any case."""
    assert parse_size(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("90", 90), (90, 90), ("1.5s", 1.5), ("10m", 600), ("2h", 7200)]
)
def test_durations(text, number):
    """Durations are in seconds by default."""
    assert parse_seconds(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "4 GB extra", "-1", "0", "4Gi", True, None, "1e3", []])
def test_what_is_none(text):
    """Ambiguous values, zero and true are refused."""
    with pytest.raises(ValueError, match=r"is not a|above 0"):
        parse_size(text)
    with pytest.raises(ValueError, match=r"is not a|above 0"):
        parse_seconds(text)
