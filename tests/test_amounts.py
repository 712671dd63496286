"""Numbers with their nouns and units."""

from __future__ import annotations

from npuconv.amounts import count, size, total


def test_count():
    """Every number but 1 has the plural."""
    assert [count(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_total():
    """The sum, where each is known."""
    assert [total([3, 4]), total([3, None]), total([])] == [7, None, 0]


def test_size():
    """Bytes have units of 1024, and no unit is written with 1024 of it."""
    numbers = (0, 1023, 1024, 4710, 1024**2 - 1, 5 * 1024**4, None)
    texts = ["0 B", "1023 B", "1.0 KiB", "4.6 KiB", "1.0 MiB", "5120.0 GiB", "unknown"]
    assert [size(n) for n in numbers] == texts
