"""What calibration has shown, judged by the rules that look at it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from npuconv.pipeline.findings import wanted
from npuconv.pipeline.trials import first_convolution, run_trials
from npuconv.rules import _engine
from npuconv.rules._context import RuleContext
from npuconv.rules._seen import Seen

if TYPE_CHECKING:
    import onnx

    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.statistics import Statistics
    from npuconv.samples import Samples


def judge(
    work: Legalized,
    proto: onnx.ModelProto,
    samples: Samples,
    statistics: Mapping[str, Statistics],
    encodings: Mapping[str, Encoding],
) -> None:
    """Add what the samples have shown to the findings.

    Args:
        work: a calibrated model, still in float; its findings grow.
        proto: the same model.
        samples: those it was calibrated on.
        statistics: of the float pass.
        encodings: of all int8 tensors.

    Raises:
        InternalError: a bug in a rule.
    """
    start = time.perf_counter()
    first, trials = first_convolution(work.model), None
    if first is not None and not samples.synthetic:
        output = statistics.get(first.outputs[0].name)
        trials = run_trials(work.model, proto, samples, first, output)
    seen = Seen(
        plan=work.plan,
        statistics=statistics,
        encodings=encodings,
        samples=len(samples),
        synthetic=samples.synthetic,
        expected=work.ctx.expected,
        rounded=work.ctx.rounded,
        first=first,
        trials=trials,
    )
    rules = RuleContext(work.model, work.target, work.options, work.sheets, seen=seen)
    found = _engine.lint(rules, at="calibrated")
    work.findings = wanted([*work.findings, *found], work.options)
    work.timings.append(("judge", time.perf_counter() - start))
