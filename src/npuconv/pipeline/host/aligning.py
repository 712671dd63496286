"""Which inputs of the device are on a grid, as pixels are: int8 can hold them exactly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from npuconv.model import query
from npuconv.pipeline.host.shared import share
from npuconv.plan import readers
from npuconv.quant import grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from npuconv.model.types import Node, Tensor
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.grid import Grid
    from npuconv.samples import Feed, Samples

    Array = NDArray[Any]

FEW = 4  # samples that are looked at; calibration says whether the others agree
MANY = 2**16  # values of a channel of one sample that are looked at
_AS_IT_IS = ("Pad", "Identity")
_AFFINE = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


def grids(work: Legalized, samples: Samples) -> dict[str, Grid]:
    """What comes from the outside and is on a grid, by the convolution that reads it.

    Args:
        work: a legalized model.
        samples: a few of them are looked at; no model is run.
    """
    start = time.perf_counter()
    found: dict[str, Grid] = {}
    # Where there is no host, or the user gives integers, there is nobody to move anything.
    if work.target.unlisted_operators != "error" and work.options.io != "int8":
        feeds = list(samples[:FEW])
        for convs in readers(work.plan).values():
            one = _grid(convs[0].inputs[0], feeds)
            if one is not None and one.steps.any():
                found |= {conv.name: one for conv in convs}
    work.timings.append(("align-input", time.perf_counter() - start))
    return found


def align(work: Legalized, found: Mapping[str, Grid]) -> bool:
    """Move inputs that are on a grid so that 0 is on it, too.

    Args:
        work: a legalized model; its ``grids`` are set, and it is changed and planned anew
            where something is to be moved.
        found: as ``grids`` returns it.

    Returns:
        Whether anything was changed.
    """
    free = {
        name: convs
        for name, convs in readers(work.plan).items()
        if convs[0].name in found and not any(pads(conv) for conv in convs)
    }
    made = {name: found[convs[0].name] for name, convs in free.items()}
    work.ctx.to_align = {name: g.offsets for name, g in made.items() if not g.is_aligned}
    changed = bool(work.ctx.to_align) and share(work)
    work.ctx.to_align = {}
    # The pass may have refused: then calibration sees no whole steps.
    work.grids = {free[name][0].inputs[0].name: g for name, g in made.items()}
    return changed


def pads(conv: Node) -> tuple[int, ...]:
    """What a convolution pads with; nothing where that is 0 on all sides."""
    amounts = tuple(int(p) for p in query.attribute(conv, "pads", ()) or ())
    return amounts if any(amounts) else ()


def _grid(tensor: Tensor, feeds: Sequence[Feed]) -> Grid | None:
    """The grid of a tensor that is an input of the model, moved and scaled at most."""
    name, way = _origin(tensor)
    arrays = [_along(np.asarray(feed[name]), way) for feed in feeds if name in feed]
    if not arrays or any(a is None or a.ndim < 2 for a in arrays):
        return None
    return grid.find(np.concatenate([_rows(a) for a in arrays if a is not None], axis=1))


def _origin(tensor: Tensor) -> tuple[str, list[Node]]:
    """Where it comes from, and what is done to it on the way."""
    way: list[Node] = []
    while (node := query.producer(tensor)) is not None:
        way.insert(0, node)
        given = [t for t in node.inputs if not query.is_constant(t)]
        if not given:
            return "", way
        tensor = given[0]
    return str(tensor.name), way


def _along(array: Array, way: Sequence[Node]) -> Array | None:
    """The values behind these nodes; None where one does more than to move and scale them."""
    for node in way:
        there = [query.input_of(node, place) for place in range(len(node.inputs))]
        if sum(t is not None and not query.is_constant(t) for t in there) != 1:
            return None  # of two that vary only one is known
        if node.op == "Transpose" and query.attribute(node, "perm"):
            array = np.transpose(array, query.attribute(node, "perm"))
        elif node.op == "Cast":
            array = array.astype(np.float32)
        elif node.op in _AFFINE and len(node.inputs) == 2:
            first, second = (query.value(t) if query.is_constant(t) else array for t in node.inputs)
            with np.errstate(all="ignore"):  # calibration says what is wrong with it
                array = np.asarray(_AFFINE[node.op](first, second))  # type: ignore[arg-type]
        elif node.op not in _AS_IT_IS:
            return None
    return array if array.dtype.kind in "fui" else None


def _rows(array: Array) -> NDArray[np.float64]:
    """The values of every channel, not too many of them."""
    rows = np.moveaxis(array, 1, 0).reshape(array.shape[1], -1)
    return rows[:, :: max(1, rows.shape[1] // MANY)].astype(np.float64)
