"""Every threshold of quantization, with its unit and its trade-off.

Measured by ``python benchmarks/ablation.py steps``, which leaves out one step at a time.
"""

from __future__ import annotations

from typing import get_args

from npuconv.config import Step
from npuconv.records import dataclass

STEPS: tuple[str, ...] = get_args(Step)  # each can be left out: --without
# Random vectors of the sensitivity, each with its own sample; shares of layers are within 2 dB.
SENSITIVITY_PROBES = 2


@dataclass(frozen=True)
class HostPaddingSettings:
    """Padding by the host instead of the device."""

    # Least reduction of the steps, mean over channels. A tensor of only positive values gains 6.
    gain_db: float = 1.0
    largest_growth: float = 3.0  # factor by which pads may enlarge a tensor
    # Share of the error of all activations below which a tensor of the device does not cross
    # (``--pad-on-host auto``).
    smallest_share: float = 0.02
    error_saved: float = 0.75  # share of the error of a tensor that half the step removes
    output_gain_db: float = 1.0  # least gain of the outputs by all tensors that cross together
    sufficient_db: float = 38.0  # SQNR of the outputs above which no tensor crosses


@dataclass(frozen=True)
class MarginSettings:
    """Range margins for unseen samples."""

    # Independent values for which the range of a channel weighs as much as its family's.
    half_weight_values: float = 300.0
    smallest_weight: float = 0.02  # weight of the family below which no channel gets a margin
    silent_share: float = 0.02  # share of a channel's range below which values are silent
    samples_for_tails: int = 3  # least number of samples that shows tails
    largest_tail_ratio: float = 1.2  # largest factor of an observed extreme for a tail
    # Largest share of its range by which a partial sum of few values grows: each of several may
    # clip, and no activation hides it (``benchmarks/targets.py splits``).
    sum_growth: float = 0.5


@dataclass(frozen=True)
class RangeSettings:
    """Choice of ranges."""

    values: int = 1024  # values of one channel on which clipping errors are measured
    bins: int = 2048  # bins of the histogram for percentile and entropy
    percentile: float = 99.99  # percent of the values that are not clipped
    # Distance of the lowest from the largest input of a Softmax: exp(-16) is a ten-millionth.
    softmax_reach: float = 16.0
    # Shares of a range that the method mse tries.
    shrinks: tuple[float, ...] = (0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64, 0.56, 0.48, 0.4)
    # Factors of a range that are tried for tensors of the host, whose values may lie on a grid.
    widenings: tuple[float, ...] = (1.004, 1.008, 1.016)
    table_values: int = 2049  # values of a range at which tables are evaluated
    # Share of a step of its result by which a table may change outside a range.
    table_share: float = 0.25


@dataclass(frozen=True)
class HessianSettings:
    """Windows of convolutions."""

    samples: int = 12  # samples that are run; the number of windows does not depend on it
    block: int = 256  # values of a window whose products are kept
    fewest_windows: int = 1024  # least number of windows of a layer, all samples together
    most_windows: int = 4096  # largest number of windows of a layer
    windows_per_weight: int = 4  # windows for each weight of a row, between these two numbers
    held_out_every: int = 4  # interval of the samples on which roundings are compared
    held_out_windows: int = 64  # windows of each layer and sample on which roundings are compared
    largest_kernel: int = 128  # values of a kernel; larger kernels are means, rounded to nearest


@dataclass(frozen=True)
class RoundingSettings:
    """GPTQ-style rounding."""

    damping: float = 0.01  # least share of the mean square of the inputs, added to each square
    few_weights: int = 64  # largest number of weights in a row that tries several step sizes
    # Sizes to try, as multiples of the smallest that reaches the largest weight.
    steps: tuple[float, ...] = tuple(1.0 + 0.1 * k / 15 for k in range(16))
    # Largest share of the error that another rounding may leave to be taken.
    error_left: float = 0.995
    weights_at_once: int = 2**20  # bound of the working memory, weights times sizes


@dataclass(frozen=True)
class ClippingSettings:
    """Clipping of tensors with one scale for all channels."""

    # Clipping limits to try, as shares of the largest value of a tensor.
    shares: tuple[float, ...] = (0.7, 0.5, 0.35, 0.25)
    # Largest shares of the error of a tensor that clipping may leave. Each share gives a choice of
    # tensors to clip; choices are checked in this order.
    errors_left: tuple[float, ...] = (0.8, 0.5, 0.25)
    # Largest share of the error of all roundings that a choice may leave; the first such choice is
    # taken. A smaller gain on samples that set the ranges may be a loss on other samples.
    sufficient: float = 0.6
    evaluation_samples: int = 8  # samples on which that error is measured
    probes: int = 6  # random vectors, each with its own sample


@dataclass(frozen=True)
class BudgetSettings:
    """Extra multiplications for accuracy."""

    unbounded_percent: float = 100.0  # extra multiplications, where only ``--min-sqnr`` is given
    most_copies: int = 4  # copies of a layer; four leave a sixteenth of the error
    probes: int = 8  # random vectors on which errors are estimated
    evaluation_samples: int = 8  # largest number of samples on which a choice is checked
    checks: int = 8  # equal parts of the budget; a choice for each number of parts is checked


HOST_PADDING = HostPaddingSettings()
MARGIN = MarginSettings()
RANGES = RangeSettings()
HESSIAN = HessianSettings()
ROUNDING = RoundingSettings()
CLIPPING = ClippingSettings()
BUDGET = BudgetSettings()
