"""Statistics of a float model that tell whether samples are normalized as in training.

After training every channel has values on both sides of 0, by about its own spread: batch
normalization causes this, and without it a channel that never changes sign learns nothing.
The bias of the first layer is about as large as the output of the layer. A folded
BatchNormalization holds mean and standard deviation of every channel in training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics
from npuconv.data.normalizations import (
    CENTRED,
    HALF,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    Normalization,
)

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class NormalizationBounds:
    """Bounds between right and wrong normalizations.

    They were set on real models, each with the normalization it was trained for and five
    others; all lie well between the values of the right and of the wrong normalizations.

    Attributes:
        small_bias: relative bias of the first layer below which it has no effect.
        large_bias: relative bias of the first layer above which it hides the input.
        plausible_bias: relative bias of the first layer in trained models.
        entropy_drop: least sign entropy of a scaled normalization, of that of the samples.
        entropy_gain: the same, for one that makes values larger.
        unit_shift: natural logarithm of the ratio of first levels from which 0..1 fits better.
        centred_shift: the same, for normalizations around 0.
        centred_gain: least decrease of the mean offset for normalizations around 0.
        scale: natural logarithm of a scale that two normalizations share; from 0..1 to -1..1
            it is 0.7.
        shift_loss: ``TrainingShift.loss`` of a wrong normalization: the spread is 3.4 times
            that of training, or the means are 0.6 standard deviations off.
        offset_weight: weight of an offset of one standard deviation beside a spread e times
            too large.
        channel_spread: deviation of log ratios from channel to channel, above which no one
            factor explains them.
        dead: standard deviation, of the largest, of channels that training switched off.
        untrained: relative difference of channels; the epsilon of a BatchNormalization makes
            that much of a difference.
    """

    small_bias: float = 0.05
    large_bias: float = 20.0
    plausible_bias: tuple[float, float] = (0.4, 6.0)
    entropy_drop: float = 0.9
    entropy_gain: float = 1.1
    unit_shift: float = 0.3
    centred_shift: float = -0.15
    centred_gain: float = 0.05
    scale: float = 0.5
    shift_loss: float = 1.5
    offset_weight: float = 4.0
    channel_spread: float = 0.7
    dead: float = 1e-3
    untrained: float = 1e-3


BOUNDS = NormalizationBounds()
_TINY = 1e-9
_MIN_DEVIATION = 1e-6
_MAX_SHOWN_RATIO = 1000

_PIXELS = (RAW, CENTRED)  # in steps of one grey level
_UNITS = (UNIT, SIGNED, IMAGENET, HALF)

# Normalizations to try for samples of one, the likelier first.
CANDIDATES: dict[Normalization, tuple[Normalization, ...]] = {
    RAW: (UNIT, SIGNED, IMAGENET),
    CENTRED: (UNIT, SIGNED, IMAGENET),
    UNIT: (SIGNED, RAW),
    HALF: (SIGNED, UNIT, RAW),
    SIGNED: (UNIT, RAW),
    IMAGENET: (RAW,),
}


# Samples under other normalizations than theirs


@dataclass(frozen=True)
class ActivationProfile:
    """Statistics of the outputs of all convolutions on the same samples."""

    sign_entropy: float  # mean entropy, in bits, of the sign of values; layers count alike
    mean_offset: float  # mean of ``log(1 + (mean / standard deviation) ** 2)``, over layers
    first_level: float  # rms of the means of the channels of the first layer
    bias: float  # rms of the first layer's biases, over the median standard deviation of its output


@dataclass(frozen=True)
class NormalizationTrials:
    """Statistics of the float model on the samples as they are and normalized differently."""

    given: Normalization  # the normalization that the samples seem to have
    # By normalization, that of the samples first; empty if there is no candidate.
    profiles: Mapping[Normalization, ActivationProfile]
    is_image_to_image: bool = False  # True if an output is an image, as of super-resolution


def activation_profile(
    layers: Sequence[Statistics], first: Statistics, biases: NDArray[np.generic] | None
) -> ActivationProfile:
    """Compute the statistics of the outputs of the convolutions."""
    return ActivationProfile(
        sign_entropy=float(np.mean([_sign_entropy(layer) for layer in layers])),
        mean_offset=float(np.mean([_mean_offset(layer) for layer in layers])),
        first_level=_rms(first.means),
        bias=relative_bias(first, biases),
    )


def relative_bias(first: Statistics, biases: NDArray[np.generic] | None) -> float:
    """Return the rms of a layer's biases over the median standard deviation of its output."""
    spread = float(np.median(np.sqrt(first.variances)))
    return 0.0 if biases is None else _rms(biases) / max(spread, _TINY)


