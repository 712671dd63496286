"""Crossings of a plan: the target is asked for every node around its parts, with its facts."""

from __future__ import annotations

from typing import Any

import pytest

from npuconv.legalize.split.crossings import added_crossings
from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.planner import Planner
from npuconv.legalize.split.proposal import Proposal
from support.fits import layer
from support.target_files import chip

RANK_4 = {"limits": {"rank": {"max": 4}}}
NO_STEP = {"limits": {"step_max": {"max": 1}}}


def crossings_of(
    name: str, original: Layer, operators: dict[str, Any], **limits: Any
) -> tuple[int, int, Proposal]:
    """Return crossings, bytes and parts of the plan that begins with this way to split."""
    target = chip("", also={"operators": {"Conv": {"limits": limits}, **operators}})
    _, search = Planner(target).plan(original)
    plan = next(plan for plan in search.alternatives if plan.names[0] == name)
    assert plan.proposal is not None
    return *added_crossings(original, plan.build, target), plan.proposal


MOVES = ("Reshape", "Transpose", "Slice", "Concat", "Pad")


@pytest.mark.parametrize(
    ("refused", "crossings"), [({}, 0), ({"Transpose": RANK_4}, 2), ({"Reshape": RANK_4}, 2)]
)
def test_phases_ask_for_the_rank(refused: dict[str, Any], crossings: int) -> None:
    """Blocks of the image become channels by a Reshape and a Transpose of rank 6."""
    operators = {**{op: {} for op in MOVES}, **refused}
    assert (
        crossings_of("phases", layer(strides=(2, 1), cells=17), operators, stride_h={"max": 1})[0]
        == crossings
    )


@pytest.mark.parametrize(("refused", "crossings"), [({}, 0), ({"Slice": NO_STEP}, 2)])
def test_a_stride_asks_for_the_step(refused: dict[str, Any], crossings: int) -> None:
    """A Slice with a step leaves out outputs, on the host if the device takes no step."""
    operators = {**{op: {} for op in MOVES}, **refused}
    assert (
        crossings_of("stride", layer(strides=(2, 1)), operators, stride_h={"max": 1})[0]
        == crossings
    )


@pytest.mark.parametrize("from_host", [True, False])
def test_the_host_hands_over_the_pieces_of_an_input(from_host: bool) -> None:
    """Tiles of an input of the model cross one by one, also where the device takes Slices."""
    original = layer((8, 1, 3, 3), cells=32, group=8, from_host=from_host)
    moves = {op: {} for op in MOVES}
    crossings, crossing_bytes, tiles = crossings_of("tiles", original, moves, in_h={"max": 10})
    assert tiles.count == 4
    assert crossings == (3 if from_host else 0)
    rows = 4 * (tiles.parts[0].layer.source[2] or 0) - 32
    assert crossing_bytes == (rows * 8 * 32 if from_host else 0)


@pytest.mark.parametrize(("from_host", "is_chosen"), [(True, False), (False, True)])
def test_taps_of_an_input_are_dear(from_host: bool, is_chosen: bool) -> None:
    """Each byte of the image would cross as often as a tap reads it."""
    operators = {"Conv": {"limits": {"dilation_h": {"max": 2}}}, **{op: {} for op in MOVES}}
    original = layer((4, 8, 2, 2), dilations=(5, 5), from_host=from_host)
    plan, _ = Planner(chip("", also={"operators": operators})).plan(original)
    assert plan is not None
    assert (plan.names == ("taps as channels",)) == is_chosen
