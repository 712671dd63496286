"""Fields of a target file: operators with their limits, number formats, costs.

Every limit of a chip lives in its target file, with its source; the code has no branch for a
particular chip. See ``targets/npu-int8.yaml`` for a real one and
``configs/targets/my_chip.yaml`` for a file that uses every field.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from npuconv.target.facts import FACTS, Facts, FactValue, Mode, lookup, value_text
from npuconv.target.limit import Cited, Limit, LimitField, Relation
from npuconv.validated import Before, Field, Record
from npuconv.version import NEWEST_OPSET, OLDEST_OPSET, Format
from npuconv.yamlio import KeyPath, dotted

Dtype = Literal[
    "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "float16", "bfloat16", "float32",
]  # fmt: skip
Granularity = Literal["tensor", "channel"]
RequantizeKind = Literal["float", "shift", "gemmlowp"]


class Block(Cited):
    """Storage format of one kind of number."""

    assumed: tuple[str, ...] = Field(
        default=(), description="keys of this block that no document states; reports list them"
    )

    def check(self) -> None:
        """Check that assumptions are of keys of the block."""
        for name in self.assumed:
            if name not in self.model_fields:
                raise ValueError(f"`assumed` names {name!r}, which is not a key of this block")


class Requantize(Record):
    """Requantization of the int32 accumulator to an output of the device.

    ``float`` multiplies by a float32 factor, rounds half to even and saturates. ``shift``
    multiplies by an integer and shifts the product right, each output channel with its own.
    ``gemmlowp`` is the arithmetic of TFLite's reference kernels: a multiplier of 31 bits, and
    two roundings.
    """

    kind: RequantizeKind = Field(default="float", description="float, shift or gemmlowp")
    multiplier_bits: int = Field(
        default=16, ge=2, le=31, description="shift: a multiplier is positive and below 2 to this"
    )
    max_shift: int = Field(default=62, ge=0, le=62, description="shift: the largest shift")
    rounding: Literal["half_away", "half_up", "half_even"] = Field(
        default="half_away",
        description="shift: where half a step goes: away from zero, up, or to even",
    )

    def check(self) -> None:
        """Check that only a shift has bits."""
        keys = self.model_fields_set - {"kind"}
        if self.kind != "shift" and keys:
            raise ValueError(f"{min(keys)!r} belongs to kind: shift")

    def __str__(self) -> str:
        if self.kind != "shift":
            return self.kind
        return f"shift, {self.multiplier_bits} bits, at most {self.max_shift}, {self.rounding}"

    def words(self) -> str:
        """Return the text in the metadata of a model, for the simulator."""
        if self.kind != "shift":
            return self.kind
        return f"shift {self.multiplier_bits} {self.max_shift} {self.rounding}"


def _kind(value: Any) -> Any:
    """``requantize: shift`` is short for ``{kind: shift}``."""
    return {"kind": value} if isinstance(value, str) else value


RequantizeField = Annotated[Requantize, Before(_kind, Requantize | RequantizeKind)]


class Activations(Block):
    """Numbers in tensors between device nodes."""

    dtype: Dtype = Field(description="element type")
    zero_point: LimitField = Field(
        default=Limit(one_of=(0,)),
        description="allowed zero points: a list, {range: [lo, hi]} or '?'",
    )
    granularity: Granularity = Field(
        default="tensor", description="one scale per tensor or per channel"
    )
    requantize: RequantizeField = Field(
        default=Requantize(),
        description="arithmetic of a convolution's output: float, gemmlowp, shift, or "
        "{kind: shift, ...}",
    )
    accumulate: Literal["int8", "int32"] = Field(
        default="int8",
        description="partial sums of a convolution in parts: int8 tensors, each rounded, or "
        "int32 where the device adds them in its accumulator",
    )

    def check(self) -> None:
        """Check that the requantization of the target adds accumulators."""
        super().check()
        if self.accumulate == "int32" and self.requantize.kind == "gemmlowp":
            raise ValueError(
                "accumulate: int32 needs requantize: float or shift; the kernels of TFLite add no "
                "accumulators"
            )

    def allows_zero_point(self, value: int) -> bool | None:
        """Return whether a tensor may have this zero point; None if the limit is unknown."""
        return self.zero_point.allows(value, {})


class Weights(Block):
    """Numbers in weights."""

    dtype: Dtype = Field(description="element type")
    symmetric: bool = Field(default=True, description="whether every zero point is 0")
    granularity: Granularity = Field(
        default="channel", description="one scale per tensor or per channel"
    )
    range: tuple[int, int] = Field(
        default=(-127, 127), description="lowest and highest stored value"
    )

    def check(self) -> None:
        """Check that the values of the range are in order."""
        super().check()
        if self.range[0] > self.range[1]:
            raise ValueError(f"range: {self.range[0]} is greater than {self.range[1]}")


class Bias(Block):
    """Numbers in the bias."""

    dtype: Dtype | Literal["?"] = Field(default="int32", description="element type, or '?'")
    assume: Dtype = Field(
        default="int32", description="with '?': the type that is used until known"
    )

    @property
    def is_documented(self) -> bool:
        """Return whether the element type is documented."""
        return self.dtype != "?"

    @property
    def used(self) -> str:
        """The type to write: ``dtype``, or the assumed one if that is unknown."""
        return str(self.dtype) if self.is_documented else self.assume


COST_WEIGHTS = ("mac", "weight_byte", "convolution", "moved_byte", "crossing", "crossing_byte")


class Costs(Cited):
    """Weights of a sum; only their ratios matter.

    The cost of a form is ``mac * MACs + weight_byte * bytes of int8 weights + convolution *
    number of convolutions + moved_byte * bytes that are copied between them + crossing * number of
    tensors that cross to the host or back + crossing_byte * their bytes``.
    """

    mac: float = Field(default=1.0, ge=0, description="one multiply-accumulate")
    weight_byte: float = Field(default=1.0, ge=0, description="one byte of weights fetched")
    convolution: float = Field(default=0.0, ge=0, description="starting one convolution")
    moved_byte: float = Field(
        default=0.0, ge=0, description="one byte sliced, concatenated or reordered"
    )
    # 20 microseconds for a transfer with its synchronization, at 250 GMAC/s and 2 GB/s.
    crossing: float = Field(
        default=5e6, ge=0, description="one transfer of a tensor between device and host"
    )
    crossing_byte: float = Field(default=125.0, ge=0, description="one byte of such a tensor")


_FACT_KEYS: dict[str, Any] = {"propertyNames": {"enum": list(FACTS)}}


def canonical_domain(domain: str) -> str:
    """Return a domain; ONNX's own domain, which has two names, as ''."""
    return "" if domain == "ai.onnx" else domain


