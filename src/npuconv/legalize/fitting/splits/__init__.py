"""The rewrites of a convolution that breaks a limit: one a module, in the order they are tried.

A later one works on what an earlier one made, never the other way round; so the search ends,
and no two orders of the same rewrites are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.fitting.splits.batch import split_batch
from npuconv.legalize.fitting.splits.bias import change_bias
from npuconv.legalize.fitting.splits.cascade import cascade_average
from npuconv.legalize.fitting.splits.dense import make_dense
from npuconv.legalize.fitting.splits.dilation import undo_dilation
from npuconv.legalize.fitting.splits.groups import split_groups
from npuconv.legalize.fitting.splits.inputs import split_inputs
from npuconv.legalize.fitting.splits.kernel import split_kernel
from npuconv.legalize.fitting.splits.outputs import split_outputs
from npuconv.legalize.fitting.splits.pads import move_pads
from npuconv.legalize.fitting.splits.phases import phases_as_channels
from npuconv.legalize.fitting.splits.stride import undo_stride
from npuconv.legalize.fitting.splits.tiles import split_image
from npuconv.legalize.fitting.splits.zero_channels import add_channels
from npuconv.legalize.fitting.splits.zero_taps import enlarge_kernel

if TYPE_CHECKING:
    from npuconv.legalize.fitting.proposal import Split

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
