"""Every threshold of quantization, with its unit and what it trades.

Measured by ``python benchmarks/ablation.py``, which leaves out one step at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from npuconv.config import Step

STEPS: tuple[str, ...] = get_args(Step)  # each can be left out: --without


@dataclass(frozen=True)
class ProbeSettings:
    """Samples that are run before calibration.

    Attributes:
        samples: number; a few show signs of channels and coarse steps.
        channel_values: of one channel and sample, searched for a grid.
    """

    samples: int = 4
    channel_values: int = 2**16


@dataclass(frozen=True)
class HostPaddingSettings:
    """Padding by the host instead of the device.

    Attributes:
        gain_db: mean over channels by which steps must become smaller. A tensor of only
            positive values gains 6.
        largest_growth: factor by which pads may enlarge a tensor.
        smallest_share: of the error of all activations, below which a tensor of the device does
            not cross (``--pad-on-host auto``).
        output_gain_db: by which all tensors that cross must improve the outputs together.
        sufficient_db: SQNR of the outputs from which on no tensor crosses.
    """

    gain_db: float = 1.0
    largest_growth: float = 3.0
    smallest_share: float = 0.02
    output_gain_db: float = 1.0
    sufficient_db: float = 38.0


@dataclass(frozen=True)
class MarginSettings:
    """Range margins for unseen samples.

    Attributes:
        half_weight_values: independent values after which a channel's own range and that of its
            family weigh the same.
        smallest_weight: of the family, below which no channel gets a margin.
        silent_share: of a channel's range; values below it are silent.
        samples_for_tails: samples, below which tails are unknown.
        largest_tail_ratio: factor of an observed extreme, at most, for a tail.
    """

    half_weight_values: float = 300.0
    smallest_weight: float = 0.02
    silent_share: float = 0.02
    samples_for_tails: int = 3
    largest_tail_ratio: float = 1.2


@dataclass(frozen=True)
class RangeSettings:
    """Choice of ranges.

    Attributes:
        values: of one channel, on which clipping errors are measured.
        bins: of the histogram for percentile and entropy.
        percentile: percent of the values that are not clipped.
        shrinks: shares of a range that mse tries.
        table_values: of a range, at which tables are looked at.
        table_share: of a step of its result, by which a table may change outside a range.
    """

    values: int = 1024
    bins: int = 2048
    percentile: float = 99.99
    shrinks: tuple[float, ...] = (0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64, 0.56, 0.48, 0.4)
    table_values: int = 2049
    table_share: float = 0.25


@dataclass(frozen=True)
class ProfileSettings:
    """Ratios of channels that operators keep.

    Attributes:
        powers: of the ratios of ranges that are tried; 0 is one scale for all channels.
        rounds: of fitting ratios and levels to each other.
    """

    powers: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    rounds: int = 10


@dataclass(frozen=True)
class CorrelatedSettings:
    """Rounding errors that a whole sample shares.

    Attributes:
        weight: of them relative to other errors; results are flat between 10 and 100.
        smallest_share: of the error, weighed, below which a channel keeps its scale.
        factors: multiples of a step, in the order of the search; denser near 1, because a small
            change moves a large value by a whole step.
    """

    weight: float = 30.0
    smallest_share: float = 0.2
    factors: tuple[float, ...] = tuple(1.0 + 0.06 * (k / 14) ** 2 for k in range(1, 15))


@dataclass(frozen=True)
class HessianSettings:
    """Windows of convolutions.

    Attributes:
        samples: that are run; the number of windows does not depend on it.
        block: values of a window whose products are kept.
        fewest_windows: of a layer, all samples together, at least.
        most_windows: of a layer, at most.
        windows_per_weight: of a row, between these two.
        held_out_every: interval of the samples on which roundings are compared.
        held_out_windows: of each layer.
        largest_kernel: values; larger kernels are means, which round to nearest.
    """

    samples: int = 12
    block: int = 256
    fewest_windows: int = 1024
    most_windows: int = 4096
    windows_per_weight: int = 4
    held_out_every: int = 4
    held_out_windows: int = 256
    largest_kernel: int = 128


@dataclass(frozen=True)
class RoundingSettings:
    """GPTQ-style rounding.

    Attributes:
        damping: of the mean square of the inputs, added to each of them, at least.
        panel: columns that are rounded before those behind them are updated.
        few_weights: of a row, up to which several step sizes are tried.
        steps: sizes tried, as multiples of the smallest that reaches the largest weight.
        error_left: share of the error, at most, that another rounding must leave to be taken.
        weights_at_once: bound of the working memory, weights times sizes.
    """

    damping: float = 0.01
    panel: int = 32
    few_weights: int = 64
    steps: tuple[float, ...] = tuple(1.0 + 0.1 * k / 15 for k in range(16))
    error_left: float = 0.995
    weights_at_once: int = 2**20


@dataclass(frozen=True)
class SensitivitySettings:
    """Sensitivity by random vectors (``benchmarks/sensitivity.py`` compares with brute force).

    Attributes:
        probes: random vectors, each with its own sample.
    """

    probes: int = 4


@dataclass(frozen=True)
class BudgetSettings:
    """Extra multiplications for accuracy.

    Attributes:
        unbounded_percent: extra multiplications, where only ``--min-sqnr`` is given.
        most_copies: of a layer or channel; four copies leave a sixteenth of the error.
        channel_reserve: ratio of gains per multiplication from which on a channel is preferred to
            a layer.
        probes: random vectors, on which errors are estimated.
        evaluation_samples: on which a purchase is checked, at most.
        caution: share of the allowed error to aim at after an optimistic estimate.
        tries: purchases that are checked.
    """

    unbounded_percent: float = 100.0
    most_copies: int = 4
    channel_reserve: float = 2.0
    probes: int = 8
    evaluation_samples: int = 8
    caution: float = 0.9
    tries: int = 3


PROBE = ProbeSettings()
HOST_PADDING = HostPaddingSettings()
MARGIN = MarginSettings()
RANGES = RangeSettings()
PROFILE = ProfileSettings()
CORRELATED = CorrelatedSettings()
HESSIAN = HessianSettings()
ROUNDING = RoundingSettings()
SENSITIVITY = SensitivitySettings()
BUDGET = BudgetSettings()
