"""Calibration results, for the rules that use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.model.types import Node
    from npuconv.partition import Plan
    from npuconv.rules._behaviour import Behaviour
    from npuconv.samples.normalizations import Normalization


@dataclass(frozen=True)
class Trials:
    """Statistics of the float model on the samples as they are and normalized differently.

    Attributes:
        given: the normalization that the samples seem to have.
        behaviours: by normalization, that of the samples first; empty if none is worth a trial.
        recreates: whether the model makes an image of an image, as super-resolution does.
    """

    given: Normalization
    behaviours: Mapping[Normalization, Behaviour]
    recreates: bool = False


@dataclass(frozen=True)
class Shown:
    """Measured error of one output, or a part of one, against the float model.

    Attributes:
        name: of the tensor.
        sqnr_db: of it.
        output: that it is a part of; empty for an output itself.
    """

    name: str
    sqnr_db: float
    output: str = ""


@dataclass(frozen=True)
class Measured:
    """Measured error of the int8 model against the float model.

    Attributes:
        sqnr_db: of all outputs together; None where that is no number.
        is_exact: whether nothing differs.
        samples: how many it was measured on.
        shown: outputs and their parts, where these have an error that is a number.
        broken: outputs that are finite in the float model, and not in the int8 model.
    """

    sqnr_db: float | None
    is_exact: bool
    samples: int
    shown: tuple[Shown, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """Results of one calibration.

    Attributes:
        plan: where nodes run, and which tensors are int8.
        statistics: of the float pass: ends of groups, and what convolutions put out.
        encodings: how every int8 tensor is stored.
        samples: how many there were.
        synthetic: whether the samples are made up.
        expected: mean and standard deviation of channels in training, where a folded
            BatchNormalization has told them, by tensor.
        rounded: weights that were rounded with the samples in view, by node.
        first: the convolution that reads the input of the model, if there is one.
        trials: other normalizations, where the input is an image.
    """

    plan: Plan
    statistics: Mapping[str, Statistics]
    encodings: Mapping[str, Encoding]
    samples: int = 0
    synthetic: bool = False
    expected: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    rounded: Mapping[str, RoundedWeights] = field(default_factory=dict)
    first: Node | None = None
    trials: Trials | None = None
