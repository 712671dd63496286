"""Operators with one input and no neighbours, as tables of 256 int8 entries.

Entry ``q + 128`` is ``saturate(round(f((q - zx) * sx) / sy) + zy)``, with f in float64, rounded
half to even. Any chain of such operators is one table, rounded once. If f is NaN, the entry
is the zero point; if f is infinite, the entry saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.rescaling import TensorScale
from npuconv.arithmetic.whole import WholeArray
from npuconv.errors import ModelError
from npuconv.ops.operator import OPERATORS, Arguments, W, register, values_of
from npuconv.records import dataclass, field

Stored = NDArray[np.int8]
Doubles = NDArray[np.float64]

LENGTH = 256  # int8 has no more values
SOURCE = ""  # the value that a function is of


@dataclass(frozen=True)
class TableStep:
    """One operator of a function of one value."""

    op: str  # name of the operator in ONNX
    # Names of results of earlier steps, ``SOURCE``, or numbers.
    inputs: tuple[str | float, ...] = (SOURCE,)
    output: str = "result"  # name of the result
    attributes: Mapping[str, Any] = field(default_factory=dict)


def evaluate(steps: Sequence[TableStep], values: Doubles) -> Doubles:
    """Return the result of the last step, in float64.

    Args:
        steps: operators of the table, in their order.
        values: real values of ``SOURCE`` [N].

    Raises:
        ModelError: an operator is not a function of one value.
    """
    results = {SOURCE: np.asarray(values, np.float64)}
    with np.errstate(all="ignore"):
        for step in steps:
            operator = OPERATORS.get(step.op)
            if operator is None or operator.function is None:
                raise ModelError(f"{step.op} is not a function of one value")
            operands = [results[x] if isinstance(x, str) else np.float64(x) for x in step.inputs]
            result = operator.function(*operands, **step.attributes)
            results[step.output] = np.asarray(result, np.float64)
    return results[steps[-1].output]


def table(steps: Sequence[TableStep], x_at: TensorScale, y_at: TensorScale) -> Stored:
    """Return the table of a function of one value, int8 [256].

    Args:
        steps: operators of the table, in their order; the first read ``SOURCE``.
        x_at: scale of ``SOURCE``.
        y_at: scale of the result of the last.

    Raises:
        ModelError: an operator is not a function of one value.
    """
    whole = np.arange(LENGTH, dtype=np.float64) - 128 - x_at.zero
    values = evaluate(steps, whole * float(np.float32(x_at.scale)))
    with np.errstate(all="ignore"):
        quotients = values / float(np.float32(y_at.scale))
    return y_at.rounded(WholeArray(np.zeros(0, np.int64)), quotients).values.astype(np.int8)


def register_table(name: str, function: Callable[..., Any], **fields: Any) -> None:
    """Add an operator that is a function of one value, with more fields of ``Operator``."""

    def kernel(call: Arguments[W]) -> W:
        steps = [TableStep(name, attributes=call.attributes)]
        return call.values[0].looked_up(table(steps, *call.scales))

    register(
        name,
        is_defined=lambda node: len(values_of(node)) == 1,
        function=function,
        is_table=True,
        kernel=kernel,
        **fields,
    )
