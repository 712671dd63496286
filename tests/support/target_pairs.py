"""Pairs of devices, of which the second lists more operators and has looser limits of Conv."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from support.dice import Dice
from support.odd_networks import odd_device


def target_pair(dice: Dice) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the target with fewer operators and tighter limits, and the other, as data.

    Bytes that cross cost nothing: a strided layer that keeps all limits is not cut on the host.
    """
    more = {**odd_device(dice), "unlisted_operators": "host", "costs": {"crossing_byte": 0}}
    if more["activations"]["zero_point"] == [0]:  # operators need it, and saturation forbids it
        more["fused_activations"] = {"one_of": ["Relu", "Clip"]}
    fewer = deepcopy(more)
    for op in [op for op in fewer["operators"] if op != "Conv"]:
        if dice.chance(30):
            del fewer["operators"][op]
    limits = more["operators"]["Conv"].get("limits", {})
    for name in list(limits):
        change = dice.number(0, 2)
        if change == 0:
            del limits[name]
        elif change == 1 and "range" in limits[name]:
            limits[name]["range"][1] = 2 * limits[name]["range"][1] + 1
    return fewer, more