def _sign_entropy(layer: Statistics) -> float:
    share = np.clip((layer.values > 0).mean(axis=1), _TINY, 1 - _TINY)
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    return float(bits.mean())


def _mean_offset(layer: Statistics) -> float:
    variance = np.maximum(layer.variances, _TINY * np.maximum(layer.squares, _TINY))
    return float(np.mean(np.log1p(layer.means**2 / variance)))


def _rms(values: NDArray[np.generic]) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, np.float64)))))


def candidates(given: Normalization, bias: float) -> tuple[Normalization, ...]:
    """Return the normalizations that could fit better than that of the samples."""
    wrong = {_PIXELS: bias > BOUNDS.large_bias, _UNITS: bias < BOUNDS.small_bias}
    return tuple(
        item for item in CANDIDATES[given] if _group(item) is _group(given) or wrong[_group(item)]
    )


def _group(item: Normalization) -> tuple[Normalization, ...]:
    return _PIXELS if item in _PIXELS else _UNITS


def better_fits(trials: NormalizationTrials) -> tuple[list[Normalization], str] | None:
    """Return the normalizations that fit the model markedly better, and the reason."""
    current = trials.profiles.get(trials.given)
    if current is None:
        return None
    better = [
        (name, reason)
        for name, profile in trials.profiles.items()
        if name != trials.given
        for reason in _reasons(trials, name, current, profile)
    ]
    return ([name for name, _ in better], better[0][1]) if better else None


def fits_by_scale(given: Normalization, ratio: float) -> list[Normalization]:
    """Return normalizations that make values about ``ratio`` times smaller than the given one."""
    return [
        item
        for item in (*_PIXELS, *_UNITS)
        if item != given and abs(math.log(_step(given) * ratio / _step(item))) < BOUNDS.scale
    ]


def equally_supported(given: Normalization, fits: list[Normalization]) -> list[Normalization]:
    """Return these normalizations, and others that the same evidence supports.

    That samples are not centred does not tell at which scale the model expects them: any
    centred normalization may be the right one.
    """
    centred = (SIGNED, IMAGENET, CENTRED)
    if given not in _UNITS or not any(item in centred for item in fits):
        return fits
    return [*fits, *(item for item in centred if item not in fits and item != given)]


def _step(item: Normalization) -> float:
    """Return the pixels that a difference of one stands for."""
    return sum(item.std) / len(item.std)


def _reasons(
    trials: NormalizationTrials,
    name: Normalization,
    given: ActivationProfile,
    other: ActivationProfile,
) -> Iterator[str]:
    low, high = BOUNDS.plausible_bias
    if trials.given in _PIXELS and name in _UNITS:
        balanced = other.sign_entropy >= BOUNDS.entropy_drop * given.sign_entropy
        fits = low <= other.bias <= high and balanced
        if given.bias < BOUNDS.small_bias and fits:
            share = f"{100 * given.bias:.1f} %"
            yield f"the biases of the first layer are only {share} of what it puts out"
    elif trials.given in _UNITS and name in _PIXELS:
        balanced = other.sign_entropy >= BOUNDS.entropy_gain * given.sign_entropy
        fits = other.bias <= high and balanced
        if given.bias > BOUNDS.large_bias and fits:
            over = given.bias >= _MAX_SHOWN_RATIO
            times = f"over {_MAX_SHOWN_RATIO}" if over else f"{given.bias:.0f}"
            yield (
                f"the biases of the first layer are {times} times as large as "
                f"the spread of what it puts out"
            )
    elif _is_shifted(trials, name, given, other):
        yield (
            f"with these the means of channels would be smaller beside their spread, "
            f"log(1 + (mean / std)^2) {other.mean_offset:.2f} instead of {given.mean_offset:.2f}"
        )


