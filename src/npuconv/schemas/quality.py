"""Schema of the part of a report on quantization and accuracy. Missing numbers are ``None``."""

from typing import Literal

from npuconv.validated import Field, Record

LEVELS_PER_BIN = 8  # int8 levels in one bin of a histogram


class RepeatedLayer(Record):
    """A layer that is repeated to average its rounding errors."""

    node: str
    times: int
    extra_macs: int


class Budget(Record):
    """Goal and limit (--min-sqnr, --max-extra-macs), and the extra MACs that were spent."""

    min_sqnr_db: float | None = Field(default=None, description="the goal, in dB; null without one")
    max_extra_percent: float = Field(description="limit, in percent of the device's MACs before")
    extra_macs: int
    extra_percent: float = Field(description="extra MACs in percent of the device's MACs before")
    before_db: float | None = Field(description="SQNR without the extra MACs, simulated")
    simulated_db: float | None = Field(description="SQNR with the extra MACs, simulated")
    unsaturated: bool = Field(
        default=False,
        description="whether both SQNR are of the inputs of a final Softmax or Sigmoid",
    )
    repeated: tuple[RepeatedLayer, ...] = ()
    biasless: int = Field(
        default=0,
        description="layers that the device adds no bias to; where there are any nothing is "
        "repeated, because copies differ by their biases",
    )


class HostPadding(Record):
    """Tensors that the host pads as --pad-on-host auto or all permits."""

    tensors: tuple[str, ...] = Field(description="outputs of device layers that the host pads")
    extra_bytes: int | None = Field(description="additional bytes per inference; null: not known")
    extra_percent: float | None = Field(description="extra_bytes in percent of all bytes")
    gain_db: float | None = Field(description="estimated gain in SQNR of all outputs together")


class SummedLayer(Record):
    """A layer in parts, whose sums are rounded to int8 before they are added."""

    node: str
    tensors: int = Field(description="number of partial sums")
    cost_db: float | None = Field(
        description="loss of SQNR of all outputs together from rounding them, estimated on "
        "calibration samples; null: not known"
    )


class PartialSums(Record):
    """Layers in parts, whose sums are rounded to int8 before they are added."""

    layers: tuple[SummedLayer, ...]
    cost_db: float | None = Field(description="loss of SQNR from all layers together")


class ChannelRange(Record):
    """Observed range and int8 range of one channel, to 4 digits."""

    channel: int
    minimum: float
    maximum: float
    lowest: float = Field(description="smallest value that int8 represents")
    highest: float = Field(description="largest value that int8 represents")


_HISTOGRAM = (
    "number of values below -128, in 32 bins of 8 int8 levels from -128 to 127, and above 127, "
    "of a sample of the values; empty where they were not observed"
)

_CHANNEL_RANGES = (
    "at most 16 channels, evenly spaced in the order of their width, the widest first; "
    "empty for one channel"
)


class TensorQuant(Record):
    """Quantization of one activation tensor."""

    name: str
    scale: float = Field(description="largest scale of all channels")
    zero_point: int = Field(description="lowest zero point of all channels")
    channels: int = Field(default=1, description="number of scales; 1: one for all channels")
    smallest_scale: float | None = Field(default=None, description="smallest scale of all channels")
    highest_zero_point: int | None = Field(
        default=None, description="highest zero point of all channels"
    )
    minimum: float
    maximum: float
    lowest: float | None = Field(
        default=None, description="smallest value that int8 represents in any channel"
    )
    highest: float | None = Field(
        default=None, description="largest value that int8 represents in any channel"
    )
    clip_fraction: float = Field(
        description="share of the calibration values beyond the range; 0 where a Relu or Clip "
        "follows that cuts them off anyway"
    )
    method: str = Field(default="", description="method by which the range was chosen")
    histogram: tuple[int, ...] = Field(default=(), description=_HISTOGRAM)
    channel_ranges: tuple[ChannelRange, ...] = Field(default=(), description=_CHANNEL_RANGES)


class WeightQuant(Record):
    """The weights of one layer, as the float model has them."""

    minimum: float
    maximum: float
    channels: int = Field(description="number of output channels")
    smallest_reach: float = Field(description="smallest of the largest magnitudes of all channels")
    clip_fraction: float = Field(description="share of the weights beyond what int8 holds")
    histogram: tuple[int, ...] = Field(default=(), description=_HISTOGRAM)


