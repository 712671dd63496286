"""Every threshold of quantization, with its unit and its trade-off.

Measured by ``python benchmarks/ablation.py steps``, which leaves out one step at a time.
"""

from __future__ import annotations

from typing import get_args

from npuconv.config import Step

STEPS: tuple[str, ...] = get_args(Step)  # each can be left out: --without
# Random vectors of the sensitivity, each with its own sample; shares of layers are within 2 dB.
SENSITIVITY_PROBES = 2

# Padding by the host instead of the device.

# Least reduction of the steps, mean over channels. A tensor of only positive values gains 6.
PADDING_GAIN_DB = 1.0
PADDING_LARGEST_GROWTH = 3.0  # factor by which pads may enlarge a tensor
# Share of the error of all activations below which a tensor of the device does not cross
# (``--pad-on-host auto``).
PADDING_SMALLEST_SHARE = 0.02
PADDING_ERROR_SAVED = 0.75  # share of the error of a tensor that half the step removes
PADDING_OUTPUT_GAIN_DB = 1.0  # least gain of the outputs by all tensors that cross together
PADDING_SUFFICIENT_DB = 38.0  # SQNR of the outputs above which no tensor crosses

# Range margins for unseen samples.

# Independent values for which the range of a channel weighs as much as its family's.
MARGIN_HALF_WEIGHT_VALUES = 300.0
MARGIN_SMALLEST_WEIGHT = 0.02  # weight of the family below which no channel gets a margin
MARGIN_SILENT_SHARE = 0.02  # share of a channel's range below which values are silent
MARGIN_SAMPLES_FOR_TAILS = 3  # least number of samples that shows tails
MARGIN_LARGEST_TAIL_RATIO = 1.2  # largest factor of an observed extreme for a tail
# Largest share of its range by which a partial sum of few values grows: each of several may
# clip, and no activation hides it (``benchmarks/targets.py splits``).
MARGIN_SUM_GROWTH = 0.5

# Choice of ranges.

RANGE_VALUES = 1024  # values of one channel on which clipping errors are measured
RANGE_BINS = 2048  # bins of the histogram for percentile and entropy
RANGE_PERCENTILE = 99.99  # percent of the values that are not clipped
# Distance of the lowest from the largest input of a Softmax: exp(-16) is a ten-millionth.
RANGE_SOFTMAX_REACH = 16.0
# Shares of a range that the method mse tries.
RANGE_SHRINKS = (0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64, 0.56, 0.48, 0.4)
# Factors of a range that are tried for tensors of the host, whose values may lie on a grid.
RANGE_WIDENINGS = (1.004, 1.008, 1.016)
RANGE_TABLE_VALUES = 2049  # values of a range at which tables are evaluated
# Share of a step of its result by which a table may change outside a range.
RANGE_TABLE_SHARE = 0.25

# Windows of convolutions.

HESSIAN_SAMPLES = 12  # samples that are run; the number of windows does not depend on it
HESSIAN_BLOCK = 256  # values of a window whose products are kept
HESSIAN_FEWEST_WINDOWS = 1024  # least number of windows of a layer, all samples together
HESSIAN_MOST_WINDOWS = 4096  # largest number of windows of a layer
HESSIAN_WINDOWS_PER_WEIGHT = 4  # windows for each weight of a row, between these two numbers
HESSIAN_HELD_OUT_EVERY = 4  # interval of the samples on which roundings are compared
HESSIAN_HELD_OUT_WINDOWS = 64  # windows of each layer and sample on which roundings are compared
HESSIAN_LARGEST_KERNEL = 128  # values of a kernel; larger kernels are means, rounded to nearest

# GPTQ-style rounding.

ROUNDING_DAMPING = 0.01  # least share of the mean square of the inputs, added to each square
ROUNDING_FEW_WEIGHTS = 64  # largest number of weights in a row that tries several step sizes
# Sizes to try, as multiples of the smallest that reaches the largest weight.
ROUNDING_STEPS = tuple(1.0 + 0.1 * k / 15 for k in range(16))
# Largest share of the error that another rounding may leave to be taken.
ROUNDING_ERROR_LEFT = 0.995
ROUNDING_WEIGHTS_AT_ONCE = 2**20  # bound of the working memory, weights times sizes

# Clipping of tensors with one scale for all channels.

# Clipping limits to try, as shares of the largest value of a tensor.
CLIPPING_SHARES = (0.7, 0.5, 0.35, 0.25)
# Largest shares of the error of a tensor that clipping may leave. Each share gives a choice of
# tensors to clip; choices are checked in this order.
CLIPPING_ERRORS_LEFT = (0.8, 0.5, 0.25)
# Largest share of the error of all roundings that a choice may leave; the first such choice is
# taken. A smaller gain on samples that set the ranges may be a loss on other samples.
CLIPPING_SUFFICIENT = 0.6
CLIPPING_EVALUATION_SAMPLES = 8  # samples on which that error is measured
CLIPPING_PROBES = 6  # random vectors, each with its own sample

# Extra multiplications for accuracy.

BUDGET_UNBOUNDED_PERCENT = 100.0  # extra multiplications, where only ``--min-sqnr`` is given
BUDGET_MOST_COPIES = 4  # copies of a layer; four leave a sixteenth of the error
BUDGET_PROBES = 8  # random vectors on which errors are estimated
BUDGET_EVALUATION_SAMPLES = 8  # largest number of samples on which a choice is checked
BUDGET_CHECKS = 8  # equal parts of the budget; a choice for each number of parts is checked
