"""Calibration of a model without data: on built-in pictures, or on made-up numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

import numpy as np

from npuconv.config import Options, Preprocess
from npuconv.data import InputSpec, Samples, open_samples, pictures
from npuconv.data.infer_normalization import Inferred, infer
from npuconv.data.model_inputs import is_quantity
from npuconv.data.normalizations import IMAGE_CHANNELS, asked_for, normalization_of
from npuconv.data.pictures import image_layout, reads_images
from npuconv.errors import UsageError
from npuconv.model import Model, query
from npuconv.records import dataclass, replace
from npuconv.schemas import quality

Pictures = Literal["photographs", "made-up", "none"]
USUAL_SIDE = 224  # pixels where an extent is open: the first layer's output depends little on it
INSTALL = "pip install 'npuconv[photos]' for photographs, which are worth more"
NUMBERS = "no calibration data: ranges come from made-up numbers, accuracy is unproven"
_UNPROVEN = "accuracy is unproven, ranges come from made-up numbers: 10 to 30 dB are usually lost"


@dataclass(frozen=True)
class BuiltinData:
    """Choice of samples for a model without calibration data."""

    preprocess: Preprocess  # conversion of pictures to inputs
    sentence: str  # first line of a conversion
    warning: str = ""  # reason why the figures are less reliable; may be empty
    # Normalization that the model seems to expect; None if it is given, or if there are no
    # pictures.
    inferred: Inferred | None = None
    pictures: Pictures = "none"  # kind of the pictures

    @property
    def certainty(self) -> Literal["given", "inferred", "guessed", "unknown"]:
        """Certainty of the normalization."""
        if self.inferred is None:
            is_given = self.pictures != "none" and asked_for(self.preprocess) is not None
            return "given" if is_given else "unknown"
        return "inferred" if self.inferred.is_clear else "guessed"

    def for_images(self, specs: Sequence[InputSpec]) -> Preprocess:
        """Return the options by which image files become inputs as the built-in pictures did."""
        (spec,) = specs
        layout = image_layout(spec) or self.preprocess.layout
        changes: dict[str, object] = {"layout": layout}
        requested = asked_for(self.preprocess)
        if requested is not None and spec.lengths[1 if layout == "nchw" else 3] == 1:
            changes |= {
                "color": "gray",
                "mean": (fmean(requested.mean),),
                "std": (fmean(requested.std),),
            }
        return self.preprocess.model_copy(update=changes)

    @property
    def row(self) -> quality.Assumed:
        """Row of the report."""
        requested = asked_for(self.preprocess)
        normalization = self.inferred.normalization if self.inferred else requested
        name = normalization.name if normalization else ""
        return quality.Assumed(
            sentence=self.sentence,
            pictures=self.pictures,
            normalization=name if self.pictures != "none" else "",
            certainty=self.certainty,
            share=round(self.inferred.share, 2) if self.inferred else None,
            runner_up=self.inferred.runner_up.name if self.inferred else "",
        )


def choose_builtin(model: Model, keys: Preprocess, specs: Sequence[InputSpec] = ()) -> BuiltinData:
    """Choose the samples of a model without data.

    ``specs`` are the inputs, by default as the model has them, with usual sizes if it has none.

    Raises:
        UsageError: a mean without a standard deviation, or the other way round.
    """
    specs = list(specs) or _usual_inputs(model)
    if keys.preset in (None, "none") and (keys.mean is None) != (keys.std is None):
        name, counterpart = ("mean", "std") if keys.std is None else ("std", "mean")
        raise UsageError(f"--{name} without --{counterpart}", hint="give both")
    if not reads_images(specs):
        unused = f"{keys.phrase}: not used, no input looks like images" if keys.phrase else ""
        return BuiltinData(keys, NUMBERS, _joined(_UNPROVEN, unused))
    spec, layout = specs[0], image_layout(specs[0])
    has_brightness = spec.lengths[1 if layout == "nchw" else 3] == 4
    if "layout" in keys.model_fields_set and keys.layout != layout:
        text = f"--input-layout {keys.layout}: input {spec.name!r} is {spec.shape_text}"
        raise UsageError(text, hint=f"leave it out, or give {layout}")
    kind: Pictures = "photographs" if pictures.folder() else "made-up"
    phrase = "built-in photographs" if kind == "photographs" else "made-up pictures"
    start = f"no calibration data: {phrase}"
    end = "; the fourth channel is brightness" if has_brightness else ""
    caveat = "" if kind == "photographs" else f"{phrase} instead of data; {INSTALL}"
    if asked_for(keys) is not None:
        normalization_of(spec, keys)
        return BuiltinData(keys, f"{start}, {keys.phrase} (given){end}", caveat, None, kind)
    if keys.preset == "none":
        text = "accuracy is unproven, the normalization is unknown: give --preprocess"
        return BuiltinData(keys, f"{start}; {text}{end}", _joined(text, caveat), None, kind)
    guess = infer(model, spec)
    order = -1 if keys.color == "bgr" else 1  # options are in the order of the input
    mean, std = guess.normalization.mean[::order], guess.normalization.std[::order]
    options = keys.model_copy(update={"mean": mean, "std": std, "preset": None})
    unproven = f"accuracy is unproven, the normalization is a guess: {guess.phrase}"
    warning = _joined("" if guess.is_clear else unproven, caveat)
    return BuiltinData(options, f"{start}, {guess.phrase}{end}", warning, guess, kind)


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def open_builtin(options: Options, data: BuiltinData, specs: Sequence[InputSpec]) -> Samples:
    """Open the built-in samples, with their description for the report.

    Raises:
        CalibrationError: an input that no values can be made up for.
    """
    samples = open_samples(
        None, specs, data.preprocess, limit=options.max_samples, seed=options.seed
    )
    if not reads_images(specs):
        return samples
    name = data.inferred.normalization.name if data.inferred else data.preprocess.phrase
    source = samples.description.partition(",")[0]
    return replace(
        samples,
        description=f"{source}, {name or 'normalization'} ({data.certainty})",
        synthetic=data.pictures == "made-up" or data.certainty in ("guessed", "unknown"),
    )


def _usual_inputs(model: Model) -> list[InputSpec]:
    """Return the inputs of a model, with usual sizes for pictures of open extents."""
    specs = []
    for tensor in model.graph.inputs:
        if isinstance(tensor.dtype, int):
            return []
        dims = query.shape(tensor)
        kind = "float32" if tensor.dtype is None else tensor.dtype
        if dims is not None and len(dims) == 4:
            channels = 3 if dims[3] in IMAGE_CHANNELS and dims[1] not in IMAGE_CHANNELS else 1
            dims = tuple(
                d if isinstance(d, int) and d > 0 else 1 if axis in (0, channels) else USUAL_SIDE
                for axis, d in enumerate(dims)
            )
        quantity = is_quantity(tensor)
        specs.append(InputSpec(tensor.name, np.dtype(kind), dims, is_quantity=quantity))
    return specs
