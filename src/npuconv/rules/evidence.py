"""Results of calibration and of the accuracy measurement, for the rules that use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.model.types import Node
from npuconv.partition import Plan

if TYPE_CHECKING:
    import numpy as np

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.rules.normalization import NormalizationTrials


@dataclass(frozen=True)
class OutputSqnr:
    """Measured error of one output, or a part of one, against the float model."""

    name: str
    sqnr_db: float
    output: str = ""  # that it is a part of; empty for an output itself


@dataclass(frozen=True)
class MeasuredError:
    """Measured error of the int8 model against the float model."""

    sqnr_db: float | None  # of all outputs together; None where that is no number
    is_exact: bool  # True if nothing differs
    samples: int  # number of samples it was measured on
    # Outputs and their parts, where these have an error that is a number.
    outputs: tuple[OutputSqnr, ...] = ()
    # Outputs that are finite in the float model, and not in the int8 model.
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationEvidence:
    """Results of one calibration."""

    plan: Plan  # where nodes run, and which tensors are int8
    # Of the float pass: ends of groups, and outputs of convolutions.
    statistics: Mapping[str, Statistics]
    encodings: Mapping[str, Encoding]  # how every int8 tensor is stored
    samples: int = 0
    synthetic: bool = False  # True if the samples are made up
    # Mean and standard deviation of channels in training, where a folded BatchNormalization holds
    # them, by tensor.
    expected: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    # Weights that were rounded on the samples (GPTQ), by node.
    rounded: Mapping[str, RoundedWeights] = field(default_factory=dict)
    first: Node | None = None  # the convolution that reads the input of the model, if there is one
    trials: NormalizationTrials | None = None  # other normalizations, where the input is an image
