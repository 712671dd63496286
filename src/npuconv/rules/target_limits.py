"""Limits of the target that are unknown, or that need unknown extents or the int8 model.

Values that a model needs of unknown limits, extents that the model leaves open, and facts of
integer convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from npuconv.model import Model, Node, query, window
from npuconv.model.conv import resolved_pads
from npuconv.records import dataclass
from npuconv.rules import Violation
from npuconv.rules.context import RuleContext
from npuconv.target import value_text
from npuconv.target.facts import DECIDED_LATER, lookup

if TYPE_CHECKING:
    from npuconv.target.limit import Limit

EXTENTS = ("in_n", "in_h", "in_w", "out_n", "out_h", "out_w")  # extents that a model may leave open
ANY = "any"  # the value of an extent that the model leaves open
MAX_LISTED_VALUES = 6  # largest number of listed values; more become a range

# QLinearConv of com.microsoft can have the channels last; the order of weights is the same.
INTEGER_CONVOLUTIONS = {"QLinearConv", "com.microsoft.QLinearConv", "ConvInteger"}
# QLinearConv: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B
# ConvInteger: x, w, x_zero_point, w_zero_point; its bias is added behind
_X_ZERO, _BIAS = 2, 8


# Unknown limits


@dataclass(frozen=True)
class Need:
    """One unknown limit, and the values of it that occur."""

    name: str  # operator.fact
    limit: Limit
    values: tuple[Any, ...]  # sorted, without repeats
    nodes: int
    example: Node  # a node with the largest value
    label: str  # name of the example in the source model

    @property
    def text(self) -> str:
        """The values for people; a range where there are many numbers."""
        numbers = [v for v in self.values if isinstance(v, int) and not isinstance(v, bool)]
        if len(numbers) <= MAX_LISTED_VALUES:
            return ", ".join(map(value_text, self.values))
        texts = [value_text(v) for v in self.values if v not in numbers]
        return ", ".join([f"{numbers[0]}..{numbers[-1]}", *texts])


def needs(ctx: RuleContext) -> list[Need]:
    """Return every unknown limit that some node has a value for, by name."""
    nodes: dict[str, dict[Any, list[Node]]] = {}
    limits: dict[str, Limit] = {}
    for node in ctx.model.nodes():
        if ctx.operator(node) is None or ctx.is_kept_float(node):
            continue  # no limit applies to the node
        facts = ctx.facts(node)
        for fact, limit in ctx.limits(node).items():
            if limit.is_documented or fact in DECIDED_LATER:
                continue
            value = lookup(facts, fact)
            if value is None and fact in facts and fact in EXTENTS:
                value = ANY
            if value is not None:
                limits[f"{node.op}.{fact}"] = limit
                nodes.setdefault(f"{node.op}.{fact}", {}).setdefault(value, []).append(node)
    result = []
    for name, by_value in sorted(nodes.items(), key=itemgetter(0)):
        values = tuple(sorted(by_value, key=lambda v: (str(type(v)), v)))
        count, example = sum(map(len, by_value.values())), by_value[values[-1]][0]
        label = ctx.model.label(example)
        result.append(Need(name, limits[name], values, count, example, label))
    return result


# Extents that the model leaves open


def missing_axis(node: Node, ctx: RuleContext) -> int | None:
    """Return the first spatial axis whose extent the pads depend on and that is not known."""
    if not (query.attribute(node, "auto_pad") or query.attribute(node, "output_shape")):
        return None  # nearly always: saves the slower query
    win = window(node)
    if win is None or (win.auto_pad == "NOTSET" and not win.output_shape):
        return None
    # A pool the device is not asked to run keeps its auto_pad: the host's runtime has the extent.
    if win.op in query.POOLS and ctx.operator(node) is None:
        return None
    # Other rules report a kernel of unknown extent, and attributes of wrong lengths.
    if win.kernel is None or not ctx.facts(node):
        return None
    axis = resolved_pads(win)
    return axis if isinstance(axis, int) else None


def advice_on_shape(model: Model, node: Node) -> str:
    """Return the --input-shape flags for the missing extents; '' if no input is dynamic.

    Of several dynamic inputs, only the inputs that the node depends on are named.
    """
    shapes = [(tensor, query.shape(tensor) or ()) for tensor in model.graph.inputs]
    dynamic = [(t, dims) for t, dims in shapes if any(not isinstance(d, int) for d in dims)]
    if len(dynamic) > 1:
        above = set(map(id, query.upstream_tensors(node)))
        dynamic = [(t, dims) for t, dims in dynamic if id(t) in above]
    texts = (
        (t.name, ",".join(str(d) if isinstance(d, int) else "?" for d in dims))
        for t, dims in dynamic
    )
    flags = " ".join(f"--input-shape {name}={text}" for name, text in texts)
    return f"give {flags} with numbers for every ?" if flags else ""


# Integer convolutions as they are written for the device


def written_violations(node: Node, ctx: RuleContext, *names: str) -> Iterator[Violation]:
    """Yield a violation for each of these facts of a QLinearConv beyond the limits of Conv.

    The message may use ``{fact}``, ``{value}`` and ``{limit}``.
    """
    index = 1 if node.op == "ConvInteger" else 3  # input that has the weights
    weight, dims = query.input_of(node, index), query.shape(query.input_of(node, index))
    mode = "plain"
    if int(query.attribute(node, "group", 1)) != 1:
        mode = "depthwise" if dims is not None and dims[1] == 1 else "grouped"
    zero, integers = query.constant_input(node, _X_ZERO), query.constant_input(node, index)
    facts: dict[str, Any] = {
        "mode": mode,
        "dtype": query.dtype_name(node.inputs[0]) or "int8",
        "weight_dtype": query.dtype_name(weight),
        "bias_dtype": query.dtype_name(query.input_of(node, _BIAS)) or None,
        "pad_value": None if zero is None else int(zero.reshape(-1)[0]),
        "weight_abs_sum_max": None,
    }
    if integers is not None:
        sums = abs(integers.astype("int64")).reshape(integers.shape[0], -1).sum(axis=1)
        facts["weight_abs_sum_max"] = int(sums.max())
    operator = ctx.target.operator("Conv")
    limits = operator.broken(facts)[0] if operator else {}
    for name in filter(limits.get, names):
        text, value, source = limits[name].text(facts), facts[name], limits[name].cite()
        yield Violation({"fact": name, "value": value, "limit": text}, str(value), text, source)
