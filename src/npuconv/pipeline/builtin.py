"""Calibration of a model without data: on builtin pictures, or on made-up numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from npuconv.config import Preprocess
from npuconv.errors import UsageError
from npuconv.model import query
from npuconv.pipeline.normalization import Inferred, infer
from npuconv.samples import InputSpec, open_samples, pictures
from npuconv.samples.normalizations import asked_for
from npuconv.samples.synthetic import image_layout, reads_images
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.config import Options
    from npuconv.legalize.legal import LegalModel
    from npuconv.samples import Samples

Pictures = Literal["photographs", "made-up", "none"]
_USUAL = 224  # where an extent is open: what the first layer makes depends little on it
_FOUR = 4
INSTALL = "pip install 'npuconv[photos]' for photographs, which are worth more"
NUMBERS = "no calibration data: ranges come from made-up numbers, accuracy is unproven"
_LOST = "accuracy is unproven, ranges come from made-up numbers: 10 to 30 dB are usually lost"


@dataclass(frozen=True)
class Plan:
    """Choice of samples where there is no data.

    Attributes:
        preprocess: how pictures become inputs.
        sentence: what is said first of all.
        warning: what makes the figures less reliable; may be empty.
        inferred: the normalization that the model seems to want; None where it is given, or
            where there are no pictures.
        pictures: which.
    """

    preprocess: Preprocess
    sentence: str
    warning: str = ""
    inferred: Inferred | None = None
    pictures: Pictures = "none"

    @property
    def certainty(self) -> Literal["given", "inferred", "guessed", "unknown"]:
        """Certainty of the normalization."""
        if self.inferred is None:
            known = self.pictures != "none" and asked_for(self.preprocess) is not None
            return "given" if known else "unknown"
        return "inferred" if self.inferred.is_clear else "guessed"

    @property
    def row(self) -> schema.Assumed:
        """Row of the report."""
        own = asked_for(self.preprocess)
        name = self.inferred.normalization.name if self.inferred else own.name if own else ""
        return schema.Assumed(
            sentence=self.sentence,
            pictures=self.pictures,
            normalization=name if self.pictures != "none" else "",
            certainty=self.certainty,
            share=round(self.inferred.share, 2) if self.inferred else None,
            runner_up=self.inferred.runner_up.name if self.inferred else "",
        )


def plan(legal: LegalModel, specs: Sequence[InputSpec] = ()) -> Plan:
    """Decide what to calibrate on.

    Args:
        legal: a legal float model.
        specs: its inputs; by default as the model has them, with usual sizes where it has none.

    Raises:
        UsageError: a mean without a standard deviation, or the other way round.
    """
    keys, specs = legal.options.preprocess, list(specs) or _usual(legal)
    _check_given(keys)
    if not reads_images(specs):
        return Plan(keys, NUMBERS, _LOST)
    pictured: Pictures = "photographs" if pictures.are_photographs() else "made-up"
    kind = "builtin photographs" if pictured == "photographs" else "made-up pictures"
    start, end = f"no calibration data: {kind}", _about_channels(specs[0])
    lacking = "" if pictured == "photographs" else f"{kind} instead of data; {INSTALL}"
    if asked_for(keys) is not None:
        return Plan(keys, f"{start}, {keys.said} (given){end}", lacking, None, pictured)
    if keys.preset == "none":
        text = "accuracy is unproven, the normalization is unknown: give --preprocess"
        return Plan(keys, f"{start}; {text}{end}", _joined(text, lacking), None, pictured)
    found = infer(legal.model, specs[0], legal.ctx.expected)
    own = found.normalization
    used = keys.model_copy(update={"mean": own.mean, "std": own.std, "preset": None})
    unproven = f"accuracy is unproven, the normalization is a guess: {found.said}"
    warning = _joined("" if found.is_clear else unproven, lacking)
    return Plan(used, f"{start}, {found.said}{end}", warning, found, pictured)


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def open_builtin(options: Options, chosen: Plan, specs: Sequence[InputSpec]) -> Samples:
    """Open what was chosen, with what is to be said of it.

    Raises:
        CalibrationError: an input that nothing can be made up for.
    """
    found = open_samples(
        None, specs, chosen.preprocess, limit=options.max_samples, seed=options.seed
    )
    if not reads_images(specs):
        return found
    name = chosen.inferred.normalization.name if chosen.inferred else options.preprocess.said
    source = found.description.partition(",")[0]
    return replace(
        found,
        description=f"{source}, {name or 'normalization'} ({chosen.certainty})",
        synthetic=chosen.pictures == "made-up" or chosen.certainty in ("guessed", "unknown"),
    )


def _usual(legal: LegalModel) -> list[InputSpec]:
    """Return the inputs of a model, with usual sizes for pictures of open extents."""
    specs = []
    for tensor in legal.model.graph.inputs:
        if isinstance(tensor.dtype, int):
            return []
        dims = query.shape(tensor)
        kind = "float32" if tensor.dtype is None else tensor.dtype
        if dims is not None and len(dims) == 4:
            channels = 3 if dims[3] in (1, 3, 4) and dims[1] not in (1, 3, 4) else 1
            usual = [1 if axis in (0, channels) else _USUAL for axis in range(4)]
            dims = tuple(
                d if isinstance(d, int) and d > 0 else u for d, u in zip(dims, usual, strict=True)
            )
        specs.append(InputSpec(tensor.name, np.dtype(kind), dims))
    return specs


def _about_channels(spec: InputSpec) -> str:
    axis = 1 if image_layout(spec) == "nchw" else 3
    return "; the fourth channel is brightness" if spec.lengths[axis] == _FOUR else ""


def _check_given(keys: Preprocess) -> None:
    """Refuse a mean without a standard deviation, and the other way round.

    Raises:
        UsageError: only one of the two is given, and no preset.
    """
    if keys.preset in (None, "none") and (keys.mean is None) != (keys.std is None):
        one, other = ("mean", "std") if keys.std is None else ("std", "mean")
        raise UsageError(f"--{one} without --{other}", hint="give both")
