"""What the host does for the device, and the plan that follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.passes import Phase, _manager
from npuconv.pipeline import kept
from npuconv.pipeline.reporting.assemble import describe
from npuconv.plan import make_plan

if TYPE_CHECKING:
    from npuconv.pipeline.legalize import Legalized


def share(work: Legalized) -> bool:
    """Run the passes of the phase, and plan anew if they changed anything.

    Args:
        work: a legalized model whose context says what is wanted; changed.

    Returns:
        Whether anything was changed.
    """
    work.ctx.plan = work.plan
    if _manager.run_phase(work.model, Phase.SHARE, work.ctx) == 0:
        return False
    names = kept.names(work.model, work.kept)
    work.plan = make_plan(work.model, work.target, work.blocked, kept=names)
    describe(work)
    return True
