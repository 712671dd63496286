"""Rows of the plan of a report: what each node becomes, and what else was possible."""

from __future__ import annotations

from typing import Any

from npuconv.schemas.report import (
    Alternative,
    FormChoice,
    RewriteRow,
)


def planned(node: str, **changes: Any) -> RewriteRow:
    """One node of the plan: a grouped convolution that is split unless told otherwise."""
    values: dict[str, Any] = {
        "node": node,
        "passes": ("rewrite-1d-as-2d", "fit-convolution"),
        "was": "Conv1D 3, group 4",
        "becomes": "Split + 4 Conv 1x3 + Concat",
        "macs_before": 1_200_000,
        "macs_after": 1_200_000,
        "weight_bytes_before": 4_710,
        "weight_bytes_after": 4_710,
        "choices": (choice("split"),),
    }
    return RewriteRow(**(values | changes))


def choice(chosen: str, obstacle: str = "") -> FormChoice:
    """Two forms that were considered."""
    split = Alternative(
        form="split",
        macs=1_200_000,
        weight_bytes=4_710,
        moved_bytes=2_048,
        crossings=10,
        cost=1_204_710.0,
        chosen=chosen == "split",
    )
    dense = Alternative(
        form="dense",
        macs=9_400_000,
        weight_bytes=37_888,
        moved_bytes=0,
        cost=None,
        obstacle=obstacle,
        chosen=chosen == "dense",
    )
    return FormChoice(pass_name="fit-convolution", alternatives=(split, dense))


def make_plan(odd: tuple[str, ...]) -> tuple[RewriteRow, ...]:
    up = {
        "passes": ("rewrite-conv-transpose-as-conv",),
        "was": "ConvTranspose 4x4, stride 2x2",
        "becomes": "Conv 3x3 + DepthToSpace + Slice",
        "macs_before": None,
        "macs_after": None,
        "weight_bytes_after": 10_600,
        "choices": (),
    }
    pad = {"was": "Pad", "becomes": "part of Conv 3x3", "passes": ("fold-pad",), "choices": ()}
    free = dict.fromkeys(
        ("macs_before", "macs_after", "weight_bytes_before", "weight_bytes_after"), 0
    )
    refused = (choice("split", obstacle="in_c is 512; the device takes at most 256"),)
    return (
        *(planned(f"/encoder/{at}/Conv") for at in range(3)),
        planned("/decoder/up/ConvTranspose", **up),
        *(planned(name, **pad, **free) for name in odd),
        planned("/head/Conv", becomes="4 Conv 1x3", macs_after=9_400_000, choices=refused),
        *(planned(f"/odd/{at}", was=f"odd {name}", choices=()) for at, name in enumerate(odd)),
    )
