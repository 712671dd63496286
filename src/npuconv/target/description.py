"""The description of one NPU: what it can do, what nobody has written down, and who says so.

A target is a YAML file. Every limit of a chip lives there with its source; the code has
no branch for a particular chip. See ``targets/npu-int8.yaml`` for a real one and
``configs/targets/my_chip.yaml`` for one that uses everything.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.facts import FACTS, Mode, lookup
from npuconv.target.costs import Costs
from npuconv.target.formats import Activations, Bias, Block, Weights
from npuconv.target.limit import Cited, Limit, LimitField, Place, Strict
from npuconv.target.operators import canonical_domain
from npuconv.target.relation import Relation
from npuconv.target.semantics import semantic_problems
from npuconv.yamlio.check import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.facts import Facts
    from npuconv.yamlio import KeyPath

_FACT_KEYS: dict[str, Any] = {"propertyNames": {"enum": list(FACTS)}}


class Demands(Strict):
    """Limits and relations: what the device demands of every operator that is listed."""

    limits: dict[str, LimitField] = Field(
        default_factory=dict, description="fact -> limit", json_schema_extra=_FACT_KEYS
    )
    require: tuple[Relation, ...] = Field((), description="relations between facts")


class Operator(Demands):
    """Demands of the device on one operator. An operator that is listed is supported."""

    domain: str = Field("", description="operator domain; empty: ONNX's own")
    modes: dict[Mode, dict[str, LimitField]] = Field(
        default_factory=dict, description="limits that differ for one kind of convolution"
    )

    def beside(self, common: Demands) -> Operator:
        """Return this operator with the common demands added; its own limits take precedence."""
        limits = {**common.limits, **self.limits}
        return self.model_copy(
            update={"limits": limits, "require": (*common.require, *self.require)}
        )

    def limits_for(self, mode: str) -> dict[str, Limit]:
        """The limits of a node of this mode: those of the mode replace the general ones."""
        special = {str(name): limits for name, limits in self.modes.items()}
        return {**self.limits, **special.get(mode, {})}

    def objections(self, facts: Facts) -> list[str]:
        """Return, as text, the known limits and relations that a node with these facts breaks."""
        limits = self.limits_for(str(facts.get("mode", "plain")))
        beyond = [
            f"{name} is {shown(lookup(facts, name))}, the device takes {limit.text(facts)}"
            for name, limit in limits.items()
            if limit.allows(lookup(facts, name), facts) is False
        ]
        broken = [r for r in self.require if r.holds(facts) is False]
        return beyond + [f"{relation.text(facts)} does not hold" for relation in broken]


class Target(Strict):
    """Description of one NPU: operators, limits, number formats and costs."""

    schema_version: Literal[1] = Field(alias="schema", description="version of this format")
    name: str = Field(description="name of the target", min_length=1)
    version: str = Field("", description="version of the chip or of this description")
    description: str = Field("", description="what this is, for people")
    sources: dict[str, str] = Field(
        default_factory=dict, description="name -> the document that limits cite"
    )
    all_operators: Demands = Field(
        default_factory=lambda: Demands.model_validate({}),
        description="what the device demands of each operator below, unless that says otherwise",
    )
    operators: dict[str, Operator] = Field(description="operator -> what the device demands")
    activations: Activations
    weights: Weights
    bias: Bias = Field(default_factory=lambda: Bias.model_validate({}))
    fused_activations: LimitField = Field(
        default_factory=lambda: Limit.model_validate({"limit": "?"}),
        description="activations that a convolution can apply to its own output",
    )
    costs: Costs = Field(
        default_factory=lambda: Costs.model_validate({}),
        description="what one form of a rewrite is chosen over another by",
    )
    unlisted_operators: Literal["undocumented", "host", "error"] = Field(
        "undocumented", description="what an operator that is not listed is"
    )
    _file: str = PrivateAttr("")
    _text: str = PrivateAttr("")
    _whole: dict[str, Operator] = PrivateAttr(default_factory=dict)  # with all_operators

    @classmethod
    def load(cls, name_or_path: str | Path) -> Target:
        """A built-in target by name, or one from a YAML file.

        Raises:
            TargetError: no such target, or the file is wrong; with line and column.
        """
        if str(name_or_path) in builtin_names():
            return _builtin(str(name_or_path))
        return cls.from_document(read(name_or_path))

    @classmethod
    def from_document(cls, document: yamlio.Document) -> Target:
        """A target from YAML that has been read.

        Raises:
            TargetError: the first thing that is wrong, with line and column.
        """
        target = yamlio.validate(document, cls, error=TargetError)
        if found := semantic_problems(target, document):
            raise found[0]
        target._file, target._text = document.name, document.text
        for path, part in target.cited():
            line = document.mark(path)[0] if document.known(path) == path else 0
            part.locate(Place(document.name, dotted(path), line))
        return target

    @property
    def file(self) -> str:
        """Name of the built-in target, or the path as it was given."""
        return self._file

    @property
    def yaml(self) -> str:
        """The text of the file."""
        return self._text

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal."""
        return hashlib.sha256(self._text.encode("utf-8")).hexdigest()

    def operator(self, op_type: str, domain: str = "") -> Operator | None:
        """Return the demands on an operator; None if the target does not list it."""
        found = self.operators.get(op_type)
        if found is None or canonical_domain(found.domain) != canonical_domain(domain):
            return None
        whole = self._whole  # once: pydantic looks long for what is private
        if op_type not in whole:
            whole[op_type] = found.beside(self.all_operators)
        return whole[op_type]

    def citation(self, source: str) -> str:
        """The text behind ``notes/group``: its own entry, or that of ``notes`` and the part."""
        if source in self.sources:
            return self.sources[source]
        name, _, part = source.partition("/")
        text = self.sources.get(name, name)
        return f"{text}, {part}" if part else text

    def limits(self) -> Iterator[tuple[KeyPath, Limit]]:
        """Every limit with its path, in the order of the file."""
        return ((path, part) for path, part in self.cited() if isinstance(part, Limit))

    def unknown_limits(self) -> list[tuple[str, Limit]]:
        """Path and limit of everything marked ``?``."""
        return [(dotted(path), limit) for path, limit in self.limits() if not limit.known]

    def assumptions(self) -> list[tuple[str, str]]:
        """Path and value of what is taken as true though no document states it."""
        found = [
            (f"{block}.{key}", shown(getattr(part, key)))
            for block, part in self.blocks()
            for key in part.assumed
        ]
        if not self.bias.known:
            found.append(("bias.dtype", self.bias.assume))
        unknown = self.unknown_limits()
        return found + [(path, limit.assumed) for path, limit in unknown if limit.assume]

    def blocks(self) -> list[tuple[str, Block]]:
        """The three number formats by name."""
        named = {"activations": self.activations, "weights": self.weights, "bias": self.bias}
        return list(named.items())

    def cited(self) -> Iterator[tuple[KeyPath, Cited]]:
        """Every part that names a source, with its path, in the order of the file."""
        yield from _cited(("all_operators",), self.all_operators)
        for name, operator in self.operators.items():
            yield from _cited(("operators", name), operator)
        yield from (((name,), block) for name, block in self.blocks())
        yield ("activations", "zero_point"), self.activations.zero_point
        yield ("fused_activations",), self.fused_activations
        yield ("costs",), self.costs


