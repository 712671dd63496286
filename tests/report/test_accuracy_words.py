"""What is said of an output that no number can be given for."""

from __future__ import annotations

from npuconv.report.words import output_rows
from npuconv.schemas.report import Accuracy, OutputAccuracy


def test_an_output_without_a_cosine_is_not_exact() -> None:
    """It is all zeros or not finite, which is the opposite as often as not."""
    outputs = tuple(
        OutputAccuracy(name=name, sqnr_db=None, cosine=cosine, top1_agreement=None)
        for name, cosine in (("a", 1.0), ("b", None))
    )
    found = Accuracy(
        samples=1, held_out=True, sqnr_db=None, cosine=None, top1_agreement=None, outputs=outputs
    )
    assert [row[2] for row in output_rows(found)] == ["exact", "zeros or not finite"]
