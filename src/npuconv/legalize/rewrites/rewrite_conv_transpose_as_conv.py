"""Turn transposed convolutions into plain ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npuconv.legalize.forms import Form, choose, chosen
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.group_forms import objections
from npuconv.legalize.tools.subpixel import Axis, sub_pixel, zero_insertion
from npuconv.model import edit, query
from npuconv.model.conv import window

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node

AXES = 2


@dataclass(frozen=True)
class Candidate:
    """One form of a transposed convolution."""

    form: str
    win: Window  # the convolution it needs
    axes: tuple[Axis, Axis]

    @property
    def phases(self) -> tuple[int, int]:
        """Cells of the result in one cell of the convolution, by axis."""
        return self.axes[0].phases, self.axes[1].phases

    @property
    def modulus(self) -> int | None:
        """The Reshapes that unequal phases need hold for their own extents only."""
        return 1 if self.phases[0] == self.phases[1] else None

    def text(self) -> str:
        """``sub-pixel Conv 2x2, 256 channels + DepthToSpace + Slice``."""
        kernel = "x".join(str(axis.kernel) for axis in self.axes)
        parts = [f"Conv {kernel}, {self.win.out_channels} channels"]
        stretched = any(axis.stretch > 1 for axis in self.axes)
        if stretched:
            parts.insert(0, "zeros inserted")
        if max(self.phases) > 1:
            same = self.phases[0] == self.phases[1]
            parts.append("DepthToSpace" if same else "Reshape and Transpose")
        if any(any(axis.crop) for axis in self.axes):
            parts.append("Slice")
        plain = not stretched and max(self.phases) == 1
        return ("" if plain else f"{self.form} form: ") + " + ".join(parts)


@model_pass(Phase.LEGALIZE, after=("resolve-auto-pad", "rewrite-1d-as-2d"), infers=True)
def rewrite_conv_transpose_as_conv(model: Model, ctx: PassContext) -> int:
    """Turn transposed convolutions into plain ones.

    With stride 1 the kernel is turned around and the pads become ``e - 1 - pad``. With a
    larger stride there are two forms, and the cheaper one that the target takes is chosen
    (``--prefer sub-pixel`` or ``zero-insertion`` overrides):

    - sub-pixel: the output cells of one stride are channels of one convolution over the
      input, which DepthToSpace (CRD) puts side by side, and a Slice crops. Strides may
      differ between the axes and need not divide the kernel.
    - zero-insertion: ``s - 1`` zeros behind each cell, then a convolution of stride 1. It
      multiplies with all these zeros, so it has up to ``s * s`` times the MACs. Equal
      strides only.

    Groups stay groups, a depthwise one stays depthwise.
    """
    if model.opset < 13:
        return 0
    return sum(_rewrite(model, ctx, node) for node in model.nodes("ConvTranspose"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    win = window(node)
    reason = _obstacle(node, win)
    if reason or win is None:
        ctx.refuse(model, node, reason)
        return 0
    candidates = {c.form: c for c in _candidates(win)}
    forms = choose(ctx.target, ctx.options, [_form(ctx, win, c) for c in candidates.values()])
    best = chosen(forms)
    if best is None:
        ctx.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
        return 0
    candidate = candidates[best.name]
    strides = "x".join(map(str, win.strides))
    before = f"ConvTranspose {'x'.join(map(str, win.kernel or ()))} stride {strides}"
    after, modulus = candidate.text(), candidate.modulus
    with ctx.rewrite(model, [node], before, after, modulus=modulus) as record:
        record.forms = forms if len(forms) > 1 else ()
        _replace(model, node, win, candidate)
    return 1


def _obstacle(node: Node, win: Window | None) -> str:
    if win is None or win.kernel is None or win.weight is None:
        return "the extents of its weights are not known"
    if len(win.kernel) != AXES:
        return f"it has {len(win.kernel)} spatial axes, not {AXES}"
    if win.auto_pad != "NOTSET" or win.output_shape:
        return "its pads are not resolved"
    if query.dtype_name(query.input_of(node, 1)) != "float32":
        return "its weights are not float32"
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    return ""


def _candidates(win: Window) -> list[Candidate]:
    first = Candidate("sub-pixel", win, (sub_pixel(win, 0), sub_pixel(win, 1)))
    found = [first]
    if win.strides[0] == win.strides[1] > 1:
        axes = (zero_insertion(win, 0), zero_insertion(win, 1))
        found.append(Candidate("zero-insertion", win, axes))
    return [replace(c, win=_as_conv(win, c.axes)) for c in found]


def _as_conv(win: Window, axes: tuple[Axis, Axis]) -> Window:
    assert win.weight is not None
    kernel = tuple(axis.kernel for axis in axes)
    channels = (win.out_channels or 0) * math.prod(axis.phases for axis in axes)
    dims = win.input or (None,) * (AXES + 2)
    grown = tuple(d * a.stretch if isinstance(d, int) else None for d, a in _spatial(dims, axes))
    cells = tuple(a.cells(d) if isinstance(d, int) else None for d, a in _spatial(dims, axes))
    return replace(
        win,
        op="Conv",
        kernel=kernel,
        strides=(1,) * AXES,
        dilations=tuple(axis.dilation for axis in axes),
        pads=tuple(axis.pads for axis in axes),
        weight=(channels, win.weight[0] // win.group, *kernel),
        input=(dims[0], dims[1], *grown),
        output=(dims[0], channels, *cells),
        output_padding=(0,) * AXES,
    )


def _spatial(
    dims: tuple[int | str | None, ...], axes: tuple[Axis, Axis]
) -> list[tuple[int | str | None, Axis]]:
    return list(zip(dims[2:], axes, strict=True))


def _form(ctx: PassContext, win: Window, candidate: Candidate) -> Form:
    """Return a candidate with its cost; results of phases and inserted zeros are moved."""
    from npuconv.partition.costs import Cost

    conv = candidate.win
    moved = conv.output if max(candidate.phases) > 1 else conv.input
    known = [d for d in (moved or ())[1:] if isinstance(d, int)]
    cells = math.prod(known) if max(win.strides) > 1 and len(known) == AXES + 1 else 0
    against = objections(ctx, conv)
    cost = Cost(conv.macs, conv.parameters(), 1)
    return Form(candidate.form, cost, cells, against[0] if against else "")


def _replace(model: Model, node: Node, win: Window, candidate: Candidate) -> None:
    from npuconv.legalize.tools import transposed as _transposed

    source = node.inputs[0]
    if candidate.axes[0].stretch > 1:
        source = _transposed.insert_zeros(model, node, win, candidate.axes[0].stretch)
    result = _transposed.convolve(model, node, win, candidate.win, candidate.axes, source)
    result = _transposed.side_by_side(model, node, candidate.win, candidate.phases, result)
    result = _transposed.crop(model, node, candidate.axes, result)
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)
