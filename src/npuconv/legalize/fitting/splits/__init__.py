"""The rewrites of a convolution or pool that breaks a limit: in the order they are tried.

A later one works on what an earlier one made, never the other way round; so the search ends,
and no two orders of the same rewrites are looked at.
"""

from __future__ import annotations

from npuconv.legalize.fitting.proposal import Split
from npuconv.legalize.fitting.splits.bias import change_bias
from npuconv.legalize.fitting.splits.cascade import cascade_average
from npuconv.legalize.fitting.splits.channels import (
    add_channels,
    make_dense,
    split_groups,
    split_inputs,
    split_outputs,
)
from npuconv.legalize.fitting.splits.kernel import enlarge_kernel, split_kernel, undo_dilation
from npuconv.legalize.fitting.splits.pads import even_pads, move_pads
from npuconv.legalize.fitting.splits.pools import (
    pools_in_turn,
    split_pool_channels,
    split_pool_image,
)
from npuconv.legalize.fitting.splits.stride import phases_as_channels, undo_stride
from npuconv.legalize.fitting.splits.tiles import split_batch, split_image

SPLITS: tuple[Split, ...] = (
    split_batch,
    move_pads,
    cascade_average,
    phases_as_channels,
    undo_stride,
    undo_dilation,
    split_kernel,
    enlarge_kernel,
    split_groups,
    make_dense,
    split_inputs,
    split_outputs,
    add_channels,
    split_image,
    change_bias,
)
_SUMMING = (split_kernel, split_inputs)
# Sums are of convolutions alone where everything else is done before; all but the first of them
# may want a bias of zeros.
SUMS_LAST = (*(split for split in SPLITS if split not in _SUMMING), *_SUMMING, change_bias)

POOLS: tuple[Split, ...] = (
    split_batch,
    even_pads,
    undo_stride,
    pools_in_turn,
    split_pool_channels,
    split_pool_image,
)
