"""The normalization that a model was trained with, where nobody says it.

Each piece of evidence speaks for or against the six usual normalizations, as a logarithm of
odds; their sum decides, and how far ahead the first is tells whether it is clear:

- what the file says: metadata, and arithmetic on the input that shows what comes in;
- where it comes from: each framework has its habits, and so have lines of text, grey images
  and models that make images;
- BatchNormalization: what the first layer put out in training, against what it makes of
  pictures in each normalization;
- without that, the biases of the first layer. They are of the size of what it puts out, which
  tells 0..255 from 0..1; and where pixels are not centred, a bias takes off what the mean pixel
  adds up to, so that the mean can be read off them.

The odds were set while looking at the 40 models of ``benchmarks/normalization.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.model import query
from npuconv.quantize.calibrate import first_convolution
from npuconv.quantize.host_prep import along, origin
from npuconv.rules.normalization import training_shift
from npuconv.samples.normalizations import CENTRED, HALF, IMAGENET, RAW, SIGNED, UNIT
from npuconv.samples.synthetic import draw, image_layout

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.samples.feeds import InputSpec
    from npuconv.samples.normalizations import Normalization

Doubles = NDArray[np.float64]
Odds = dict["Normalization", float]  # logarithms
KNOWN = (RAW, UNIT, SIGNED, IMAGENET, CENTRED, HALF)
CLEAR = 0.8  # share of all odds
_PICTURES = 8
_PIXELS = 2**21  # of all pictures together, more or less: a large one shows as much as several
_WINDOWS = 2**14  # of all pictures
_LONGEST = 2048  # weights of a row of the first layer that is looked at
_LARGEST = float(np.finfo(np.float32).max)
_TINY = 1e-9

# How often models of a framework want each of KNOWN, roughly.
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
    """Normalization that a model seems to have been trained with.

    Attributes:
        normalization: the likeliest.
        share: of all odds, 0..1.
        runner_up: the next.
        reasons: what spoke for it, the strongest last.
    """

    normalization: Normalization
    share: float
    runner_up: Normalization
    reasons: tuple[str, ...]

    @property
    def is_clear(self) -> bool:
        """True if its share is large enough (``CLEAR``) to be no guess."""
        return self.share >= CLEAR

    @property
    def said(self) -> str:
        """Summary in one phrase, for the first line of a conversion."""
        because = "; ".join(self.reasons)
        if self.is_clear:
            return f"assumed pixels in {self.normalization.name} (clear: {because})"
        return (
            f"assumed pixels in {self.normalization.name} (a guess: {because}; "
            f"{self.runner_up.name} is next; give --preprocess)"
        )


@dataclass(frozen=True)
class Moments:
    """Moments of the output of a layer.

    Attributes:
        means: of its channels, float64 [C].
        variances: likewise.
    """

    means: Doubles
    variances: Doubles

    @property
    def channels(self) -> int:
        """Number of them."""
        return len(self.means)


@dataclass(frozen=True)
class _Evidence:
    """One piece: why, and by how much it moves the odds."""

    reason: str
    odds: Mapping[Normalization, float]

    def speaks_for(self, item: Normalization) -> bool:
        """Return whether no other normalization is much likelier by this evidence alone."""
        return self.odds.get(item, 0.0) > max(self.odds.values()) - 0.7


def infer(
    model: Model,
    spec: InputSpec,
    expected: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> Inferred:
    """Infer the normalization of the one image that a model reads.

    Args:
        model: the legal float model.
        spec: its input, whose extents are fixed.
        expected: mean and standard deviation in training of what layers put out, by tensor.
    """
    found = [_origin(model, spec)]
    if said := _said(model):
        found.append(said)
    first = first_convolution(model)
    seen = _look(first, spec) if first is not None else {}
    if first is not None and seen:
        found.append(_Evidence("", dict.fromkeys(seen, 9.0)))
        trained = _training(seen, expected.get(first.outputs[0].name))
        found += [trained] if trained else _biases(first, seen)
    odds = {item: sum(one.odds.get(item, 0.0) for one in found) for item in KNOWN}
    most = max(odds.values())
    shares = {item: math.exp(value - most) for item, value in odds.items()}
    order = sorted(KNOWN, key=lambda item: -shares[item])
    told = [one for one in found if one.reason and one.speaks_for(order[0])]
    return Inferred(
        order[0],
        shares[order[0]] / sum(shares.values()),
        order[1],
        tuple(one.reason for one in told),
    )


def _origin(model: Model, spec: InputSpec) -> _Evidence:
    """Return what is usual where the model comes from, and for what it looks like."""
    producer, name = model.header.producer_name.lower(), spec.name.lower()
    family = next((own for word, own in _PRODUCERS.items() if word in producer), "")
    if not family and not producer and name in ("x", "image"):
        family = "paddle"  # its converters say nothing, and call an image x
    habits = _HABITS[family or "pytorch"]
    odds = {item: math.log(k) for item, k in zip(KNOWN, habits, strict=True)}
    words = [f"usual for {family}" if family else "usual"]
    layout, lengths = image_layout(spec), spec.lengths
    channels, *sides = lengths[1:] if layout == "nchw" else (lengths[3], *lengths[1:3])
    if sides[0] and sides[1] and sides[1] >= 3 * sides[0]:
        odds[SIGNED] += 1.2
        words.append("for lines of text")
    if channels == 1:
        odds[UNIT] += 1.5
        odds[IMAGENET] -= 2.0
        odds[CENTRED] -= 2.0
        words.append("for grey images")
    if _makes_images(model, channels):
        odds[UNIT] += 1.5
        words.append("for models that make images")
    if name == "images":  # as exporters of YOLO call it
        odds[UNIT] += 0.7
    return _Evidence(", ".join(words), odds)


def _makes_images(model: Model, channels: int | None) -> bool:
    dims = [query.shape(tensor) for tensor in model.graph.outputs]
    return len(dims) == 1 and dims[0] is not None and len(dims[0]) == 4 and (
        channels in (dims[0][1], dims[0][3])
    )  # fmt: skip


def _said(model: Model) -> _Evidence | None:
    """Return what the file itself says: its metadata, or arithmetic on the input."""
    notes = {key.lower(): value for key, value in dict(model.header.metadata).items()}
    ranges = {"NominalRange_0_255": RAW, "Normalized_0_1": UNIT, "Normalized_1_1": SIGNED}
    if found := ranges.get(notes.get("image.nominalpixelrange", "")):
        return _Evidence("its metadata says so", {found: 12.0})
    (source, *_) = model.graph.inputs
    numbers: list[tuple[str, float]] = []
    tensor = source
    while (node := query.sole_consumer(model, tensor)) is not None:
        if node.op in ("Sub", "Div", "Mul", "Add", "BatchNormalization"):
            constants = [t for t in node.inputs if t.name and query.is_constant(t)]
            values = [np.asarray(query.value(t)) for t in constants]
            numbers += [(node.op, float(np.abs(v).max())) for v in values if v.size]
        elif node.op not in ("Transpose", "Cast", "Identity"):
            break
        tensor = node.outputs[0]
    first = next(((op, number) for op, number in numbers if op != "Add"), ("", 0.0))
    if first[0] == "Mul" and 100 <= first[1] <= 256:  # what comes in is no larger than 1
        return _Evidence("the model itself makes 0..255 of it", {UNIT: 6.0, SIGNED: 4.0, HALF: 4.0})
    if any(100 <= number <= 256 or 1 / 256 <= number <= 1 / 100 for _, number in numbers):
        return _Evidence("the model itself scales pixels of 0..255", {RAW: 8.0})
    if any(0.35 <= number <= 0.55 for _, number in numbers):
        return _Evidence("the model itself takes off the mean of pixels in 0..1", {UNIT: 6.0})
    return None


def _look(first: Node, spec: InputSpec) -> dict[Normalization, Moments]:
    """Return what the first layer puts out for pictures in each normalization.

    A convolution is linear, so the mean and the covariance of windows of raw pixels tell it for
    all of them: ``W (a x + b m)``, where ``m`` is 1 for pixels and 0 for pads, is linear in
    ``(x, m)``.
    """
    layout, weight = image_layout(spec), query.constant_input(first, 1)
    pictures = _pictures(spec)
    moved = _affine(first, spec, pictures[:1].shape)
    assert layout is not None, "it is asked of images only"
    assert weight is not None, "it is asked of layers with constant weights only"
    windows = _windows(pictures if layout == "nchw" else pictures.transpose(0, 3, 1, 2), first)
    group = int(query.attribute(first, "group", 1))
    if moved is None or windows is None or group != 1:
        return {}
    bias = query.constant_input(first, 2)
    added = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)
    rows, area = weight.reshape(len(weight), -1).astype(np.float64), math.prod(weight.shape[2:])
    mean, covariance = windows.mean(axis=0), np.atleast_2d(np.cov(windows, rowvar=False))
    found = {}
    for item in KNOWN:
        factor, offset = (np.repeat(part, area) for part in _together(item, *moved))
        both = np.concatenate([rows * factor, rows * offset], axis=1)
        means, variances = both @ mean + added, ((both @ covariance) * both).sum(axis=1)
        # Numbers that the first layer cannot take are not what it was trained on.
        if (np.abs(means) + 4 * np.sqrt(np.maximum(variances, 0)) < _LARGEST).all():
            found[item] = Moments(means, np.maximum(variances, 0))
    return found


def _pictures(spec: InputSpec) -> Doubles:
    """Return some pictures of raw pixels, laid out as the input."""
    layout, shape = image_layout(spec), tuple(n or 1 for n in spec.lengths)[1:]
    count = max(2, min(_PICTURES, _PIXELS // math.prod(shape)))
    return np.stack([draw(shape, layout or "", k) for k in range(count)]).astype(np.float64)


def _affine(first: Node, spec: InputSpec, shape: tuple[int, ...]) -> tuple[Doubles, Doubles] | None:
    """Return by what each channel is multiplied, and what is added, before the first layer.

    Returns:
        None where something else is done to the input.
    """
    _, way = origin(first.inputs[0])
    low, high = (along(np.full(shape, value, spec.dtype), way) for value in (0, 1))
    if low is None or high is None or low.ndim != len(shape):
        return None
    low, high = (
        part[0].reshape(part.shape[1], -1)[:, 0].astype(np.float64) for part in (low, high)
    )
    return high - low, low


def _together(item: Normalization, factor: Doubles, offset: Doubles) -> tuple[Doubles, Doubles]:
    """Return factor and offset of raw pixels by channel, through a normalization and the model."""
    pixels = np.zeros((1, len(factor), 1, 1), np.float32)
    zero, one = (item.apply(pixels + value, 1).ravel().astype(np.float64) for value in (0, 1))
    return factor * (one - zero), factor * zero + offset


def _windows(pictures: Doubles, first: Node) -> Doubles | None:
    """Return windows of the first layer, and where they are no pads, float64 [N,2*C*kh*kw]."""
    weight = query.constant_input(first, 1)
    if weight is None or weight.ndim != pictures.ndim or weight.shape[1] != pictures.shape[1]:
        return None
    dilations = tuple(query.attribute(first, "dilations", None) or (1, 1))
    strides = tuple(query.attribute(first, "strides", None) or (1, 1))
    top, left, bottom, right = query.attribute(first, "pads", None) or (0, 0, 0, 0)
    reach = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    pads = ((0, 0), (0, 0), (top, bottom), (left, right))
    parts = [np.pad(part, pads) for part in (pictures, np.ones_like(pictures))]
    long = math.prod(weight.shape[1:])
    if long > _LONGEST or min(np.subtract(parts[0].shape[2:], reach)) < 0:
        return None
    views = [np.lib.stride_tricks.sliding_window_view(part, reach, axis=(2, 3)) for part in parts]
    count = views[0][:, 0, :: strides[0], :: strides[1], 0, 0].size
    step = max(1, math.isqrt(count // _WINDOWS))
    rows, columns = (slice(None, None, step * stride) for stride in strides)
    views = [view[:, :, rows, columns, :: dilations[0], :: dilations[1]] for view in views]
    laid = [view.transpose(0, 2, 3, 1, 4, 5).reshape(-1, long) for view in views]
    return np.concatenate(laid, axis=1)


def _training(
    seen: Mapping[Normalization, Moments], expected: tuple[np.ndarray, np.ndarray] | None
) -> _Evidence | None:
    """Compare the first layer with what BatchNormalization has kept of training."""
    gaps = (
        {}
        if expected is None
        else {item: training_shift(one, expected) for item, one in seen.items()}
    )
    losses = {item: min(one.loss, 20.0) for item, one in gaps.items() if one is not None}
    if len(losses) < len(seen):
        return None
    best = min(losses.values())
    odds = {item: -4.0 * (loss - best) for item, loss in losses.items()}
    return _Evidence("BatchNormalization fits it best", odds)


def _biases(first: Node, seen: Mapping[Normalization, Moments]) -> list[_Evidence]:
    """Compare the biases of the first layer with what it puts out, and with its weights."""
    weight, bias = (query.constant_input(first, k) for k in (1, 2))
    if weight is None or bias is None or not np.any(bias):
        return []
    size = math.log(float(np.sqrt(np.mean(np.square(bias, dtype=np.float64)))))
    logs = {
        item: size - math.log(max(float(np.median(np.sqrt(one.variances))), _TINY))
        for item, one in seen.items()
    }
    odds = {item: _plausible(ratio) for item, ratio in logs.items()}
    found = [_Evidence("biases are of the size of what the first layer puts out", odds)]
    deviations = np.maximum(np.sqrt(seen[UNIT].variances), 1e-6) if UNIT in seen else None
    if deviations is not None and (centred := _mean_pixel(weight, bias, deviations)):
        found.append(centred)
    return found


def _plausible(ratio: float) -> float:
    """Return the odds of biases beside what a layer puts out, both as logarithms.

    Biases that drown everything are of no use to anybody; small ones may just be small.
    """
    odds = -1.5 * math.log1p(((ratio - 0.4) / 1.2) ** 2)
    return odds if ratio > 0 else max(odds, -2.0)


def _mean_pixel(weight: np.ndarray, bias: np.ndarray, deviations: Doubles) -> _Evidence | None:
    """Read the mean pixel of training off the biases: ``bias = -mean * sum of weights`` + rest."""
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.float64) / deviations
    biases = bias.astype(np.float64) / deviations
    if len(sums) < 4 or not (np.ptp(sums) > 0 and np.ptp(biases) > 0):
        return None
    together = float(np.corrcoef(sums, biases)[0, 1])
    mean = -float(sums @ biases) / max(float(sums @ sums), _TINY)
    if together < -0.3 and 0.15 < mean < 1:
        return _Evidence(f"biases take off a mean pixel of {mean:.2f}", {UNIT: 2.0})
    if together < -0.3 and 30 < mean < 220:
        return _Evidence(f"biases take off a mean pixel of {mean:.0f}", {RAW: 2.0})
    if together > 0.3:
        return _Evidence("biases take off no mean pixel", {UNIT: -1.5, RAW: -1.5, SIGNED: 0.0})
    return None
