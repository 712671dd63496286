"""What was bought, in words."""

from __future__ import annotations

from npuconv.report.words import bought
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


def test_bought():
    """How many layers, how much more work, and what for."""
    rows = (Repeated(node="a", times=2, extra_macs=5), Repeated(node="b", times=3, extra_macs=4))
    text = bought(budget(repeated=rows, extra_macs=9, extra_percent=9.971, simulated_db=25.52))
    assert text == "2 layers repeated for 10.0 % more MACs: 19.6 dB -> 25.5 dB simulated"
    text = bought(budget(repeated=rows, extra_macs=9, simulated_db=25.52, unsaturated=True))
    assert text.endswith("19.6 dB -> 25.5 dB simulated, before what saturates the outputs")


def test_nothing_bought():
    """Because it is good enough, or because nothing helps."""
    assert bought(budget(min_sqnr_db=18)) == "nothing bought: 19.6 dB reach the 18 dB asked for"
    assert bought(budget()) == "nothing bought: nothing for 10 % more MACs makes it better"
