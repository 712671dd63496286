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
class MeasuredError:
    """Measured error of the int8 model against the float model.

    Attributes:
        sqnr_db: of all outputs together; None where that is no number.
        is_exact: True if nothing differs.
        samples: number of samples it was measured on.
        outputs: outputs and their parts, where these have an error that is a number.
        broken: outputs that are finite in the float model, and not in the int8 model.
    """

    sqnr_db: float | None
    is_exact: bool
    samples: int
    outputs: tuple[OutputSqnr, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationEvidence:
    """Results of one calibration.

    Attributes:
        plan: where nodes run, and which tensors are int8.
        statistics: of the float pass: ends of groups, and outputs of convolutions.
        encodings: how every int8 tensor is stored.
        samples: number of samples.
        synthetic: True if the samples are made up.
        expected: mean and standard deviation of channels in training, where a folded
            BatchNormalization holds them, by tensor.
        rounded: weights that were rounded on the samples (GPTQ), by node.
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
    trials: NormalizationTrials | None = None
