"""Thresholds of the fitting of convolutions, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FitSettings:
    """Bounds of the search, and what a target that gives no costs is taken to pay.

    Attributes:
        most_layers: different layers that are looked at for one convolution.
        most_convolutions: that one convolution may become.
        choices: sizes that one rewrite proposes for one layer.
        convolution: of starting one, in multiply-accumulates; more than 0, so that of two
            forms with the same MACs the one with fewer convolutions is taken.
        moved_element: of an element that is sliced, padded or concatenated, in MACs.
        sum_share: of partial sums, as a share of the MACs of the layer. Each is rounded to
            int8, which costs 1 to 1.5 dB: an exact form may take twice the MACs.
        sum_part: the same, for every part beyond the first.
    """

    most_layers: int = 4000
    most_convolutions: int = 1024
    choices: int = 3
    convolution: float = 1000.0
    moved_element: float = 1.0
    sum_share: float = 1.0
    sum_part: float = 0.05


DEFAULT = FitSettings()
