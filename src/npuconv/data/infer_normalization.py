"""Normalization of pixels that a model was trained with, inferred from the model.

Each piece of evidence adds to the logarithm of the odds of the six usual normalizations; the lead
of the first decides whether the result is clear:

- metadata, and arithmetic on the input that shows its range;
- the habits of the framework, and of lines of text, grey images and models that make images;
- a folded BatchNormalization, which holds mean and standard deviation of every channel of the
  first layer in training: against its output for pictures in each normalization;
- without that, the biases of the first layer. They are of the size of its output, which separates
  0..255 from 0..1; where pixels are not centred, they subtract the mean pixel times the sum of the
  weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics
from npuconv.arithmetic.windows import im2col
from npuconv.config import Preprocess
from npuconv.data.model_inputs import apply_affine, first_convolution, path_from_input
from npuconv.data.normalizations import (
    CENTRED,
    HALF,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    PixelNormalization,
    normalization_of,
)
from npuconv.data.pictures import draw, image_layout
from npuconv.data.samples import InputSpec
from npuconv.data.workers import in_order
from npuconv.model import Model, Node, query
from npuconv.records import dataclass, field

Doubles = NDArray[np.float64]
KNOWN = (RAW, UNIT, SIGNED, IMAGENET, CENTRED, HALF)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_TINY = 1e-9
_MIN_DEVIATION = 1e-6


# Odds and thresholds, set on the 40 models of ``python benchmarks/accuracy.py normalization``. Odds
# are natural logarithms; a trade-off between wrong guesses and guesses not called clear.
_CLEAR_SHARE = 0.8  # least share of all odds of a normalization that is no guess
_REASON_MARGIN = 0.7  # odds by which a stated reason may favour another normalization
_MAX_PICTURES = 8  # number of pictures for the first layer
_MAX_PIXELS = 2**21  # about all pictures together; a large picture shows as much as several
_MAX_WINDOWS = 2**12  # windows of the first layer in all pictures; 2**14 choose the same
_MAX_ROW = 2048  # weights of a row of the first layer; larger rows cost too much
_TEXT_ASPECT = 3  # width by height of a line of text
_TEXT_SIGNED = 1.2  # odds of -1..1 for lines of text
_GREY_UNIT = 1.5  # odds of 0..1 for grey images
_GREY_COLOR_MEAN = -2.0  # odds of a mean with colours for grey images
_IMAGE_OUTPUT_UNIT = 1.5  # odds of 0..1 for models that make images
_YOLO_UNIT = 0.7  # odds of 0..1 for inputs named as exporters of YOLO do
_METADATA_ODDS = 12.0  # odds of the range that the metadata states
_SCALES_UP = 6.0  # odds of 0..1 where the model multiplies its input to 0..255
_SCALES_UP_CENTRED = 4.0  # odds of centred ranges up to 1 in such a model
_SCALES_RAW = 8.0  # odds of 0..255 where the model scales such pixels
_SUBTRACTS_MEAN = 6.0  # odds of 0..1 where the model subtracts such a mean
_FINITE_ODDS = 9.0  # odds of a normalization whose values the first layer can take
_TRAINING_ODDS = -4.0  # odds for each unit of loss against BatchNormalization
_MAX_TRAINING_LOSS = 20.0  # loss beyond which all normalizations are equally wrong
_BIAS_ODDS = -1.5  # odds by ``log(1 + d^2)`` of the distance of biases from their usual size
_BIAS_USUAL = 0.4  # logarithm of the usual relative bias of the first layer
_BIAS_WIDTH = 1.2  # logarithm of a distance that counts
_SMALL_BIAS = -2.0  # lowest odds by small biases, which may just be small
_MIN_CHANNELS = 4  # channels of a first layer whose biases show a mean pixel
_BIAS_CORRELATION = 0.3  # least correlation of biases and sums of weights that counts
_UNIT_MEAN = (0.15, 1)  # mean pixels of 0..1
_RAW_MEAN = (30, 220)  # mean pixels of 0..255
_MEAN_PIXEL = 2.0  # odds of the range of a mean pixel in the biases
_NO_MEAN_PIXEL = -1.5  # odds of ranges that are not centred, without a mean pixel
_OFFSET_WEIGHT = 4.0  # weight of an offset of one deviation; a spread times e weighs 1
_DEAD_SHARE = 1e-3  # share of the largest deviation below which training turned a channel off

# Shares of the models of a framework that want each of KNOWN, roughly.
_HABITS: dict[str, tuple[float, ...]] = {
    "paddle": (0.02, 0.06, 0.36, 0.50, 0.03, 0.03),
    "tensorflow": (0.12, 0.20, 0.52, 0.05, 0.07, 0.04),
    "caffe": (0.15, 0.15, 0.10, 0.08, 0.48, 0.04),
    "pytorch": (0.10, 0.35, 0.15, 0.30, 0.05, 0.05),
}
_PRODUCERS = {
    "paddle": "paddle", "tf2onnx": "tensorflow", "keras": "tensorflow", "tensorflow": "tensorflow",
    "tflite": "tensorflow", "caffe": "caffe", "mxnet": "caffe", "cntk": "caffe",
    "pytorch": "pytorch",
}  # fmt: skip


@dataclass(frozen=True)
class Inferred:
    """Normalization that a model seems to have been trained with."""

    normalization: PixelNormalization
    share: float  # share of all odds, 0..1
    runner_up: PixelNormalization
    reasons: tuple[str, ...]  # evidence for the normalization, the strongest last
    # Logarithms of the odds of all normalizations, without and with the habits of the framework.
    evidence: Mapping[PixelNormalization, float] = field(default_factory=dict)
    odds: Mapping[PixelNormalization, float] = field(default_factory=dict)

    @property
    def is_clear(self) -> bool:
        """True if its share is large enough to be no guess."""
        return self.share >= _CLEAR_SHARE

    @property
    def phrase(self) -> str:
        """Summary in one phrase, for the first line of a conversion."""
        because = "; ".join(self.reasons)
        if self.is_clear:
            return f"assumed pixels in {self.normalization.name} (clear: {because})"
        return (
            f"assumed pixels in {self.normalization.name} (a guess: {because}; "
            f"{self.runner_up.name} is next; give --preprocess)"
        )


@dataclass(frozen=True)
class _Evidence:
    """A piece of evidence: its reason, and the odds by normalization."""

    reason: str
    odds: Mapping[PixelNormalization, float]


class Moments(NamedTuple):
    """Mean and variance of every channel of a tensor, float64 [C] each."""

    means: Doubles
    variances: Doubles


def infer(model: Model, spec: InputSpec, pictures: NDArray[np.float32] | None = None) -> Inferred:
    """Infer the normalization of the one image that a model reads.

    Args:
        model: the float model.
        spec: the image.
        pictures: pixels of 0..255 for the first layer, [N,C,H,W]; drawn if None.
    """
    integers = normalization_of(spec, Preprocess()) if spec.dtype.kind != "f" else None
    if integers is not None:
        return Inferred(integers, 1.0, integers, (f"input {spec.name!r} is {spec.dtype}",))
    if pictures is None:
        layout, shape = image_layout(spec) or "", tuple(n or 1 for n in spec.lengths)[1:]
        numbers = range(picture_count(shape))
        pictures = np.stack([*in_order(lambda k: draw(shape, layout, k), numbers)])
        pictures = pictures if layout == "nchw" else pictures.transpose(0, 3, 1, 2)
    habits, evidence = _habits(model, spec, pictures.shape[1:]), _from_file(model, spec)
    first = first_convolution(model)
    moments = {} if first is None else _first_outputs(first, spec, pictures)
    if first is not None and moments:
        evidence.append(_Evidence("", dict.fromkeys(moments, _FINITE_ODDS)))
        in_training = model.in_training.get(first.outputs[0].name)
        shifts = {
            item: training_shift(output, in_training) if in_training else None
            for item, output in moments.items()
        }
        losses = {k: min(shift.loss, _MAX_TRAINING_LOSS) for k, shift in shifts.items() if shift}
        if len(losses) == len(moments):
            least = min(losses.values())
            odds = {item: _TRAINING_ODDS * (loss - least) for item, loss in losses.items()}
            evidence.append(_Evidence("BatchNormalization fits it best", odds))
        else:
            evidence += _biases(first, moments)
    model_odds = {item: sum(piece.odds.get(item, 0.0) for piece in evidence) for item in KNOWN}
    odds = {item: habits.odds[item] + model_odds[item] for item in KNOWN}
    highest = max(odds.values())
    shares = {item: math.exp(value - highest) for item, value in odds.items()}
    order = sorted(KNOWN, key=lambda item: -shares[item])
    best, share = order[0], shares[order[0]] / sum(shares.values())
    reasons = tuple(
        piece.reason
        for piece in (habits, *evidence)  # evidence that makes no other normalization much likelier
        if piece.odds.get(best, 0.0) > max(piece.odds.values()) - _REASON_MARGIN
    )
    return Inferred(best, share, order[1], tuple(filter(None, reasons)), model_odds, odds)


def picture_count(shape: tuple[int, ...]) -> int:
    """Return how many pictures of a shape show a normalization."""
    return max(2, min(_MAX_PICTURES, _MAX_PIXELS // max(1, math.prod(shape))))


def _habits(model: Model, spec: InputSpec, shape: tuple[int, ...]) -> _Evidence:
    """Return the odds usual for the framework, and for the kind of image."""
    producer, name = model.header.producer_name.lower(), spec.name.lower()
    family = next((family for word, family in _PRODUCERS.items() if word in producer), "")
    if not family and not producer and name in ("x", "image"):
        family = "paddle"  # its converters leave the producer out, and call an image x
    habits = _HABITS[family or "pytorch"]
    odds = {item: math.log(k) for item, k in zip(KNOWN, habits, strict=True)}
    words = [f"usual for {family}" if family else "usual"]
    channels, *sides = shape
    if sides[1] >= _TEXT_ASPECT * sides[0]:
        odds[SIGNED] += _TEXT_SIGNED
        words.append("for lines of text")
    if channels == 1:
        odds[UNIT] += _GREY_UNIT
        odds[IMAGENET] += _GREY_COLOR_MEAN
        odds[CENTRED] += _GREY_COLOR_MEAN
        words.append("for grey images")
    dims = [query.shape(tensor) or () for tensor in model.graph.outputs]
    if len(dims) == 1 and len(dims[0]) == 4 and channels in (dims[0][1], dims[0][3]):
        odds[UNIT] += _IMAGE_OUTPUT_UNIT
        words.append("for models that make images")
    if name == "images":  # as exporters of YOLO call it
        odds[UNIT] += _YOLO_UNIT
    return _Evidence(", ".join(words), odds)


def _from_file(model: Model, spec: InputSpec) -> list[_Evidence]:
    """Return the evidence of metadata, or of arithmetic on the input."""
    notes = {key.lower(): value for key, value in dict(model.header.metadata).items()}
    ranges = {"NominalRange_0_255": RAW, "Normalized_0_1": UNIT, "Normalized_1_1": SIGNED}
    if stated := ranges.get(notes.get("image.nominalpixelrange", "")):
        return [_Evidence("its metadata says so", {stated: _METADATA_ODDS})]
    numbers: list[tuple[str, float]] = []
    tensor = next(t for t in model.graph.inputs if t.name == spec.name)
    while (node := query.sole_consumer(model, tensor)) is not None:
        if node.op in ("Sub", "Div", "Mul", "Add", "BatchNormalization"):
            constants = [t for t in node.inputs if t.name and query.is_constant(t)]
            values = [np.asarray(query.value(t)) for t in constants]
            numbers += [(node.op, float(np.abs(v).max())) for v in values if v.size]
        elif node.op not in ("Transpose", "Cast", "Identity"):
            break
        tensor = node.outputs[0]
    op, number = next(((op, number) for op, number in numbers if op != "Add"), ("", 0.0))
    if op == "Mul" and 100 <= number <= 256:  # the input is no larger than 1
        centred = dict.fromkeys((SIGNED, HALF), _SCALES_UP_CENTRED)
        odds = {UNIT: _SCALES_UP, **centred}
        return [_Evidence("the model itself scales its input to 0..255", odds)]
    if any(100 <= number <= 256 or 1 / 256 <= number <= 1 / 100 for _, number in numbers):
        return [_Evidence("the model itself scales pixels of 0..255", {RAW: _SCALES_RAW})]
    if any(0.35 <= number <= 0.55 for _, number in numbers):
        odds = {UNIT: _SUBTRACTS_MEAN}
        return [_Evidence("the model itself subtracts the mean of pixels in 0..1", odds)]
    return []


def _first_outputs(
    first: Node, spec: InputSpec, pictures: NDArray[np.float32]
) -> dict[PixelNormalization, Moments]:
    """Return moments of the first layer's output for pictures in each normalization.

    A convolution is linear, so they follow for all normalizations from the mean and the
    covariance of windows of raw pixels: ``W (a x + b m)``, where ``m`` is 1 for pixels and 0 for
    pads, is linear in ``(x, m)``.

    Returns:
        Nothing if the input is not only scaled, moved and reordered before the layer.
    """
    weight, windows = query.constant_input(first, 1), _windows(pictures, first)
    assert weight is not None, "only layers with constant weights get here"
    _, path = path_from_input(first.inputs[0])
    # The affine map of each channel, from inputs of 0 and 1.
    shape = (1, *(n or 1 for n in spec.lengths[1:]))
    zeros, ones = (apply_affine(np.full(shape, value, spec.dtype), path) for value in (0, 1))
    if (
        zeros is None or ones is None or zeros.ndim != pictures.ndim or windows is None
        or int(query.attribute(first, "group", 1)) != 1
    ):  # fmt: skip
        return {}
    offset, end = (x[0].reshape(x.shape[1], -1)[:, 0].astype(np.float64) for x in (zeros, ones))
    factor = end - offset
    bias = query.constant_input(first, 2)
    biases = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)
    rows, area = weight.reshape(len(weight), -1).astype(np.float64), math.prod(weight.shape[2:])
    mean, covariance = windows.mean(axis=0), np.atleast_2d(np.cov(windows, rowvar=False))
    outputs = {}
    raw = np.zeros((1, len(factor), 1, 1), np.float32)
    for item in KNOWN:
        # Raw pixels of 0 and 1 give factor and offset of the normalization and the model together.
        zero_values, one_values = (
            item.apply(raw + value, 1).ravel().astype(np.float64) for value in (0, 1)
        )
        factors = np.repeat(factor * (one_values - zero_values), area)
        offsets = np.repeat(factor * zero_values + offset, area)
        weights = np.concatenate([rows * factors, rows * offsets], axis=1)
        means, variances = weights @ mean + biases, ((weights @ covariance) * weights).sum(axis=1)
        # Training had no numbers that the first layer cannot take.
        if (np.abs(means) + 4 * np.sqrt(np.maximum(variances, 0)) < _LARGEST_FLOAT).all():
            outputs[item] = Moments(means, np.maximum(variances, 0))
    return outputs


def _windows(pictures: NDArray[np.float32], first: Node) -> Doubles | None:
    """Return windows of the first layer, and their mask of pads, float64 [N,2*C*kh*kw]."""
    weight = query.constant_input(first, 1)
    if weight is None or weight.ndim != pictures.ndim or weight.shape[1] != pictures.shape[1]:
        return None
    row = math.prod(weight.shape[1:])
    if row > _MAX_ROW:
        return None
    dilations = tuple(query.attribute(first, "dilations", None) or (1, 1))
    strides = tuple(query.attribute(first, "strides", None) or (1, 1))
    pads = tuple(query.attribute(first, "pads", None) or (0, 0, 0, 0))
    # The mask is the same for all pictures.
    planes = (pictures, np.ones_like(pictures[:1]))
    views = [im2col(plane, weight.shape[2:], strides, dilations, pads) for plane in planes]
    count = views[0][:, 0, :, :, 0, 0].size
    if not count:
        return None
    step = max(1, math.isqrt(count // _MAX_WINDOWS))
    views = [view[:, :, ::step, ::step] for view in views]
    matrices = [view.transpose(0, 2, 3, 1, 4, 5).reshape(-1, row) for view in views]
    masks = np.tile(matrices[1], (len(pictures), 1))
    return np.concatenate([matrices[0], masks], axis=1, dtype=np.float64)


def _biases(first: Node, moments: Mapping[PixelNormalization, Moments]) -> list[_Evidence]:
    """Compare the biases of the first layer with its output, and with its weights."""
    weight, bias = (query.constant_input(first, k) for k in (1, 2))
    if weight is None or bias is None or not np.any(bias):
        return []
    odds, size = {}, float(np.sqrt(np.mean(np.square(bias.astype(np.float64)))))
    for item, output in moments.items():
        ratio = math.log(size / max(float(median(np.sqrt(output.variances))), _TINY))
        distance = (ratio - _BIAS_USUAL) / _BIAS_WIDTH
        odds[item] = _BIAS_ODDS * math.log1p(distance**2)
        # Biases much larger than all outputs make a layer useless; small ones may just be small.
        if ratio <= 0:
            odds[item] = max(odds[item], _SMALL_BIAS)
    evidence = [_Evidence("the size of the first biases", odds)]
    if UNIT not in moments:
        return evidence
    # The mean pixel of training, if pixels are not centred: bias = -mean * sum of weights + rest.
    deviations = np.maximum(np.sqrt(moments[UNIT].variances), _MIN_DEVIATION)
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.float64) / deviations
    biases = bias.astype(np.float64) / deviations
    if len(sums) < _MIN_CHANNELS or not (np.ptp(sums) > 0 and np.ptp(biases) > 0):
        return evidence
    correlation = float(np.corrcoef(sums, biases)[0, 1])
    mean = -float(sums @ biases) / max(float(sums @ sums), _TINY)
    if correlation > _BIAS_CORRELATION:
        odds = {UNIT: _NO_MEAN_PIXEL, RAW: _NO_MEAN_PIXEL, SIGNED: 0.0}
        evidence.append(_Evidence("the first biases subtract no mean pixel", odds))
    elif correlation < -_BIAS_CORRELATION:
        ranges = ((UNIT, _UNIT_MEAN, 2), (RAW, _RAW_MEAN, 0))
        for item, (low, high), digits in ranges:
            if low < mean < high:
                reason = f"the first biases subtract a mean pixel of {mean:.{digits}f}"
                evidence.append(_Evidence(reason, {item: _MEAN_PIXEL}))
                break
    return evidence


class TrainingShift(NamedTuple):
    """Difference between the statistics of a layer on the samples and in training."""

    offset: float  # median distance of the channels' means, in standard deviations of training
    ratio: float  # median of the observed standard deviation over that of training
    spread: float  # median deviation of the logarithm of that ratio

    @property
    def loss(self) -> float:
        """Size of the difference; 0 if there is none."""
        return float(_OFFSET_WEIGHT * self.offset**2 + np.log(self.ratio) ** 2)


def training_shift(
    output: Moments | Statistics, in_training: tuple[np.ndarray, np.ndarray]
) -> TrainingShift | None:
    """Compare the output of a layer with its output in training.

    Returns:
        None if the number of channels differs, or all were switched off in training.
    """
    means, deviations = (np.asarray(part, np.float64).ravel() for part in in_training)
    if means.size != len(output.means):
        return None
    largest = max(float(deviations.max(initial=0.0)), _MIN_DEVIATION)
    live = deviations > _DEAD_SHARE * largest
    if not live.any():
        return None
    offsets = np.abs(output.means - means)[live] / deviations[live]
    observed = np.maximum(np.sqrt(output.variances)[live], _MIN_DEVIATION)
    ratios = np.log(observed / deviations[live])
    middle = float(median(ratios))
    spread = float(median(np.abs(ratios - middle)))
    return TrainingShift(float(median(offsets)), float(np.exp(middle)), spread)
