"""Samples that look normalized differently than in training.

A folded BatchNormalization behind the first layer holds mean and standard deviation of its channels
in training. Of images, the normalization that the samples seem to have is compared with the
normalization that is inferred from the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from npuconv.arithmetic.statistics import Statistics
from npuconv.data.infer_normalization import KNOWN, Inferred, infer, picture_count, training_shift
from npuconv.data.model_inputs import first_convolution, path_from_input
from npuconv.data.normalizations import PixelNormalization, guess
from npuconv.data.pictures import image_layout
from npuconv.data.samples import InputSpec, Samples, spread
from npuconv.model import Model, Node, query
from npuconv.records import replace
from npuconv.rules.context import Violation

# Bounds between right and wrong normalizations, set on models in the normalization they were
# trained for and five others.
_MIN_JUDGED_CHANNELS = 8  # channels of a first layer whose statistics are sound
# Logarithm of the odds by which another normalization is better than that of the samples.
_BETTER = 2.5
_EQUAL = 1.5  # the same, within which two normalizations fit alike
# ``TrainingShift.loss`` of a wrong normalization: the spread is 3.4 times that of training, or
# the means are 0.6 standard deviations off.
_SHIFT_LOSS = 1.5
_CHANNEL_SPREAD = 0.7  # deviation of log ratios above which no one factor explains them
_UNTRAINED = 1e-3  # relative difference of channels that epsilon alone makes


class ComparedImages(NamedTuple):
    """Samples of the one image that a model reads."""

    normalization: PixelNormalization  # normalization that the samples seem to have
    inferred: Inferred  # normalization that the model seems to expect

    def fits(self, margin: float) -> list[PixelNormalization]:
        """Return the normalizations that fit better by ``margin``, all that fit about alike."""
        odds, best = self.inferred.odds, self.inferred.normalization
        if not odds or odds[best] - odds[self.normalization] < margin:
            return []
        return [
            item
            for item in sorted(KNOWN, key=lambda item: -odds[item])
            if item != self.normalization and odds[best] - odds[item] < _EQUAL
        ]

    @property
    def has_evidence(self) -> bool:
        """Whether the model itself contradicts the normalization of the samples."""
        evidence = self.inferred.evidence
        return evidence[self.inferred.normalization] > evidence[self.normalization]


def find_mismatch(
    model: Model, samples: Samples, statistics: Mapping[str, Statistics]
) -> Violation | None:
    """Return the difference from the normalization of training; None if there is no sign of it.

    The message may use ``{claim}`` and ``{evidence}``.

    Args:
        model: the float model.
        samples: the feeds of the model.
        statistics: statistics of the outputs of convolutions on all samples, by tensor.
    """
    first = first_convolution(model)
    weight = None if first is None else query.shape(first.inputs[1])
    if first is None or weight is None or int(weight[0] or 0) < _MIN_JUDGED_CHANNELS:
        return None
    if sum(map(_is_constant, model.in_training.values())) > len(model.in_training) / 2:
        model = replace(model, in_training={})  # not trained
    images = _compare_images(model, first, samples)
    output = statistics.get(first.outputs[0].name)
    in_training = model.in_training.get(first.outputs[0].name)
    shift = training_shift(output, in_training) if output and in_training else None
    if (
        shift is not None
        and shift.loss >= _SHIFT_LOSS
        and shift.spread < _CHANNEL_SPREAD  # channels differ alike: a wrong scale
    ):
        fits = images.fits(0.0) if images else []
        reason = (
            f"BatchNormalization says that the standard deviation of what the first layer puts "
            f"out was {1 / shift.ratio:.3g} times this in training, and its means are "
            f"{shift.offset:.1f} standard deviations off"
        )
        value = f"standard deviation x {shift.ratio:.3g}, mean off by {shift.offset:.2g}"
        limit = "standard deviation x 1, mean off by 0"
    elif images and images.has_evidence and (fits := images.fits(_BETTER)):
        reason = "; ".join(images.inferred.reasons)
        value, limit = images.normalization.name, " or ".join(item.name for item in fits)
    else:
        return None
    claim = "the calibration samples are not normalized like those of training"
    if images and fits:
        options = " or ".join(f"{item.name} ({item.option})" for item in fits)
        claim = (
            f"the calibration samples look like {images.normalization.name}, the model as if "
            f"trained on {options}"
        )
    return Violation({"claim": claim, "evidence": reason}, value, limit, node=first)


def _compare_images(model: Model, first: Node, samples: Samples) -> ComparedImages | None:
    """Return the normalizations of the samples and of the model.

    Returns:
        None where the first layer reads no image, where the range of the image does not show its
        normalization, or where the model itself normalizes the first layer's output.
    """
    name, _ = path_from_input(first.inputs[0])
    array = samples[0].get(name)
    if array is None or array.dtype.kind != "f":
        return None
    spec = InputSpec(name, array.dtype, array.shape)
    axis = {"nchw": 1, "nhwc": 3}.get(image_layout(spec) or "")
    if axis is None or any(node.op == "InstanceNormalization" for node in first.outputs[0].outputs):
        return None
    arrays = [samples[k][name] for k in spread(len(samples), picture_count(array.shape[1:]))]
    values = np.concatenate([item for item in arrays if item.shape == array.shape])
    normalization = guess(values)
    is_grey = array.shape[axis] == 1
    if normalization is None or (is_grey and len(normalization.mean) > 1):
        return None
    pixels = np.moveaxis(normalization.undo(values, axis), axis, 1)
    return ComparedImages(normalization, infer(model, spec, pixels))


def _is_constant(in_training: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether all channels are alike, as in an untrained model."""
    return all(
        float(np.ptp(part)) <= _UNTRAINED * float(np.abs(part).max()) for part in in_training
    )
