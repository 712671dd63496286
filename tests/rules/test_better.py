"""Which normalization a model behaves better on."""

from __future__ import annotations

import pytest

from npuconv.rules._behaviour import Behaviour
from npuconv.rules._better import better
from npuconv.rules._seen import Trials
from npuconv.samples.normalizations import IMAGENET, UNIT


@pytest.mark.parametrize("levels", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_first_layer_that_makes_zeros(levels: tuple[float, float]) -> None:
    """It is as far from 0 on these samples as on others, and no reason for either."""
    given, other = (Behaviour(balance=0.5, offset=0.1, level=x, bias=1.0) for x in levels)
    assert better(Trials(UNIT, {UNIT: given, IMAGENET: other})) is None