def _is_shifted(
    trials: NormalizationTrials,
    name: Normalization,
    given: ActivationProfile,
    other: ActivationProfile,
) -> bool:
    """Return whether the samples seem shifted from those of training, rather than scaled."""
    if min(given.first_level, other.first_level) <= 0:
        return False  # the first layer puts out zeros for all samples, and tells nothing
    gain = given.mean_offset - other.mean_offset
    nearer = math.log(given.first_level / other.first_level)
    if name == UNIT:
        return gain > 0.0 and nearer > BOUNDS.unit_shift
    # A model that makes images need not be centred on its input.
    centred = not trials.is_image_to_image and other.bias >= BOUNDS.plausible_bias[0]
    balanced = gain > BOUNDS.centred_gain and other.sign_entropy > given.sign_entropy
    return centred and balanced and nearer > BOUNDS.centred_shift


# Channel statistics of training, from folded BatchNormalizations


@dataclass(frozen=True)
class TrainingShift:
    """Difference between the statistics of a layer and those of training."""

    offset: float  # median distance of the channels' means, in standard deviations of training
    ratio: float  # median of the observed standard deviation over that of training
    spread: float  # median deviation of the logarithm of that ratio

    @property
    def loss(self) -> float:
        """Size of the difference; 0 if there is none."""
        return float(BOUNDS.offset_weight * self.offset**2 + np.log(self.ratio) ** 2)

    @property
    def is_uniform(self) -> bool:
        """Return whether all channels differ alike, as with a wrong scale."""
        return self.spread < BOUNDS.channel_spread


class Moments(NamedTuple):
    """Mean and variance of every channel of a tensor, float64 [C] each."""

    means: Doubles
    variances: Doubles


def training_shift(
    observed: Moments | Statistics, expected: tuple[np.ndarray, np.ndarray]
) -> TrainingShift | None:
    """Compare a layer with its training.

    Args:
        observed: moments of its output.
        expected: mean and standard deviation of its channels in training, [C] each.

    Returns:
        None where the number of channels differs, or all were switched off in training.
    """
    means, deviations = (np.asarray(part, np.float64).ravel() for part in expected)
    if means.size != len(observed.means):
        return None
    live = deviations > BOUNDS.dead * max(float(deviations.max(initial=0.0)), _MIN_DEVIATION)
    if not live.any():
        return None
    offset = np.abs(observed.means - means)[live] / deviations[live]
    deviation = np.maximum(np.sqrt(observed.variances)[live], _MIN_DEVIATION)
    ratios = np.log(deviation / deviations[live])
    middle = float(np.median(ratios))
    return TrainingShift(
        float(np.median(offset)),
        float(np.exp(middle)),
        float(np.median(np.abs(ratios - middle))),
    )


def training_shifts(
    statistics: Mapping[str, Statistics], expected: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, TrainingShift]:
    """Compare every layer that a BatchNormalization follows, by tensor; {} if untrained."""
    if sum(map(_is_constant, expected.values())) > len(expected) / 2:
        return {}
    pairs = {
        name: (statistics[name], goal) for name, goal in expected.items() if name in statistics
    }
    shifts = {name: training_shift(*pair) for name, pair in pairs.items()}
    return {name: item for name, item in shifts.items() if item is not None}


def _is_constant(expected: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether all channels are alike, as in an untrained model."""
    return all(
        float(np.ptp(part)) <= BOUNDS.untrained * float(np.abs(part).max()) for part in expected
    )
