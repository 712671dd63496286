"""What was bought, in words."""

from __future__ import annotations

from npuconv.report.words import extra_macs
from npuconv.schemas.report import Budget, Repeated


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


def test_extra_macs():
    """How many layers, how much more work, and what for."""
    rows = (Repeated(node="a", times=2, extra_macs=5), Repeated(node="b", times=3, extra_macs=4))
    text = extra_macs(budget(repeated=rows, extra_macs=9, extra_percent=9.971, simulated_db=25.52))
    assert text == "2 layers repeated for 10.0 % more MACs: 19.6 dB -> 25.5 dB simulated"
    text = extra_macs(budget(repeated=rows, extra_macs=9, simulated_db=25.52, unsaturated=True))
    assert text.endswith("19.6 dB -> 25.5 dB simulated, before the final Softmax or Sigmoid")


def test_no_extra_macs():
    """Because it is good enough, or because nothing helps."""
    assert extra_macs(budget(min_sqnr_db=18)) == "no extra MACs: 19.6 dB reach the goal of 18 dB"
    assert extra_macs(budget()) == "no extra MACs: no repetition for 10 % more MACs improves it"
