"""Numbers in words."""

from __future__ import annotations

import pytest

from npuconv.report.words import (
    change,
    device_change,
    extra_macs,
    output_rows,
    overall,
    part_of,
    place,
    quantity,
    scores,
    share,
    size,
    sqnr,
    traffic,
)
from npuconv.schemas.quality import Accuracy, Budget, OutputAccuracy, RepeatedLayer
from npuconv.schemas.report import Device, MacShare, NodeSource, Traffic
from report.factory import code


def test_place_of_training_code() -> None:
    """Module, file and line; of an absolute path the end, unless the file is in the folder."""
    assert place(None) == place(NodeSource(module="stem.conv")) == ""
    assert place(code("stem.conv")) == "stem.conv, models/net.py:42"
    assert place(code("")) == "Conv2d in Stem, models/net.py:42"
    assert place(code("m", "/home/me/models/net.py")) == "m, models/net.py:42"
    assert place(code("m", "C:\\me\\models\\net.py")) == "m, models/net.py:42"
    assert place(code("m", "/net.py", path="src/net.py")) == "m, src/net.py:42"
    assert place(code("m").model_copy(update={"frame": None})) == "m"


def test_numbers() -> None:
    """Numbers have units, and shares are not rounded to 0 or 100 %."""
    assert [quantity(n) for n in (0, 999, 1234, 999_960, 2 * 10**16)] == [
        "0",
        "999",
        "1.2 k",
        "1.0 M",
        "20000.0 T",
    ]
    assert [share(*pair) for pair in ((99999, 100000), (1, 100000), (0, 1), (1, 1))] == [
        "> 99.9 %",
        "< 0.1 %",
        "0.0 %",
        "100.0 %",
    ]
    assert share(1, None) == share(None, 1) == share(0, 0) == "-"
    assert (sqnr(None, 1.0), sqnr(None, None)) == ("exact", "not measured")


def test_sizes() -> None:
    """Bytes have units of 1024."""
    numbers = (0, 1023, 1024, 4710, 1024**2, 1024**2 - 1, 5 * 1024**4, None)
    shown = ["0 B", "1023 B", "1.0 KiB", "4.6 KiB", "1.0 MiB", "1.0 MiB", "5120.0 GiB", "unknown"]
    assert [size(n) for n in numbers] == shown
    assert (change("1", "1"), change("1", "2")) == ("1", "1 -> 2")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((12, 100), (100, 100), "12.0 % before rewriting, 100.0 % after"),
        ((0, None), (None, None), "0.0 % before rewriting, unknown after"),
        ((None, None), (0, 100), "unknown before rewriting, 0.0 % after"),
        ((0, 0), (0, 0), "none before rewriting, none after"),
        ((1, None), (99999, 100000), "unknown before rewriting, > 99.9 % after"),
    ],
)
def test_shares(before: tuple[int, int], after: tuple[int, int], said: str) -> None:
    """Shares are in per cent; a model without MACs has none."""
    old, new = (MacShare(device=d, total=t) for d, t in (before, after))
    none = Traffic(tensors=0, bytes=None)
    device = Device(macs_before=old, macs_after=new, to_device=none, to_host=none, subgraphs=())
    assert device_change(device) == said
    assert traffic(device) == (
        "0 subgraphs on the device; bytes per inference unknown (dynamic shape)"
    )


def test_an_output_without_a_cosine_is_not_exact() -> None:
    """An output without a cosine is all zeros or not finite."""
    outputs = tuple(
        OutputAccuracy(name=name, sqnr_db=None, cosine=cosine, top1_agreement=None)
        for name, cosine in (("a", 1.0), ("b", None))
    )
    found = Accuracy(
        samples=1, held_out=True, sqnr_db=None, cosine=None, top1_agreement=None, outputs=outputs
    )
    assert [row[2] for row in output_rows(found)] == ["exact", "zeros or not finite"]


def budget(**given) -> Budget:
    known = {
        "min_sqnr_db": None,
        "max_extra_percent": 10,
        "extra_macs": 0,
        "extra_percent": 0.0,
        "before_db": 19.61,
        "simulated_db": 19.61,
    }
    return Budget(**{**known, **given})


@pytest.mark.parametrize(
    ("sqnr_db", "unsaturated_db", "said"),
    [(None, 20.25, "20.2 dB before saturation"), (None, None, "exact"), (41.0, 20.25, "41.0 dB")],
)
def test_saturation_is_no_exactness(sqnr_db, unsaturated_db, said) -> None:
    """Outputs whose noise saturation hides all are not called exact."""
    found = Accuracy(
        samples=8, held_out=True, sqnr_db=sqnr_db, cosine=1.0, top1_agreement=1.0, outputs=(),
        unsaturated_db=unsaturated_db,
    )  # fmt: skip
    assert overall(found) == said


def test_extra_macs():
    """The text has the number of layers, the extra MACs and the gain."""
    rows = (
        RepeatedLayer(node="a", times=2, extra_macs=5),
        RepeatedLayer(node="b", times=3, extra_macs=4),
    )
    text = extra_macs(budget(repeated=rows, extra_macs=9, extra_percent=9.971, simulated_db=25.52))
    assert text == "2 layers repeated for 10.0 % more MACs: 19.6 dB -> 25.5 dB simulated"
    text = extra_macs(budget(repeated=rows, extra_macs=9, simulated_db=25.52, unsaturated=True))
    assert text.endswith("19.6 dB -> 25.5 dB simulated, before the final Softmax or Sigmoid")


def test_no_extra_macs():
    """A budget that was not spent shows the reason."""
    assert extra_macs(budget(min_sqnr_db=18)) == "no extra MACs: 19.6 dB reach the goal of 18 dB"
    assert extra_macs(budget()) == "no extra MACs: no repetition for 10 % more MACs improves it"
    text = "the device adds no bias to 1 layer, and copies of a layer differ by their biases"
    assert extra_macs(budget(biasless=1)) == f"no extra MACs: {text}"


@pytest.mark.parametrize(
    ("value", "number", "said"),
    [(0.875, 8, "7 of 8"), (1.0, 64, "64 of 64"), (0.875, 800, "87.5 %"), (0.875, 0, "87.5 %"),
     (None, 0, "-")],
)  # fmt: skip
def test_shares_of_few_cases(value, number, said) -> None:
    """A share of few cases is written as their number, which looks no more precise than it is."""
    assert part_of(value, number) == said


def test_indices_are_said_beside_the_error() -> None:
    """Indices have an agreement instead of an SQNR; those of no sample are not compared."""
    values = OutputAccuracy(
        name="scores", sqnr_db=35.6, cosine=0.99, top1_agreement=0.875, positions=8
    )
    best, none = (
        OutputAccuracy(
            name="best", sqnr_db=None, cosine=None, top1_agreement=None, holds_indices=True,
            agreement=share, positions=8, uncompared=0 if share else 8,
        )
        for share in (0.875, None)
    )  # fmt: skip
    found = Accuracy(
        samples=8, held_out=True, sqnr_db=35.6, cosine=0.99, top1_agreement=None,
        outputs=(values, best, none),
    )  # fmt: skip
    assert [row[2] for row in output_rows(found)] == ["35.6 dB", "7 of 8 equal", "not compared"]
    assert [row[4] for row in output_rows(found)] == ["7 of 8", "-", "-"]
    assert scores(found).endswith("best 7 of 8 equal, best not compared")
