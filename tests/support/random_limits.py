"""Random sets of limits of Conv and MaxPool, as a target file says them and as a test judges them.

    limits = random_limits(Dice(3, 17))
    faults = limits.broken_by(facts)

A set is drawn so that a 1x1 convolution of one channel could be within it: some device with
such limits could exist. What is broken is told from the numbers drawn, not by npuconv.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.dice import Dice
from support.target_files import NUMBERS, WEIGHTS

Facts = dict[str, Any]
_SIDES = ("top", "left", "bottom", "right")
_RELATIONS: dict[str, Callable[[Facts], bool]] = {
    "kernel_h * kernel_w <= 9": lambda f: f["kernel_h"] * f["kernel_w"] <= 9,
    "kernel_h == kernel_w": lambda f: f["kernel_h"] == f["kernel_w"],
    "stride_h == stride_w": lambda f: f["stride_h"] == f["stride_w"],
    "pad_top == pad_bottom && pad_left == pad_right": lambda f: (
        f["pad_top"] == f["pad_bottom"] and f["pad_left"] == f["pad_right"]
    ),
    "in_h * in_w <= 100": lambda f: f["in_h"] * f["in_w"] <= 100,
    "kernel_volume <= 16": lambda f: f["kernel_volume"] <= 16,
    "kernel_volume * out_c <= 64": lambda f: f["kernel_volume"] * f["out_c"] <= 64,
    "dilation_h == 1 || stride_h == 1": lambda f: f["dilation_h"] == 1 or f["stride_h"] == 1,
    "kernel_w >= stride_w": lambda f: f["kernel_w"] >= f["stride_w"],
    "in_w <= 12 || mode == 'depthwise'": lambda f: (
        f["in_w"] <= 12 or f["group"] == f["in_c"] > 1
    ),
}  # fmt: skip


# Limits that exact rewrites alone bring a convolution within.
_NO_SUMS = ("in_n", "out_c", *(f"pad_{side}" for side in _SIDES))
# What random graphs are made of beside convolutions and max pools, and what rewrites put there.
_OTHERS = (
    "Add", "AveragePool", "BatchNormalization", "Concat", "DepthToSpace", "Flatten", "Gemm",
    "Gather", "GlobalAveragePool", "Identity", "MatMul", "Mul", "Pad", "Relu", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Sum", "Transpose", "Unsqueeze",
)  # fmt: skip


@dataclass
class Limits:
    """Random demands of a device on Conv, and on MaxPool where it has one.

    Attributes:
        limits: of Conv.
        require: relations of Conv.
        pools: limits of MaxPool; None where it is not listed.
        hostless: whether the device runs everything, and there is no host.
        adds: whether it adds, then.
    """

    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    require: list[str] = field(default_factory=list)
    pools: dict[str, dict[str, Any]] | None = None
    hostless: bool = False
    adds: bool = True

    def file(self) -> dict[str, Any]:
        """The target as data, to be written as JSON, which YAML can read."""
        fixed = {"rank": {"equals": 4}, "auto_pad": ["NOTSET"], "group": [1, "C"]}
        relations = [{"then": text} for text in self.require]
        operators: dict[str, Any] = {}
        if self.pools is not None:
            operators = {"MaxPool": {"limits": self.pools}, "Slice": {}, "Concat": {}}
        if self.hostless:
            left = {"Add", "Sum"} if not self.adds else set()
            operators = {op: {} for op in (*_OTHERS, "MaxPool") if op not in left} | operators
        operators["Conv"] = {"limits": {**fixed, **self.limits}, "require": relations}
        return {
            "schema": 1, "name": "drawn", "operators": operators,
            "activations": NUMBERS, "weights": WEIGHTS,
            "unlisted_operators": "error" if self.hostless else "host",
        }  # fmt: skip

    def broken_by(self, facts: Facts) -> list[str]:
        """The demands that a convolution with these facts does not meet."""
        found = [
            f"{name}={facts[name]}: {limit}"
            for name, limit in self.limits.items()
            if not _allows(limit, facts[name])
        ]
        found += [f"{text}: {facts}" for text in self.require if not _RELATIONS[text](facts)]
        if facts["group"] not in (1, facts["in_c"]):
            found.append(f"group {facts['group']} of {facts['in_c']}")
        return found

    def broken_by_pool(self, facts: Facts) -> list[str]:
        """The demands that a max pool with these facts does not meet."""
        limits = (self.pools or {}).items()
        return [f"{name}: {limit}" for name, limit in limits if not _allows(limit, facts[name])]


def _allows(limit: dict[str, Any], value: Any) -> bool:
    ((predicate, bound),) = limit.items()
    if predicate == "equals":
        return bool(value == bound)
    if predicate == "one_of":
        return value in bound
    if predicate == "multiple_of":
        return bool(value % bound == 0)
    return bool(value <= bound if predicate == "max" else value >= bound)


def random_limits(dice: Dice) -> Limits:
    """A set of limits; one in three is tight."""
    found, chance = Limits(), dice.one_of([20, 40, 80])
    for draw in (_window, _pads, _channels, _extents, _others):
        draw(dice, found, chance)
    if dice.chance(chance):
        found.require.append(dice.one_of(list(_RELATIONS)))
    return found


def _window(dice: Dice, found: Limits, chance: int) -> None:
    for name, options in (
        ("kernel", [{"max": 1}, {"max": 2}, {"max": 3}, {"one_of": [1, 3]}, {"max": 5}]),
        ("stride", [{"max": 1}, {"max": 2}, {"one_of": [1, 2, 4]}]),
        ("dilation", [{"max": 1}, {"max": 2}]),
    ):
        if dice.chance(chance):
            limit = dice.one_of(options)
            found.limits[f"{name}_h"] = limit
            found.limits[f"{name}_w"] = dice.one_of([limit, limit, *options])
    if dice.chance(chance // 2):
        limit = {"max": dice.number(3, 7)}
        found.limits |= {"dilated_kernel_h": limit, "dilated_kernel_w": limit}


def _pads(dice: Dice, found: Limits, chance: int) -> None:
    if dice.chance(chance):
        limit = {"max": dice.number(0, 2)}
        found.limits |= {f"pad_{side}": limit for side in _SIDES}


def _channels(dice: Dice, found: Limits, chance: int) -> None:
    for name in ("in_c", "out_c"):
        if dice.chance(chance):
            limit = dice.one_of([{"max": 1}, {"max": 2}, {"max": 4}, {"multiple_of": 4}])
            found.limits[name] = limit


def _extents(dice: Dice, found: Limits, chance: int) -> None:
    for name in ("in_h", "in_w"):
        if dice.chance(chance):
            options = [{"max": 4}, {"max": 8}, {"max": 11}, {"multiple_of": 2}, {"min": 4}]
            found.limits[name] = dice.one_of(options)


def _others(dice: Dice, found: Limits, chance: int) -> None:
    if dice.chance(chance):
        found.limits["in_n"] = {"max": dice.number(1, 2)}
    if dice.chance(chance):
        found.limits["bias"] = {"equals": bool(dice.number(0, 1))}
    if dice.chance(50):
        found.pools = _of_pools(dice, chance)
    found.hostless = dice.chance(30)
    if found.hostless and dice.chance(30):  # what nobody adds has no partial sums
        found.adds, found.require = False, []
        found.limits = {name: limit for name, limit in found.limits.items() if name in _NO_SUMS}
        found.limits["bias"] = {"equals": False}


def _of_pools(dice: Dice, chance: int) -> dict[str, dict[str, Any]]:
    """Limits that pools of 2x2 cells with any stride can be within."""
    options: dict[str, list[int]] = {
        "in_n": [1, 2], "in_c": [1, 2, 4], "in_h": [4, 6, 9], "in_w": [4, 6, 9],
        "stride_h": [1], "stride_w": [1],
    }  # fmt: skip
    drawn = {name: {"max": dice.one_of(values)} for name, values in options.items()}
    kernel = {"kernel_h": {"max": 2}, "kernel_w": {"max": 2}} if dice.chance(chance) else {}
    return {name: limit for name, limit in drawn.items() if dice.chance(chance)} | kernel
