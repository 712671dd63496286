"""Samples that look normalized differently than in training.

Two kinds of evidence: a folded BatchNormalization behind the first layer holds mean and standard
deviation of its channels in training; and the float model is run on a few samples in the other
usual normalizations. After training every channel has values on both sides of 0, by about its own
spread: a channel that never changes sign learns nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics
from npuconv.data.float_pass import collect, open_session
from npuconv.data.infer_normalization import (
    KNOWN,
    InTraining,
    relative_bias,
    rms,
    training_shift,
)
from npuconv.data.model_inputs import first_convolution
from npuconv.data.normalizations import (
    CENTRED,
    HALF,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    PixelNormalization,
    guess,
    image_axis,
)
from npuconv.data.samples import Samples, spread
from npuconv.errors import CalibrationError
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.rules.context import NormalizationMismatch

_PIXELS = (RAW, CENTRED)  # normalizations whose steps are one grey level
_CENTRED = (SIGNED, IMAGENET, CENTRED)
_TINY = 1e-9
_MAX_SHOWN_RATIO = 1000
# Normalizations to try on samples in a normalization, the likelier first.
_CANDIDATES: dict[PixelNormalization, tuple[PixelNormalization, ...]] = {
    RAW: (UNIT, SIGNED, IMAGENET),
    CENTRED: (UNIT, SIGNED, IMAGENET),
    UNIT: (SIGNED, RAW),
    HALF: (SIGNED, UNIT, RAW),
    SIGNED: (UNIT, RAW),
    IMAGENET: (RAW,),
}


@dataclass(frozen=True)
class MismatchSettings:
    """Bounds between right and wrong normalizations.

    They were set on models in the normalization they were trained for and five others; all lie
    well between the values of the right and of the wrong normalizations.
    """

    min_judged_channels: int = 8  # channels of a first layer whose statistics are sound
    trial_samples: int = 4  # number of samples of a trial
    no_bias: float = 0.05  # relative bias of the first layer below which it has no effect
    hiding_bias: float = 20.0  # relative bias of the first layer above which it hides the input
    plausible_bias: tuple[float, float] = (0.4, 6.0)  # relative bias in trained models
    entropy_drop: float = 0.9  # least sign entropy by that of the samples, of smaller values
    entropy_gain: float = 1.1  # the same ratio, of larger values
    unit_shift: float = 0.3  # logarithm of the ratio of first levels from which 0..1 fits better
    centred_shift: float = -0.15  # the same, for normalizations around 0
    centred_gain: float = 0.05  # least decrease of the mean offset for normalizations around 0
    scale: float = 0.5  # logarithm of a scale that two normalizations share; 0..1 to -1..1: 0.7
    # ``TrainingShift.loss`` of a wrong normalization: the spread is 3.4 times that of training, or
    # the means are 0.6 standard deviations off.
    shift_loss: float = 1.5
    channel_spread: float = 0.7  # deviation of log ratios above which no one factor explains them
    untrained: float = 1e-3  # relative difference of channels that epsilon alone makes


BOUNDS = MismatchSettings()


def find_mismatch(
    model: Model,
    proto: onnx.ModelProto,
    samples: Samples,
    statistics: Mapping[str, Statistics],
    expected: Mapping[str, InTraining],
) -> NormalizationMismatch | None:
    """Return the difference from the normalization of training; None if there is no sign of it.

    Args:
        model: the float model, ``proto`` in memory.
        proto: the same model as ONNX.
        samples: the feeds of the model.
        statistics: statistics of the outputs of convolutions on all samples, by tensor.
        expected: mean and standard deviation in training of outputs of layers, by tensor.
    """
    first = first_convolution(model)
    weight = None if first is None else query.shape(first.inputs[1])
    if first is None or weight is None or int(weight[0] or 0) < BOUNDS.min_judged_channels:
        return None
    output = statistics.get(first.outputs[0].name)
    trials = run_trials(model, proto, samples, first, output)
    better, reason = better_fits(trials) if trials else ([], "")
    untrained = sum(map(_is_constant, expected.values())) > len(expected) / 2
    in_training = None if untrained else expected.get(first.outputs[0].name)
    shift = training_shift(output, in_training) if output and in_training else None
    if (
        shift is not None
        and shift.loss >= BOUNDS.shift_loss
        and shift.spread < BOUNDS.channel_spread  # channels differ alike: a wrong scale
    ):
        fits = _fits_by_scale(trials.baseline, shift.ratio) if trials else []
        fits = [item for item in fits if item in better] or fits
        reason = (
            f"BatchNormalization says that the standard deviation of what the first layer puts "
            f"out was {1 / shift.ratio:.3g} times this in training, and its means are "
            f"{shift.offset:.1f} standard deviations off"
        )
        value = f"standard deviation x {shift.ratio:.3g}, mean off by {shift.offset:.2g}"
        limit = "standard deviation x 1, mean off by 0"
    elif trials and better:
        fits = better
        if trials.baseline not in _PIXELS and any(item in _CENTRED for item in fits):
            # Samples that are not centred do not show at which scale the model expects them.
            fits = [*fits, *(i for i in _CENTRED if i not in (*fits, trials.baseline))]
        value, limit = trials.baseline.name, " or ".join(item.name for item in fits)
    else:
        return None
    claim = "the calibration samples are not normalized like those of training"
    if trials and fits:
        options = " or ".join(f"{item.name} ({item.option})" for item in fits)
        claim = (
            f"the calibration samples look like {trials.baseline.name}, the model as if trained on "
            f"{options}"
        )
    return NormalizationMismatch(first, claim, reason, value, limit)


def _is_constant(expected: InTraining) -> bool:
    """Return whether all channels are alike, as in an untrained model."""
    return all(
        float(np.ptp(part)) <= BOUNDS.untrained * float(np.abs(part).max()) for part in expected
    )


def _fits_by_scale(normalization: PixelNormalization, ratio: float) -> list[PixelNormalization]:
    """Return normalizations that make values about ``ratio`` times smaller."""
    step = float(np.mean(normalization.std))
    return [
        item
        for item in KNOWN
        if item != normalization
        and abs(math.log(step * ratio / float(np.mean(item.std)))) < BOUNDS.scale
    ]


class Profile(NamedTuple):
    """Statistics of the outputs of all convolutions on samples in one normalization."""

    sign_entropy: float  # mean entropy, in bits, of the sign of values; layers count alike
    mean_offset: float  # mean of ``log(1 + (mean / standard deviation) ** 2)``, over layers
    first_level: float  # rms of the means of the channels of the first layer
    bias: float  # relative bias of the first layer

    @classmethod
    def from_statistics(
        cls,
        layers: Sequence[Statistics],
        first: Statistics,
        biases: NDArray[np.generic] | None,
    ) -> Profile:
        """Compute the profile from the outputs of the convolutions."""
        entropies, offsets = [], []
        for layer in layers:
            share = np.clip((layer.values > 0).mean(axis=1), _TINY, 1 - _TINY)
            bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
            entropies.append(float(bits.mean()))
            power, variance = layer.means**2, layer.variances
            variance = np.maximum(variance, _TINY * np.maximum(power + variance, _TINY))
            offsets.append(float(np.mean(np.log1p(power / variance))))
        return cls(
            float(np.mean(entropies)),
            float(np.mean(offsets)),
            rms(first.means),
            relative_bias(first, biases),
        )


class Trials(NamedTuple):
    """Profiles of the float model on unchanged samples and on samples normalized differently."""

    baseline: PixelNormalization  # normalization that the samples seem to have
    profiles: Mapping[PixelNormalization, Profile]  # baseline first; empty without a candidate
    makes_images: bool = False  # True if an output is an image, as of super-resolution


def run_trials(
    model: Model,
    proto: onnx.ModelProto,
    samples: Samples,
    first: Node,
    output: Statistics | None = None,
) -> Trials | None:
    """Run the model on a few samples, unchanged and in other normalizations.

    Args:
        model: the float model.
        proto: the same model as ONNX.
        samples: the feeds of the model.
        first: its first convolution.
        output: statistics of its output on all samples; they exclude candidates.

    Returns:
        None where not exactly one input is an image, where the range of the image does not show
        its normalization, or where the model itself normalizes the first layer's output.
    """
    feeds = [samples[k] for k in spread(len(samples), BOUNDS.trial_samples)]
    axes = {
        name: axis
        for name, array in feeds[0].items()
        if array.dtype.kind == "f" and (axis := image_axis(array.shape)) is not None
    }
    consumers = first.outputs[0].outputs
    if len(axes) != 1 or any(node.op == "InstanceNormalization" for node in consumers):
        return None
    ((name, axis),) = axes.items()
    baseline = guess(np.concatenate([feed[name].ravel() for feed in feeds]))
    if baseline is None:
        return None
    candidates, bias = _CANDIDATES[baseline], query.constant_input(first, 2)
    if output is not None:
        # Values have another scale only if the biases and the output differ in size.
        relative = relative_bias(output, bias)
        scales = {
            baseline in _PIXELS,
            *([True] if relative > BOUNDS.hiding_bias else []),
            *([False] if relative < BOUNDS.no_bias else []),
        }
        candidates = tuple(item for item in candidates if (item in _PIXELS) in scales)
    pixels = [baseline.undo(feed[name], axis) for feed in feeds]
    profiles: dict[PixelNormalization, Profile] = {}
    tensors = {conv.outputs[0].name: 1 for conv in model.nodes("Conv")}
    try:
        session = open_session(proto, tensors)
    except CalibrationError:
        return None
    for item in (baseline, *candidates) if candidates else ():
        inputs = [{**f, name: item.apply(p, axis)} for f, p in zip(feeds, pixels, strict=True)]
        # The model may refuse numbers of another size.
        with contextlib.suppress(CalibrationError):
            statistics = collect(proto, tensors, inputs, session=session)
            layers = [s for s in statistics.values() if s.values.size]  # detectors may find nothing
            profiles[item] = Profile.from_statistics(
                layers, statistics[first.outputs[0].name], bias
            )
    shape = feeds[0][name].shape
    dims = [query.shape(tensor) for tensor in model.graph.outputs]
    makes_images = any(
        d is not None
        and len(d) == len(shape)
        and d[axis] == shape[axis]
        and all(not isinstance(n, int) or n >= m for n, m in zip(d[1:], shape[1:], strict=True))
        for d in dims
    )
    return Trials(baseline, profiles, makes_images)


def better_fits(trials: Trials) -> tuple[list[PixelNormalization], str]:
    """Return the normalizations that fit the model much better, and the first reason."""
    baseline = trials.profiles.get(trials.baseline)
    if baseline is None:
        return [], ""
    reasons = {}
    for item, profile in trials.profiles.items():
        if item != trials.baseline and (reason := _advantage(trials, baseline, item, profile)):
            reasons[item] = reason
    return list(reasons), next(iter(reasons.values()), "")


def _advantage(
    trials: Trials, baseline: Profile, item: PixelNormalization, profile: Profile
) -> str:
    """Return how a normalization fits better than the baseline; empty if it does not."""
    low, high = BOUNDS.plausible_bias
    entropy = profile.sign_entropy
    if trials.baseline in _PIXELS and item not in _PIXELS:
        balanced = entropy >= BOUNDS.entropy_drop * baseline.sign_entropy
        if baseline.bias < BOUNDS.no_bias and low <= profile.bias <= high and balanced:
            share = f"{100 * baseline.bias:.1f} %"
            return f"the biases of the first layer are only {share} of what it puts out"
        return ""
    if trials.baseline not in _PIXELS and item in _PIXELS:
        balanced = entropy >= BOUNDS.entropy_gain * baseline.sign_entropy
        if baseline.bias > BOUNDS.hiding_bias and profile.bias <= high and balanced:
            over = baseline.bias >= _MAX_SHOWN_RATIO
            times = f"over {_MAX_SHOWN_RATIO}" if over else f"{baseline.bias:.0f}"
            return (
                f"the biases of the first layer are {times} times as large as "
                f"the spread of what it puts out"
            )
        return ""
    # The scales are equal: are the samples shifted?
    if min(baseline.first_level, profile.first_level) <= 0:
        return ""  # a first layer that puts out zeros for all samples is no evidence
    gain = baseline.mean_offset - profile.mean_offset
    nearer = math.log(baseline.first_level / profile.first_level)
    if item == UNIT:
        fits = gain > 0.0 and nearer > BOUNDS.unit_shift
    else:  # a model that makes images need not be centred on its input
        fits = (
            not trials.makes_images
            and profile.bias >= low
            and gain > BOUNDS.centred_gain
            and entropy > baseline.sign_entropy
            and nearer > BOUNDS.centred_shift
        )
    if not fits:
        return ""
    return (
        f"with these the means of channels would be smaller beside their spread, "
        f"log(1 + (mean / std)^2) {profile.mean_offset:.2f} instead of {baseline.mean_offset:.2f}"
    )
