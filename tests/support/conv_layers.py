"""Draws the attributes of one convolution so that it has a meaning at the given extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from support.conv_text import SAME, Slide, transpose_crops, transpose_extents
from support.dice import Dice

LARGEST = 40  # extents stay below, so that a graph takes milliseconds


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution."""

    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0
    extra: int = 0  # output_padding

    @property
    def reach(self) -> int:
        """Cells the dilated kernel covers."""
        return (self.kernel - 1) * self.dilation + 1


@dataclass
class Layer:
    """A convolution: its attributes as the node has them, its weights, and what it gives."""

    op: str
    attrs: dict[str, Any]
    weight: tuple[int, ...]
    outputs: int
    extents: list[int]
    traits: set[str] = field(default_factory=set)


def layer(
    dice: Dice, op: str, channels: int, extents: Sequence[int], dynamic: Sequence[bool],
    fault: str = "",
) -> Layer:  # fmt: skip
    """A convolution for an input of these channels and extents.

    Args:
        dice: what is thrown.
        op: Conv or ConvTranspose.
        channels: of the input.
        extents: what the spatial axes are when the model runs.
        dynamic: which of them the model does not say.
        fault: what must be wrong with it, see ``conv_graphs``.
    """
    mode = _mode(dice, op, dynamic, fault)
    flat = -1
    if len(extents) == 3 and fault != "3d":
        flat = dice.number(0, 2)
    axes = [
        _removable(dice, op, n, mode) if axis == flat else _axis(dice, op, n, mode)
        for axis, n in enumerate(extents)
    ]
    axes = [_fitting(a, op, n, mode, d) for a, n, d in zip(axes, extents, dynamic, strict=True)]
    if fault == "3d":
        axes = [Axis(kernel=2) for _ in axes]
    if fault == "same-dynamic":
        first = dynamic.index(True)
        axes[first] = replace(axes[first], stride=dice.number(2, 3))
    return _finished(dice, op, channels, extents, mode, axes, fault)


def _mode(dice: Dice, op: str, dynamic: Sequence[bool], fault: str) -> str:
    if fault == "same-dynamic":
        return str(dice.one_of(SAME))
    if fault == "pads":
        return str(dice.one_of((*SAME, "VALID")))
    if fault == "3d":
        return "NOTSET"
    shares = {"NOTSET": 5, "SAME_UPPER": 2, "SAME_LOWER": 2, "VALID": 1}
    if op == "ConvTranspose" and not any(dynamic):
        shares |= {"SHAPE": 2}
    return dice.weighted(**shares)


def _axis(dice: Dice, op: str, extent: int, mode: str) -> Axis:
    stride = dice.number(1, 3 if op == "Conv" or extent * 3 <= LARGEST else 1)
    kernel, dilation = dice.number(1, 4), dice.one_of([1, 1, 2, 3])
    begin, end = (dice.number(0, 3), dice.number(0, 3)) if mode == "NOTSET" else (0, 0)
    extra = dice.number(0, max(stride, dilation) - 1) if op == "ConvTranspose" else 0
    return Axis(kernel, stride, dilation, begin, end, extra)


def _removable(dice: Dice, op: str, extent: int, mode: str) -> Axis:
    """An axis of a 3D convolution that need not be there."""
    if extent == 1 and (op == "Conv" or mode in ("NOTSET", "SAME_UPPER", "SAME_LOWER")):
        # One cell in, one cell out: all but one cell of the kernel meet padding.
        kernel, dilation = dice.number(1, 3), dice.number(1, 2)
        reach = (kernel - 1) * dilation + 1
        begin = dice.number(0, reach - 1) if mode == "NOTSET" else 0
        end = reach - 1 - begin if mode == "NOTSET" else 0
        stride = dice.number(1, 2) if op == "Conv" or mode == "NOTSET" else 1
        if mode == "VALID":
            kernel = 1
        return Axis(kernel, stride, dilation, begin, end)
    if op == "Conv" and extent <= 4 and mode in ("NOTSET", "VALID") and dice.chance(50):
        return Axis(extent, dice.number(1, 2))  # the kernel covers all of it, once
    return Axis(dilation=dice.number(1, 2))


def _fitting(axis: Axis, op: str, extent: int, mode: str, dynamic: bool) -> Axis:
    """The nearest axis whose output has a cell, and that needs no unknown extent."""
    if op == "Conv" and mode in ("NOTSET", "VALID"):
        room = extent + axis.begin + axis.end
        if room < axis.reach:
            axis = replace(axis, dilation=1, kernel=min(axis.kernel, room))
    if op == "Conv" and mode in SAME and dynamic:
        axis = replace(axis, stride=1)
    if op == "ConvTranspose" and mode == "NOTSET":
        most = axis.stride * (extent - 1) + axis.reach + axis.extra - 1
        begin = min(axis.begin, most)
        axis = replace(axis, begin=begin, end=min(axis.end, most - begin))
    return axis


