"""The kernel covers the whole input, and the limit of the kernel is not known.

What it checks:
    Depthwise convolutions whose kernel is as large as their input and larger than all
    other kernels of the model, where the target marks the limit of the kernel `?`. A
    GlobalAveragePool becomes such a convolution.

Why it matters:
    Such a kernel and its weights are much larger than in other layers. Its MACs are
    counted on the device, but the limit of the device is not documented.

How to fix:
    Ask the vendor for the limit of the kernel, and write it into the target file; beyond
    it the pool stays on the host. --no-offload or --keep-float leaves it there at once.
"""

from __future__ import annotations

from typing import Any

from npuconv.amounts import size
from npuconv.findings import Status
from npuconv.model import Node
from npuconv.rules import RuleContext, Severity, Violation, Violations, conv, rule

_KERNEL = ("kernel_h", "kernel_w")


@rule(
    "SHP019",
    severity=Severity.WARNING,
    ops={"Conv"},
    message="its kernel is {kernel}, the whole input, with {size} of int8 weights; "
    "the limit of {limits} is not known",
    fires=conv("group = 3", w="3,1,8,8"),
    silent=conv("group = 3", w="3,1,3,3"),
)
def kernel_covers_input(node: Node, ctx: RuleContext) -> Violations:
    facts, limits = ctx.facts(node), ctx.limits(node)
    unknown = [name for name in _KERNEL if name in limits and not limits[name].is_documented]
    if not unknown or not _covers(facts):
        return
    sliding_kernels = [f for f in map(ctx.facts, ctx.model.nodes("Conv")) if not _covers(f)]
    areas = [int(f.get("kernel_area") or 1) for f in sliding_kernels]
    if facts["kernel_area"] <= max(areas, default=1):
        return
    kernel = "x".join(str(facts[name]) for name in _KERNEL)
    weights = size(facts["weight_n"] * facts["weight_c"] * facts["kernel_area"])
    yield Violation(
        {"kernel": kernel, "size": weights, "limits": " and ".join(unknown)},
        value=kernel,
        limit="?",
        source=limits[unknown[0]].cite(),
        status=Status.UNKNOWN,
    )


def _covers(facts: dict[str, Any]) -> bool:
    sides = [facts.get(name) for name in _KERNEL]
    return facts.get("mode") == "depthwise" and sides == [facts.get("in_h"), facts.get("in_w")]
