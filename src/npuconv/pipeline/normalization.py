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

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv import executor
from npuconv.calibration.collect import collect
from npuconv.calibration.runner import Runner
from npuconv.errors import CalibrationError
from npuconv.model import query
from npuconv.quantize.calibrate import first_convolution
from npuconv.rules._training import gap
from npuconv.samples.normalizations import CENTRED, HALF, IMAGENET, RAW, SIGNED, UNIT
from npuconv.samples.synthetic import draw, image_layout, normalized

if TYPE_CHECKING:
    import onnx

    from npuconv.arithmetic.statistics import Statistics
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
class _Evidence:
    """One piece: why, and by how much it moves the odds."""

    reason: str
    odds: Mapping[Normalization, float]

    def speaks_for(self, item: Normalization) -> bool:
        """Return whether no other normalization is much likelier by this evidence alone."""
        return self.odds.get(item, 0.0) > max(self.odds.values()) - 0.7


def infer(
    model: Model,
    proto: onnx.ModelProto,
    spec: InputSpec,
    expected: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> Inferred:
    """Infer the normalization of the one image that a model reads.

    Args:
        model: the legal float model.
        proto: the same.
        spec: its input, whose extents are fixed.
        expected: mean and standard deviation in training of what layers put out, by tensor.
    """
    found = [_origin(model, spec)]
    if said := _said(model):
        found.append(said)
    first = first_convolution(model)
    seen = _look(proto, first, spec) if first is not None else {}
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


def _look(proto: onnx.ModelProto, first: Node, spec: InputSpec) -> dict[Normalization, Statistics]:
    """Return what the first layer puts out for pictures in each normalization."""
    layout = image_layout(spec)
    assert layout is not None, "it is asked of images only"
    shape = tuple(n or 1 for n in spec.lengths)[1:]
    count = max(2, min(_PICTURES, _PIXELS // math.prod(shape)))
    pictures = [draw(shape, layout, k)[None] for k in range(count)]
    pictures = [np.repeat(one, spec.batch, axis=0) for one in pictures]
    name, found = first.outputs[0].name, {}
    runner = Runner(proto, {name: 1}, count)
    for item in KNOWN:
        feeds = [{spec.name: normalized(one, layout, item)} for one in pictures]
        # Numbers that the first layer cannot take are not what it was trained on.
        with contextlib.suppress(CalibrationError, executor.RuntimeRefusedError):
            seen = collect(proto, {name: 1}, feeds, runner=runner)[name]
            if np.isfinite(seen.means).all() and np.isfinite(seen.squares).all():
                found[item] = seen
    return found


def _training(
    seen: Mapping[Normalization, Statistics], expected: tuple[np.ndarray, np.ndarray] | None
) -> _Evidence | None:
    """Compare the first layer with what BatchNormalization has kept of training."""
    gaps = {} if expected is None else {item: gap(one, expected) for item, one in seen.items()}
    losses = {item: min(one.loss, 20.0) for item, one in gaps.items() if one is not None}
    if len(losses) < len(seen):
        return None
    best = min(losses.values())
    odds = {item: -4.0 * (loss - best) for item, loss in losses.items()}
    return _Evidence("BatchNormalization fits it best", odds)


def _biases(first: Node, seen: Mapping[Normalization, Statistics]) -> list[_Evidence]:
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