class Demands(Record):
    """Limits and relations: demands of the device on every listed operator."""

    limits: dict[str, LimitField] = Field(
        default_factory=dict, description="fact -> limit", json_schema_extra=_FACT_KEYS
    )
    require: tuple[Relation, ...] = Field(default=(), description="relations between facts")


class ListedOperator(Demands):
    """Demands of the device on one operator. An operator that is listed is supported."""

    domain: str = Field(default="", description="operator domain; empty: ONNX's own")
    modes: dict[Mode, dict[str, LimitField]] = Field(
        default_factory=dict, description="limits that differ for one kind of convolution"
    )
    requantizes: bool = Field(
        default=False, description="Concat: whether its inputs may have scales of their own"
    )

    def with_common(self, common: Demands) -> Self:
        """Return this operator with the common demands added; its own limits take precedence."""
        limits = {**common.limits, **self.limits}
        return self.model_copy(
            update={"limits": limits, "require": (*common.require, *self.require)}
        )

    @cached_property
    def _by_mode(self) -> dict[str, dict[str, Limit]]:
        return {str(mode): {**self.limits, **limits} for mode, limits in self.modes.items()}

    def limits_for(self, mode: str) -> Mapping[str, Limit]:
        """Return the limits of a node; limits of its mode replace the general limits."""
        return self._by_mode.get(mode, self.limits)

    @cached_property
    def native(self) -> Self:
        """This operator with the limits of one operator of the hardware."""
        modes = {mode: _native(limits) for mode, limits in self.modes.items()}
        return self.model_copy(update={"limits": _native(self.limits), "modes": modes})

    def broken(self, facts: Facts) -> tuple[dict[str, Limit], list[Relation]]:
        """Return the known limits, by fact, and relations that a node with these facts breaks."""
        limits = self.limits_for(str(facts.get("mode", "plain"))).items()
        documented = ((name, limit) for name, limit in limits if limit.is_documented)
        beyond = {n: v for n, v in documented if v.allows(lookup(facts, n), facts) is False}
        return beyond, [r for r in self.require if r.holds(facts) is False]

    def objections(self, facts: Facts) -> list[str]:
        """Return, as text, the known limits and relations that a node with these facts breaks."""
        limits, relations = self.broken(facts)
        beyond = [
            f"{name} is {value_text(lookup(facts, name))}, the device takes {limit.text(facts)}"
            for name, limit in limits.items()
        ]
        return beyond + [f"{relation.text(facts)} does not hold" for relation in relations]


def _native(limits: dict[str, Limit]) -> dict[str, Limit]:
    return {name: limit.native or limit for name, limit in limits.items()}


def _no_onnx(value: Any) -> Any:
    return None if value == "onnx" else value


