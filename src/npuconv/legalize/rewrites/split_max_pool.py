"""Split a max pool whose kernel is too large into pools that follow each other.

The largest of the largest is the largest of all: with kernels of 7 and 7 two pools reach
as far as one of 13, as spatial pyramids (SPP) have them. Where the target lists MaxPool and
takes the smaller ones, as few as possible are written; the last has the stride, and each
a share of the pads. Exact in int8 as well. ``--no-fit`` leaves all alone.

Refuses ``ceil_mode``, which adds cells at the end, and pads around a dilated kernel: what
the second pool would need of them, the first has not made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.conv import Window, effective_kernel, flat_pads, window
from npuconv.model.core import Model
from npuconv.model.facts import settled
from npuconv.model.types import Node

OP = "MaxPool"
MOST = 32  # pools that one becomes


@model_pass(Phase.LEGALIZE, after=("fold-pad", "resolve-auto-pad"), infers=True)
def split_max_pool(model: Model, ctx: PassContext) -> int:
    if not ctx.options.fit or ctx.target.operator(OP) is None:
        return 0
    return sum(_split(model, ctx, node) for node in model.nodes(OP))


def _split(model: Model, ctx: PassContext, node: Node) -> int:
    operator, win = ctx.target.operator(OP), window(node)
    if operator is None or win is None or win.kernel is None or not win.is_consistent:
        return 0
    if node.name in ctx.kept or max(win.kernel) < 3 or not operator.objections(settled(node)):
        return 0
    found = _fitting(ctx, win)
    if not found:
        return 0
    if reason := _obstacle(node, win):
        ctx.refuse(model, node, reason)
        return 0
    kernels = ", then ".join("x".join(map(str, one.kernel or ())) for one in found)
    with ctx.rewrite(model, [node], OP, f"{len(found)} {OP}: {kernels}"):
        result = node.inputs[0]
        for one in found:
            attrs = {
                "kernel_shape": list(one.kernel or ()),
                "strides": list(one.strides),
                "pads": flat_pads(one.pads),
            }
            attrs |= {"dilations": list(win.dilations)} if max(win.dilations) > 1 else {}
            result = edit.insert(model, OP, [result], origin=[node], shape=one.output, attrs=attrs)
        edit.hand_over(result, node.outputs[0])
        edit.disconnect(node)
    return 1


def _obstacle(node: Node, win: Window) -> str:
    """Return why pools that follow each other are not the same as this one, or ''."""
    if query.attribute(node, "ceil_mode", 0):
        return "ceil_mode adds cells at the end"
    if len(node.outputs) > 1:
        return "the places of the largest are read as well"
    if win.auto_pad != "NOTSET":
        return f"it still has auto_pad={win.auto_pad}"
    if max(win.dilations) > 1 and any(map(any, win.pads)):
        return "its kernel is dilated and has pads"
    return ""


def _fitting(ctx: PassContext, win: Window) -> list[Window]:
    """Return the fewest pools that the target takes all of; none where there are none."""
    for count in range(2, min(max(win.kernel or (0,)), MOST + 1)):
        found = list(_pools(win, count))
        if not any(ctx.objections(one, op=OP) for one in found):
            return found
    return []


def _pools(win: Window, count: int) -> Iterator[Window]:
    """Yield so many pools, which together reach as far as the window."""
    assert win.kernel is not None
    kernels = [[_reach(k, count, i) for k in win.kernel] for i in range(count)]
    axes = range(len(win.kernel))
    begins, ends = (
        [_shares(win.pads[a][side], [k[a] for k in kernels]) for a in axes] for side in (0, 1)
    )
    dims = win.input
    for number, kernel in enumerate(kernels):
        pads = tuple((begins[a][number], ends[a][number]) for a in axes)
        last = number == count - 1
        one = replace(
            win, kernel=tuple(kernel), pads=pads, input=dims,
            strides=win.strides if last else (1,) * len(kernel),
        )  # fmt: skip
        dims = win.output if last else _output(one)
        yield replace(one, output=dims)


def _reach(kernel: int, count: int, number: int) -> int:
    """Return the kernel of one of so many pools: one cell, and its share of the others."""
    each, more = divmod(kernel - 1, count)
    return 1 + each + (number < more)


def _shares(pad: int, kernels: Sequence[int]) -> list[int]:
    """Divide the pads of one end, by what the kernels reach beyond one cell."""
    found, room = [], sum(kernels) - len(kernels)
    for kernel in kernels:
        found.append(-(-pad * (kernel - 1) // max(room, 1)))
        pad, room = pad - found[-1], room - (kernel - 1)
    return found


def _output(win: Window) -> tuple[int | str | None, ...] | None:
    """Return what a pool of stride 1 makes."""
    if win.input is None or win.kernel is None:
        return None
    spatial = [
        n + sum(pair) - effective_kernel(k, d) + 1 if isinstance(n, int) else None
        for n, pair, k, d in zip(win.input[2:], win.pads, win.kernel, win.dilations, strict=True)
    ]
    return (*win.input[:2], *spatial)
