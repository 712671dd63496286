"""Tests of the statistics that tell a wrong normalization."""

from __future__ import annotations

import pytest

from npuconv.data.normalization_trials import ActivationProfile, NormalizationTrials, better_fits
from npuconv.data.normalizations import IMAGENET, UNIT


@pytest.mark.parametrize("levels", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_first_layer_without_output_is_no_evidence(
    levels: tuple[float, float],
) -> None:
    """Zeros on all samples support no normalization."""
    given, other = (ActivationProfile(0.5, 0.1, x, 1.0) for x in levels)
    assert better_fits(NormalizationTrials(UNIT, {UNIT: given, IMAGENET: other})) is None