def _cited(top: KeyPath, part: Demands) -> Iterator[tuple[KeyPath, Cited]]:
    yield from (((*top, "limits", k), v) for k, v in part.limits.items())
    for mode, limits in part.modes.items() if isinstance(part, Operator) else ():
        yield from (((*top, "modes", mode, k), v) for k, v in limits.items())
    yield from (((*top, "require", i), v) for i, v in enumerate(part.require))


def shown(value: object) -> str:
    """A value of a target file for people: a limit as its text, a pair as ``lo..hi``."""
    if isinstance(value, Limit):
        return value.text()
    if isinstance(value, tuple):
        return "..".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _builtin(name: str) -> Target:
    """Read a built-in target once: its file does not change, and nobody changes a target."""
    return Target.from_document(read(name))


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the targets that come with npuconv, sorted."""
    files = resources.files("npuconv.targets").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def read(name_or_path: str | Path) -> yamlio.Document:
    """The YAML of a built-in target by name, or of a file; its meaning is not checked.

    Raises:
        TargetError: no such target, unreadable, or not YAML.
    """
    name = str(name_or_path)
    if name in builtin_names():
        text = resources.files("npuconv.targets").joinpath(f"{name}.yaml").read_text("utf-8")
        return yamlio.loads(text, name=name, error=TargetError)
    if Path(name).suffix not in (".yaml", ".yml") and not Path(name).is_file():
        hint = yamlio.suggest(name, builtin_names()) or "or give a .yaml file"
        raise TargetError(f"unknown target {name!r}; known: {_known()}", hint=hint)
    return yamlio.load(name, error=TargetError)


def _known() -> str:
    return ", ".join(builtin_names())
