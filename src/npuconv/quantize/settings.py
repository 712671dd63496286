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
    """The few samples that are looked at before calibration.

    Attributes:
        samples: run; signs of channels and coarse steps show on a handful.
        channel_values: of one channel and sample, looked at for a grid.
    """

    samples: int = 4
    channel_values: int = 2**16


@dataclass(frozen=True)
class HostPaddingSettings:
    """Padding by the host instead of the device.

    Attributes:
        gain_db: mean over channels by which steps must become smaller. A tensor of only
            positive values gains 6.
        growth: times as many bytes of the tensor may cross.
        least_share: of the error of all activations: a tensor of the device that makes less
            does not cross (``--pad-on-host auto``).
        output_gain_db: what all tensors that cross must bring together.
        plenty_db: SQNR of the outputs at which nothing need cross.
    """

    gain_db: float = 1.0
    growth: float = 3.0
    least_share: float = 0.02
    output_gain_db: float = 1.0
    plenty_db: float = 38.0


@dataclass(frozen=True)
class MarginSettings:
    """Range margins for unseen samples.

    Attributes:
        enough: independent values after which half of a channel's own range is believed.
        least: weight below which no channel gets a margin.
        silent: share of a channel's range; samples that reach less far are all alike.
        fewest: samples, below which nothing is known of tails.
        most: times as large as was seen, at most, for the sake of a tail.
    """

    enough: float = 300.0
    least: float = 0.02
    silent: float = 0.02
    fewest: int = 3
    most: float = 1.2


@dataclass(frozen=True)
class RangeSettings:
    """Choice of ranges.

    Attributes:
        values: of one channel, on which clipping is judged.
        bins: of the histogram for percentile and entropy.
        percentile: percent of the values that are not clipped.
        shrinks: shares of a range that mse tries.
    """

    values: int = 1024
    bins: int = 2048
    percentile: float = 99.99
    shrinks: tuple[float, ...] = (0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64, 0.56, 0.48, 0.4)


@dataclass(frozen=True)
class CorrelatedSettings:
    """Errors that a whole sample shares.

    Attributes:
        weight: how much more they count than others; between 10 and 100 little changes.
        least: share of the error, weighed, below which a channel is left as it is.
        factors: multiples of a step that are tried. A large value is on the grid again after a
            small change, a small one after a large one, so the first lie closest.
    """

    weight: float = 30.0
    least: float = 0.2
    factors: tuple[float, ...] = tuple(1.0 + 0.06 * (k / 14) ** 2 for k in range(1, 15))


@dataclass(frozen=True)
class HessianSettings:
    """Windows of convolutions.

    Attributes:
        samples: run; as many windows are taken of few samples as of many.
        block: values of a window whose products are kept; those of different blocks are not.
        fewest: windows of a layer, all samples together.
        most: the same, at most.
        windows_per_weight: windows for each weight of a row, between these two.
        held_out_every: every so many-th sample judges roundings instead.
        held_out_windows: of each layer.
        largest_kernel: values; a larger kernel is a mean, whose weights round as they are.
    """

    samples: int = 12
    block: int = 256
    fewest: int = 1024
    most: int = 4096
    windows_per_weight: int = 4
    held_out_every: int = 4
    held_out_windows: int = 256
    largest_kernel: int = 128


@dataclass(frozen=True)
class RoundingSettings:
    """GPTQ-style rounding.

    Attributes:
        damping: of the mean square of the inputs, added to each of them, at least.
        panel: columns after whose rounding those behind them are updated.
        few_weights: of a row; so few are tried with several step sizes.
        steps: sizes tried, as multiples of the smallest that reaches the largest weight.
        clearly: of the error must be left, for another rounding to be taken.
        weights_at_once: bound of the working memory, weights times sizes.
    """

    damping: float = 0.01
    panel: int = 32
    few_weights: int = 64
    steps: tuple[float, ...] = tuple(1.0 + 0.1 * k / 15 for k in range(16))
    clearly: float = 0.995
    weights_at_once: int = 2**20


@dataclass(frozen=True)
class SensitivitySettings:
    """Sensitivity by random vectors (``benchmarks/sensitivity.py`` compares with brute force).

    Attributes:
        probes: random vectors, each for a sample of its own.
    """

    probes: int = 4


@dataclass(frozen=True)
class BudgetSettings:
    """Extra multiplications for accuracy.

    Attributes:
        unbounded_percent: limit where only ``--min-sqnr`` is given.
        most_copies: of a layer or channel; four leave a sixteenth of the error.
        channel_reserve: times as much as a layer a channel must bring per multiplication.
        probes: random vectors, on which errors are estimated.
        evaluation_samples: on which a purchase is checked, at most.
        caution: of the error that is allowed, aimed at after an estimate was too good.
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
CORRELATED = CorrelatedSettings()
HESSIAN = HessianSettings()
ROUNDING = RoundingSettings()
SENSITIVITY = SensitivitySettings()
BUDGET = BudgetSettings()