def _finished(
    dice: Dice, op: str, channels: int, extents: Sequence[int], mode: str, axes: list[Axis],
    fault: str,
) -> Layer:  # fmt: skip
    group = dice.one_of([g for g in range(1, channels + 1) if channels % g == 0])
    each = dice.number(1, 3 if group < 3 else 2)
    pads = [a.begin for a in axes] + [a.end for a in axes]
    slide = Slide(
        [a.kernel for a in axes], [a.stride for a in axes], [a.dilation for a in axes], pads,
        "NOTSET" if mode == "SHAPE" else mode,
    )  # fmt: skip
    attrs: dict[str, Any] = {"group": group}
    if op == "Conv":
        found, weight = slide.counts(extents), (group * each, channels // group, *slide.kernel)
    else:
        slide, found = _transposed(dice, slide, extents, axes, mode, attrs)
        weight = (channels, each, *slide.kernel)
    attrs |= _written(dice, slide)
    if fault == "pads":
        attrs |= {"auto_pad": mode, "pads": [1] * (2 * len(axes))}
    if mode == "SHAPE" and slide.auto_pad == "NOTSET" and dice.chance(20):
        attrs["pads"] = [1] * (2 * len(axes))  # which the text says are ignored
    traits = _traits(op, slide, attrs, channels, group * each, mode)
    return Layer(op, _without_defaults(dice, attrs), weight, group * each, found, traits)


def _transposed(
    dice: Dice, slide: Slide, extents: Sequence[int], axes: list[Axis], mode: str,
    attrs: dict[str, Any],
) -> tuple[Slide, list[int]]:  # fmt: skip
    """Draw output_padding, output_shape and output extents of a ConvTranspose."""
    extra = [a.extra for a in axes]
    whole = transpose_extents(slide, extents, extra)
    if any(extra):
        attrs["output_padding"] = extra
    wanted: list[int] = []
    if mode == "SHAPE":
        wanted = [
            n if len(axes) == 3 and _stays(a, n) else dice.number(max(1, full - 4), full + 2)
            for a, n, full in zip(axes, extents, whole, strict=True)
        ]
        attrs["output_shape"] = wanted
        halves = dice.one_of(["NOTSET", *SAME])
        slide = replace(slide, auto_pad=halves)
    crops, appended = transpose_crops(slide, extents, whole, wanted)
    return slide, [
        n + more - begin - end for n, more, (begin, end) in zip(whole, appended, crops, strict=True)
    ]


def _stays(axis: Axis, extent: int) -> bool:
    """An axis made removable must come out as it went in."""
    return (axis.kernel == axis.stride == 1) or extent == 1


def _written(dice: Dice, slide: Slide) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "auto_pad": slide.auto_pad,
        "dilations": list(slide.dilations),
        "kernel_shape": list(slide.kernel),
        "strides": list(slide.strides),
    }
    # All zeros beside auto_pad are harmless.
    if slide.auto_pad == "NOTSET" or dice.chance(10):
        attrs["pads"] = list(slide.pads)
    return attrs


def _without_defaults(dice: Dice, attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes that may be left out are, or not."""
    axes = len(attrs["kernel_shape"])
    defaults = {
        "auto_pad": "NOTSET", "dilations": [1] * axes, "group": 1, "pads": [0] * (2 * axes),
        "kernel_shape": attrs["kernel_shape"], "strides": [1] * axes,
    }  # fmt: skip
    return {
        name: value
        for name, value in attrs.items()
        if value != defaults.get(name) or dice.chance(30)
    }


def _traits(
    op: str, slide: Slide, attrs: dict[str, Any], channels: int, outputs: int, mode: str
) -> set[str]:
    group = attrs["group"]
    kind = "group 1" if group == 1 else "group C" if group == channels else "group between"
    found = {f"{op} {len(slide.kernel)}D", f"{op} {kind}", f"{op} {mode}"}
    tests = {
        "multiplier": group == channels > 1 and outputs > channels,
        "dilated": any(d > 1 and k > 1 for d, k in zip(slide.dilations, slide.kernel, strict=True)),
        "strided": any(s > 1 for s in slide.strides),
        "unequal strides": len(set(slide.strides)) > 1,
        "stride beyond kernel": any(
            s > k for s, k in zip(slide.strides, slide.kernel, strict=True)
        ),
        "uneven pads": any(a != b for a, b in slide.explicit),
        "output_padding": "output_padding" in attrs,
        "pads ignored": mode == "SHAPE" and any(attrs.get("pads", ())),
    }
    return found | {f"{op} {name}" for name, holds in tests.items() if holds}