class Description(Record):
    """Description of one NPU: operators, limits, number formats and costs."""

    schema_version: Literal[1] = Field(keys=("schema",), description="version of this format")
    name: str = Field(description="name of the target", min_length=1)
    version: str = Field(default="", description="version of the chip or of this description")
    description: str = Field(default="", description="description for people")
    sources: dict[str, str] = Field(
        default_factory=dict, description="name -> the document that limits cite"
    )
    all_operators: Demands = Field(
        default=Demands(),
        description="demands on every operator below that has no other demands of its own",
    )
    operators: dict[str, ListedOperator] = Field(description="operator -> demands of the device")
    activations: Activations
    weights: Weights
    bias: Bias = Field(default=Bias())
    fused_activations: LimitField = Field(
        default=Limit(limit="?"),
        description="activations that a convolution can apply to its own output",
    )
    format: Annotated[
        Format | None, Before(lambda v: None if v == "onnx" else v, Format | None)
    ] = Field(
        default=None,
        keys=("format", "container"),  # container: onnx or tflite is the older key
        description="form that the compiler of the chip reads: the default of --format",
    )
    static: bool = Field(
        default=False, description="whether that compiler needs every extent of an input"
    )
    opset: int | None = Field(
        default=None,
        ge=OLDEST_OPSET,
        le=NEWEST_OPSET,
        description="newest opset that the compiler of the chip loads: the default of --opset",
    )
    rescales_symmetric: bool = Field(
        default=False,
        description="whether that compiler changes the scale of a tensor whose zero points are all "
        "0: in the form qdq they are -1 instead",
    )
    next_command: str | dict[Format, str] = Field(
        default="",
        description="command to run on the written model, or by form; {model} is its path",
    )
    costs: Costs = Field(
        default=Costs(),
        description="costs by which one of several forms of a rewrite is chosen",
    )
    unlisted_operators: Literal["undocumented", "host", "error"] = Field(
        default="undocumented", description="placement of operators that are not listed"
    )

    @property
    def fusible(self) -> tuple[FactValue, ...]:
        """Activations that a convolution applies, or is assumed to apply until it is known."""
        fused = self.fused_activations
        return fused.values if fused.is_documented else fused.assume

    def command_for(self, form: str) -> str:
        """Return the command to run on a model of a form; '' if there is none.

        A single command is for the form of the target.
        """
        commands = self.next_command
        if isinstance(commands, str):
            return commands if self.format in (None, form) else ""
        return next((command for name, command in commands.items() if name == form), "")

    def operator(self, op_type: str, domain: str = "") -> ListedOperator | None:
        """Return the demands on an operator; None if the target does not list it."""
        operator = self.operators.get(op_type)
        if operator is None or canonical_domain(operator.domain) != canonical_domain(domain):
            return None
        return self._merged[op_type]

    @cached_property
    def _merged(self) -> dict[str, ListedOperator]:
        return {k: v.with_common(self.all_operators) for k, v in self.operators.items()}

    def limits(self) -> Iterator[tuple[KeyPath, Limit]]:
        """Return every limit with its path, in the order of the file."""
        return ((path, part) for path, part in self.cited() if isinstance(part, Limit))

    def unknown_limits(self) -> list[tuple[KeyPath, Limit]]:
        """Return path and limit of everything marked ``?``."""
        return [(path, limit) for path, limit in self.limits() if not limit.is_documented]

    def assumptions(self) -> list[tuple[str, str]]:
        """Return path and value of every assumption that no document confirms."""
        assumptions = [
            (f"{block}.{key}", value_text(getattr(part, key)))
            for block, part in self.blocks()
            for key in part.assumed
        ]
        if not self.bias.is_documented:
            assumptions.append(("bias.dtype", self.bias.assume))
        unknown = [(path, limit) for path, limit in self.unknown_limits() if limit.assume]
        return assumptions + [(dotted(path), limit.assumed) for path, limit in unknown]

    def blocks(self) -> list[tuple[str, Block]]:
        """Return the three number formats by name."""
        named = {"activations": self.activations, "weights": self.weights, "bias": self.bias}
        return list(named.items())

    def cited(self) -> Iterator[tuple[KeyPath, Cited]]:
        """Yield every part that names a source, with its path, in the order of the file."""
        yield from _cited(("all_operators",), self.all_operators)
        for name, operator in self.operators.items():
            yield from _cited(("operators", name), operator)
        yield from (((name,), block) for name, block in self.blocks())
        yield ("activations", "zero_point"), self.activations.zero_point
        yield ("fused_activations",), self.fused_activations
        yield ("costs",), self.costs


def _cited(top: KeyPath, part: Demands) -> Iterator[tuple[KeyPath, Cited]]:
    groups: dict[KeyPath, dict[str, Limit]] = {(*top, "limits"): part.limits}
    if isinstance(part, ListedOperator):
        groups |= {(*top, "modes", mode): limits for mode, limits in part.modes.items()}
    for path, limits in groups.items():
        for name, limit in limits.items():
            yield (*path, name), limit
            if limit.native:
                yield (*path, name, "native"), limit.native
    yield from (((*top, "require", i), v) for i, v in enumerate(part.require))