class LayerQuant(Record):
    """The output of one layer on one sample, errors of earlier layers included."""

    name: str
    sqnr_db: float | None
    cosine: float | None
    note: str = ""
    rounding: str = Field(default="", description="method by which the weights were rounded")
    alone_db: float | None = Field(
        default=None, description="SQNR of the outputs if only this is rounded"
    )
    noise_share: float | None = Field(
        default=None, description="share of the noise in the outputs, 0..1"
    )
    weights: WeightQuant | None = None
    module: str = Field(default="", description="module of the training code; empty: not known")


class Assumed(Record):
    """Inputs that are assumed where no calibration data is given."""

    sentence: str = Field(description="complete description for people")
    pictures: Literal["photographs", "made-up", "none"]
    normalization: str = Field(description="normalization of the pictures; empty if not known")
    certainty: Literal["given", "inferred", "guessed", "unknown"]
    share: float | None = Field(
        default=None, description="probability of the normalization, if inferred"
    )
    runner_up: str = Field(
        default="", description="second most probable normalization, if inferred"
    )


class ChangedScale(Record):
    """A tensor or layer of a quantized model whose integers differ from the source model."""

    name: str = Field(description="tensor of the float graph, or node of the source")
    reason: str


class KeptScales(Record):
    """Scales that are kept of a model that was quantized already."""

    tensors: int = Field(description="int8 tensors that keep the scale of the source")
    all_tensors: int
    layers: int = Field(description="layers with the integer weights of the source")
    all_layers: int
    changed: tuple[ChangedScale, ...] = ()


class QuantizationInfo(Record):
    """Quantization of the model."""

    format: str
    method: str
    samples: int
    source: str = Field(description="origin of the samples")
    synthetic: bool
    tensors: tuple[TensorQuant, ...] = ()
    layers: tuple[LayerQuant, ...] = ()
    budget: Budget | None = None
    host_padding: HostPadding | None = Field(
        default=None, description="null unless the host may pad"
    )
    partial_sums: PartialSums | None = Field(default=None, description="null where none is rounded")
    source_scales: KeptScales | None = Field(
        default=None,
        description="null unless the model was quantized already and its scales are kept",
    )


class PartAccuracy(Record):
    """Accuracy of one tensor that an output is concatenated from."""

    name: str
    sqnr_db: float | None = Field(
        description="10 log10(sum f^2 / sum (f-q)^2); null: exact where the cosine is a number, "
        "else zeros or not finite"
    )
    cosine: float | None


class Agreement(Record):
    """Agreement of both models on classes and indices."""

    top1_agreement: float | None = Field(
        description="share of positions with the same largest class; null where nothing tells "
        "which axis has the classes: neither a Softmax nor the shape [N, C]"
    )
    holds_indices: bool = Field(
        default=False, description="true: integers or booleans, whose size means nothing; no SQNR"
    )
    agreement: float | None = Field(
        default=None,
        description="share of equal values, if it holds indices; null: none was compared",
    )
    positions: int = Field(default=0, description="number of compared positions, over all samples")
    uncompared: int = Field(
        default=0, description="samples on which the models do not put out equally many numbers"
    )


class OutputAccuracy(Agreement, PartAccuracy):
    """Accuracy of one output of the int8 model against the float model."""

    parts: tuple[PartAccuracy, ...] = Field(
        default=(), description="tensors that it is concatenated from, as boxes and scores"
    )


class WorstSample(Record):
    """The sample on which the int8 model is furthest from the float model."""

    number: int = Field(description="number of the sample in the data, from 0")
    sqnr_db: float


class Accuracy(Record):
    """Accuracy of the int8 model against the float model."""

    samples: int
    uncompared: int = Field(
        default=0,
        description="samples without SQNR: the models put out different numbers of values, or "
        "only indices",
    )
    held_out: bool = Field(
        description="true: only the allocation of extra MACs has used these samples"
    )
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    outputs: tuple[OutputAccuracy, ...]
    interval_db: tuple[float, float] | None = Field(
        default=None,
        description="80 % interval of the SQNR on as many new samples; null without any error",
    )
    median_db: float | None = Field(default=None, description="median SQNR of single samples")
    worst_sample: WorstSample | None = None
    worst_output: str | None = Field(default=None, description="the worst of several outputs")
    unsaturated_db: float | None = Field(
        default=None, description="SQNR before a final Softmax, Sigmoid or ArgMax"
    )
    notes: tuple[str, ...] = Field(default=(), description="reasons why the figure says less")
