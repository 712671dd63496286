"""Keys of the metadata of a written model, which evaluation reads."""

OPERATORS = "npuconv.operators"  # names of device operators, one per line
HOST_OPERATORS = "npuconv.host_operators"  # names of host nodes that the device could run on int8
LAYERS = "npuconv.layers"  # layers and their int8 tensors, as JSON
INT32_SUMS = "npuconv.int32_sums"  # sums in the accumulator, as JSON
REQUANTIZE = "npuconv.requantize"  # how the device rounds, unless in float
SCALE = "npuconv.scale."  # prefix of the names of inputs and outputs; their scales
