"""Limits of a compiler, from its answers to models of one operator."""

from __future__ import annotations

import hashlib
import math
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npuconv.errors import UsageError
from npuconv.records import dataclass, field
from npuconv.target import Target
from npuconv.target.facts import FACTS
from npuconv.target.limit import Limit
from npuconv.timings import Progress, silent
from npuconv.vendors.probes import BASES, LEARNABLE, OPERATORS, Case, case_of, model_of
from npuconv.vendors.tool import Question, Reply, VendorTool, last_line, run_process
from npuconv.yamlio import KeyPath

Ask = Callable[[Sequence[tuple[bytes, Case]]], Iterable["Verdict"]]
_SMALL, _LARGE = BASES
_LISTED = 64  # largest value up to which all are asked if acceptance is not monotone
_CHUNK = 24  # models that one process of a tool answers
_PAIRED = ("kernel", "stride", "dilation")
_CONVERSION = "exDataConvert"  # layer of RKNN between element types, and no part of an operator
SECONDS = 60  # limit for one model


class Verdict(NamedTuple):
    """Answer of the compiler to one model."""

    is_accepted: bool
    reason: str = ""  # reason of a refusal
    layers: str = ""  # layers of an accepted model, if the compiler makes several of the operator


@dataclass(frozen=True)
class Level:
    """Values of one fact that the compiler takes, or that the hardware takes in one layer."""

    fact: str
    refusals: Mapping[int, str | None]  # reason by value, in order; None if it is accepted

    @property
    def accepted(self) -> list[int]:
        """The values that are accepted, in order."""
        return [value for value, reason in self.refusals.items() if reason is None]

    @property
    def refused(self) -> list[int]:
        """The values that are refused, in order."""
        return [value for value, reason in self.refusals.items() if reason is not None]

    def edges(self) -> set[int]:
        """Return the accepted and refused values at both edges, and an accepted one between."""
        accepted = self.accepted
        if not accepted:
            return set()
        first, last = accepted[0], accepted[-1]
        values = {first - 1, first, accepted[len(accepted) // 2], last, last + 1}
        return values & self.refusals.keys()

    def next_values(self) -> list[int]:
        """Return values that bisect the edges, or all small values between accepted and refused."""
        accepted, refused, most = self.accepted, self.refused, LEARNABLE[self.fact][1]
        if not accepted:
            return [] if refused else powers(self.fact)
        first, last = accepted[0], accepted[-1]
        if any(first < v < last for v in refused):
            values = range(FACTS[self.fact].least, min(most, _LISTED) + 1)
            return [v for v in values if v not in self.refusals]
        below = max((v for v in refused if v < first), default=first)
        above = min((v for v in refused if v > last), default=last)
        edges = {
            a + (b - a) * k // 4 for a, b in ((below, first), (last, above)) for k in (1, 2, 3)
        }
        inside = {first + (last - first) * k // 5 for k in range(1, 5)}
        beyond = {above + above // 2} if above > last else set()
        asked = self.refusals.keys()
        return sorted(edges - asked) or [v for v in sorted((inside | beyond) - asked) if v <= most]

    def predicate(self) -> dict[str, Any]:
        """Return the values as a target file has them; empty if none is accepted."""
        accepted, refused = self.accepted, self.refused
        if not accepted or self.fact == "bias":
            return {"one_of": [v == 1 for v in accepted]} if accepted else {}
        first, last = accepted[0], accepted[-1]
        if not any(first < v < last for v in refused):
            low = first if any(v < first for v in refused) else FACTS[self.fact].least
            return {"range": [low, last]} if any(v > last for v in refused) else {"min": low}
        divisor = math.gcd(*accepted)
        if divisor > 1 and accepted == [v for v in self.refusals if v % divisor == 0]:
            return {"multiple_of": divisor}
        if accepted == [v for v in self.refusals if v.bit_count() == 1]:
            return {"power_of_two": True}
        return {"one_of": accepted}

    def why(self) -> str:
        """Return the reason for people: the first refusal, or the largest value that was asked."""
        accepted, refused = self.accepted, self.refused
        if not accepted:
            reason = next(filter(None, self.refusals.values()), "")
            return ": ".join(filter(None, ("no value is accepted", reason)))
        if not refused:
            return "" if self.fact == "bias" else f"{accepted[-1]} is the largest value asked"
        value = next((v for v in refused if v > accepted[0]), refused[-1])
        return f"{value}: {self.refusals[value] or 'refused'}"

    def entry(self, source: str) -> dict[str, Any]:
        """Return the limit as a target file has it; empty if no value is accepted."""
        why = {"why": self.why()} if self.why() else {}
        return {**self.predicate(), "source": source, **why} if self.accepted else {}


@dataclass
class Learnable:
    """One limit of a target file that models of one operator can ask for."""

    path: KeyPath
    limit: Limit
    op: str
    mode: str
    answers: dict[tuple[str, int], Verdict] = field(default_factory=dict)  # by base and value
    bases: tuple[str, ...] = (_SMALL,)  # base cases in which all values are asked

    @property
    def fact(self) -> str:
        """Name of the fact."""
        return str(self.path[-1])

    def title(self, level: str) -> str:
        """``Conv.depthwise.kernel_h``, or ``Conv.depthwise.kernel_h native``."""
        name = ".".join(filter(None, (self.op, self.mode, self.fact)))
        return name if level == "limit" else f"{name} {level}"

    def case(self, base: str, value: int) -> Case | None:
        """Return the operator with this value."""
        return case_of(self.op, self.mode, BASES[base], self.fact, value)

    @property
    def levels(self) -> dict[str, Level]:
        """``limit``: values that the compiler takes; ``native``: those in one layer, if fewer."""
        answered = [{v for b, v in self.answers if b == base} for base in self.bases]
        compiler, hardware = dict[int, str | None](), dict[int, str | None]()
        for value in sorted(set.intersection(*answered)):
            verdicts = [self.answers[base, value] for base in self.bases]
            compiler[value] = next((v.reason for v in verdicts if not v.is_accepted), None)
            hardware[value] = next((v.layers for v in verdicts if v.layers), compiler[value])
        levels = {"limit": Level(self.fact, compiler), "native": Level(self.fact, hardware)}
        return levels if hardware != compiler else {"limit": levels["limit"]}

    def pending(self) -> list[tuple[str, int]]:
        """Return base case and value of the next questions; an empty list if all is answered."""
        if self.limit.is_documented:
            limits = filter(None, (self.limit, self.limit.native))
            numbers = [v for limit in limits for v in limit.values if type(v) is int]  # no flag
            around = {n + step for n in numbers for step in (-1, 0, 1)} | set(powers(self.fact))
            return self._askable(_SMALL, (v for v in around if v >= FACTS[self.fact].least))
        levels = self.levels
        values = {value for level in levels.values() for value in level.next_values()}
        questions = [q for base in self.bases for q in self._askable(base, values)]
        if questions or len(self.bases) > 1:
            return questions
        edges = set[int]().union(*(level.edges() for level in levels.values()))
        questions = self._askable(_LARGE, edges)
        pairs = [(self.answers[_SMALL, v], self.answers.get((_LARGE, v))) for v in edges]
        if not questions and any(
            large and (small.is_accepted, not small.layers) != (large.is_accepted, not large.layers)
            for small, large in pairs
        ):
            self.bases = (_SMALL, _LARGE)  # these differ: both have to accept
            questions = self._askable(_LARGE, levels["limit"].refusals)
        return questions

    def _askable(self, base: str, values: Iterable[int]) -> list[tuple[str, int]]:
        questions = [(base, value) for value in sorted(values)]
        return [q for q in questions if q not in self.answers and self.case(*q) is not None]

    def entry(self, source: str) -> dict[str, Any]:
        """Return the limit as a target file has it; empty if no value is accepted."""
        entries = {name: level.entry(source) for name, level in self.levels.items()}
        native = {"native": entries["native"]} if entries.get("native") else {}
        return entries["limit"] | native if entries["limit"] else {}

    def contradictions(self) -> Iterator[tuple[str, str, list[int], list[int]]]:
        """Yield a limit, its text, the values that it allows and the tool refuses, and others."""
        kind = bool if FACTS[self.fact].kind == "bool" else int
        for name, level in self.levels.items():
            if limit := self.limit if name == "limit" else self.limit.native:
                allowed = [v for v in level.refusals if limit.allows(kind(v), {})]
                too_lax = [v for v in level.refused if v in allowed]
                too_strict = [v for v in level.accepted if v not in allowed]
                if too_lax or too_strict:
                    yield self.title(name), limit.text(), too_lax, too_strict


def powers(fact: str) -> list[int]:
    """Return the values that are asked first: powers of two, 3, and 0 where it has a meaning."""
    most = LEARNABLE[fact][1]
    values = {0, 3, *(1 << k for k in range(most.bit_length()))}
    return sorted(v for v in values if FACTS[fact].least <= v <= most)


def learnables(target: Target) -> list[Learnable]:
    """Return the limits of a target file that can be asked for, in its order."""
    limits = []
    for path, limit in target.limits():
        op = "Conv" if path[0] == "all_operators" else str(path[1] if len(path) > 1 else "")
        mode = str(path[3]) if "modes" in path else ""
        fact = str(path[-1])
        is_number = not limit.is_documented or all(isinstance(v, int) for v in limit.values)
        if op in OPERATORS and fact in LEARNABLE and is_number:
            item = Learnable(path, limit, op, mode)
            if case_of(op, mode, BASES[_SMALL], fact, 1) or fact.startswith("in_"):
                limits.append(item)
    return limits


@dataclass
class Survey:
    """Questions to one compiler, each asked once."""

    ask: Ask
    is_quantized: bool  # whether the models have conversions to int8
    stored: dict[str, Verdict]  # answers by digest of the model
    store: Callable[[], None] = lambda: None  # called after each new answer
    progress: Progress = silent
    counts: tuple[int, int] = (0, 0)  # number of limits that are known, and of all

    def find_limits(self, limits: Sequence[Learnable]) -> None:
        """Ask until every limit is known; fills their answers."""
        while pending := [(item, question) for item in limits for question in item.pending()]:
            self.counts = len(limits) - len({id(item) for item, _ in pending}), len(limits)
            self.progress("asking", *self.counts)
            cases = [(item.op, item.case(*question)) for item, question in pending]
            for (item, question), verdict in zip(pending, self.verdicts(cases), strict=True):
                item.answers[question] = verdict

    def coupled(self, limits: Sequence[Learnable]) -> list[tuple[str, str]]:
        """Return pairs of height and width whose largest values are refused together."""
        largest = {
            item.path: accepted[-1]
            for item in limits
            if not item.limit.is_documented and (accepted := item.levels["limit"].accepted)
        }
        pairs = []
        for item in limits:
            name, _, side = item.fact.rpartition("_")
            width = (*item.path[:-1], f"{name}_w")
            if side == "h" and name in _PAIRED and {item.path, width} <= largest.keys():
                values = {item.fact: largest[item.path], f"{name}_w": largest[width]}
                case = case_of(item.op, item.mode, BASES[_SMALL] | values)
                (verdict,) = self.verdicts([(item.op, case)])
                text = ", ".join(f"{fact} {value}" for fact, value in values.items())
                pairs += [] if verdict.is_accepted else [(f"{item.op} {text}", verdict.reason)]
        return pairs

    def verdicts(self, cases: Sequence[tuple[str, Case | None]]) -> list[Verdict]:
        """Return the answers on operators; stored answers are not asked for again."""
        models: dict[str, tuple[bytes, Case]] = {}
        digests = []
        for op, case in cases:
            assert case is not None
            data = model_of(op, case, is_quantized=self.is_quantized)
            digests.append(hashlib.sha256(data).hexdigest()[:24])
            if digests[-1] not in self.stored:
                models[digests[-1]] = data, case
        for digest, verdict in zip(models, self.ask(list(models.values())), strict=True):
            self.stored[digest] = verdict
            self.store()
            self.progress(f"{len(self.stored)} models asked", *self.counts)
        return [self.stored[digest] for digest in digests]


def ask_tool(
    tool: VendorTool, models: Sequence[tuple[bytes, Case]], *, is_quantized: bool
) -> Iterator[Verdict]:
    """Ask a vendor's tool, which quantizes float models with one sample."""
    for start in range(0, len(models), _CHUNK):
        questions = []
        for data, case in models[start : start + _CHUNK]:
            shape = [case[f"in_{axis}"] for axis in "nchw"]
            sample = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            feeds = [] if is_quantized else [{"x": sample}]
            questions.append(Question(data, ["x"], feeds, calibrates=not is_quantized))
        yield from map(verdict_of, tool.ask(questions)[1])


def verdict_of(reply: Reply) -> Verdict:
    """Return the verdict of a tool: an operator with a layer on the processor is refused."""
    answer = reply.answer
    layers = [(op, device, why) for _, op, device, why in answer.layers if op != _CONVERSION]
    on_host = [why or f"{op} on the CPU" for op, device, why in layers if device == "CPU"]
    if reply.verdict == "accepted" and not on_host:
        numbers = Counter(op for op, *_ in layers)
        texts = [op if number == 1 else f"{number} {op}" for op, number in numbers.items()]
        return Verdict(True, layers=", ".join(texts) if len(layers) > 1 else "")
    return Verdict(False, answer.message or next(iter(on_host), ""))


def ask_command(command: str, models: Sequence[tuple[bytes, Case]]) -> Iterator[Verdict]:
    """Run a command for each model; exit code 0: the compiler takes it.

    Raises:
        UsageError: the command has no ``{model}``, lacks a quote, or does not start.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command {command}: {error}") from None
    if not any("{model}" in word for word in words):
        raise UsageError("--command has no {model}", hint="as in --command 'my_compiler {model}'")
    for data, _ in models:
        with tempfile.TemporaryDirectory(prefix="npuconv-", ignore_cleanup_errors=True) as name:
            file, log = Path(name) / "model.onnx", Path(name) / "log"
            file.write_bytes(data)
            try:
                arguments = [word.replace("{model}", str(file)) for word in words]
                status = run_process(arguments, Path(), log, SECONDS)
            except OSError as error:
                raise UsageError(f"--command: {words[0]}: {error.strerror}") from None
            reason = last_line(log).replace(name, "")
            if status is None or status < 0:
                reason = f"took over {SECONDS} s" if status is None else f"signal {-status}"
        yield Verdict(status == 0, "" if status == 0 else reason)
