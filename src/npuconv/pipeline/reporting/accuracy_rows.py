"""The measured errors of outputs as rows of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npuconv.pipeline.reporting.assemble import rounded
from npuconv.report import schema

if TYPE_CHECKING:
    from npuconv.arithmetic.metrics import ErrorStats
    from npuconv.pipeline.accuracy.measured import Measured


def summed_up(found: Measured, count: int, held_out: bool) -> schema.Accuracy:
    """Outputs, what they are put together from, and all of them together.

    Args:
        found: errors over all samples.
        count: of the samples.
        held_out: whether they were kept from calibration.
    """
    outputs = tuple(
        _output(name, s, found.parts.get(name, {})) for name, s in found.outputs.items()
    )
    single = outputs[0].top1_agreement if len(outputs) == 1 else None
    return schema.Accuracy(
        samples=count,
        held_out=held_out,
        sqnr_db=rounded(found.total.sqnr_db, 2),
        cosine=rounded(found.total.cosine, 6),
        top1_agreement=single,
        outputs=outputs,
    )


def _output(name: str, stats: ErrorStats, parts: Mapping[str, ErrorStats]) -> schema.OutputAccuracy:
    return schema.OutputAccuracy(
        name=name,
        sqnr_db=rounded(stats.sqnr_db, 2),
        cosine=rounded(stats.cosine, 6),
        top1_agreement=rounded(stats.top1_agreement, 4),
        parts=tuple(
            schema.PartAccuracy(
                name=part, sqnr_db=rounded(one.sqnr_db, 2), cosine=rounded(one.cosine, 6)
            )
            for part, one in parts.items()
        ),
    )
