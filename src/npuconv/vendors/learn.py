"""Limits of a compiler, from its answers to models of one operator."""

from __future__ import annotations

import hashlib
import math
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npuconv.errors import UsageError
from npuconv.target import Target
from npuconv.target.limit import Limit
from npuconv.timings import Progress, silent
from npuconv.vendors.probes import BASES, LEARNABLE, OPERATORS, Case, case_of, facts_of, model_of
from npuconv.vendors.tool import Question, VendorTool, last_line, run_process
from npuconv.yamlio import KeyPath

Verdict = tuple[bool, str]  # whether the compiler takes a model, and its reason
Ask = Callable[[Sequence[tuple[bytes, Case]]], list[Verdict]]
_SMALL, _LARGE = BASES
_LISTED = 64  # largest value up to which all are asked if acceptance is not monotone
_CHUNK = 24  # models that are asked before the answers are stored
_PAIRED = ("kernel", "stride", "dilation")
SECONDS = 60  # limit for one model


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

    @property
    def name(self) -> str:
        """``Conv.depthwise.kernel_h``."""
        return ".".join(filter(None, (self.op, self.mode, self.fact)))

    def case(self, base: str, value: int) -> Case | None:
        """Return the operator with this value."""
        return case_of(self.op, self.mode, BASES[base], self.fact, value)

    @property
    def verdicts(self) -> dict[int, bool]:
        """Verdicts on the values that all base cases have answered, in order."""
        answered = [{v for b, v in self.answers if b == base} for base in self.bases]
        values = sorted(set.intersection(*answered))
        return {v: all(self.answers[base, v][0] for base in self.bases) for v in values}

    @property
    def accepted(self) -> list[int]:
        """The values that are accepted, in order."""
        return [value for value, is_accepted in self.verdicts.items() if is_accepted]

    @property
    def refused(self) -> list[int]:
        """The values that are refused, in order."""
        return [value for value, is_accepted in self.verdicts.items() if not is_accepted]

    def pending(self) -> list[tuple[str, int]]:
        """Return base case and value of the next questions; an empty list if all is answered."""
        if self.limit.is_documented:
            numbers = [v for v in self.limit.values if isinstance(v, int)]
            around = {n + step for n in numbers for step in (-1, 0, 1)}
            return self._askable((_SMALL, v) for v in around | set(self._grid()) if v >= self._low)
        questions = self._askable((base, v) for v in self._values() for base in self.bases)
        accepted, verdicts = self.accepted, self.verdicts
        if questions or len(self.bases) > 1 or not accepted:
            return questions
        middle = accepted[len(accepted) // 2]
        edges = {accepted[0] - 1, accepted[0], middle, accepted[-1], accepted[-1] + 1}
        checks = [(_LARGE, v) for v in sorted(edges & verdicts.keys())]
        questions = self._askable(checks)
        if not questions and any(
            self.answers[check][0] != verdicts[check[1]]
            for check in checks
            if check in self.answers
        ):
            self.bases = (_SMALL, _LARGE)  # these differ: both have to accept
            questions = self._askable((_LARGE, v) for v in verdicts)
        return questions

    def _askable(self, questions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        return [q for q in questions if q not in self.answers and self.case(*q) is not None]

    @property
    def _low(self) -> int:
        return 0 if self.fact.startswith("pad") or self.fact == "bias" else 1

    def _grid(self) -> list[int]:
        most = LEARNABLE[self.fact][1]
        powers = {1 << k for k in range(most.bit_length())}
        return sorted(v for v in {0, 3, *powers} if self._low <= v <= most)

    def _values(self) -> list[int]:
        """Return values that bisect the edges, or all small values between accepted and refused."""
        accepted, refused, most = self.accepted, self.refused, LEARNABLE[self.fact][1]
        if not accepted:
            return [] if refused else self._grid()
        first, last = accepted[0], accepted[-1]
        if any(first < v < last for v in refused):
            return [v for v in range(self._low, min(most, _LISTED) + 1) if v not in self.verdicts]
        below = max((v for v in refused if v < first), default=first)
        above = min((v for v in refused if v > last), default=last)
        edges = {
            a + (b - a) * k // 4 for a, b in ((below, first), (last, above)) for k in (1, 2, 3)
        }
        inside = {first + (last - first) * k // 5 for k in range(1, 5)}
        beyond = {above + above // 2} if above > last else set()
        asked = self.verdicts.keys()
        return sorted(edges - asked) or [v for v in sorted((inside | beyond) - asked) if v <= most]

    def predicate(self) -> dict[str, Any]:
        """Return the limit as a target file has it; empty if no value is accepted."""
        accepted, refused = self.accepted, self.refused
        if not accepted or self.fact == "bias":
            return {"one_of": [v == 1 for v in accepted]} if accepted else {}
        first, last = accepted[0], accepted[-1]
        if not any(first < v < last for v in refused):
            low = first if any(v < first for v in refused) else self._low
            return {"range": [low, last]} if any(v > last for v in refused) else {"min": low}
        divisor = math.gcd(*accepted)
        if divisor > 1 and not any(v % divisor == 0 for v in refused):
            return {"multiple_of": divisor}
        if not any(v.bit_count() == 1 for v in refused) and all(
            v.bit_count() == 1 for v in accepted
        ):
            return {"power_of_two": True}
        return {"one_of": accepted}

    def why(self) -> str:
        """Return the reason for people: the first refusal, or the largest value that was asked."""
        accepted, refused = self.accepted, self.refused
        if not accepted:
            return "no value is accepted"
        if not refused:
            return "" if self.fact == "bias" else f"{accepted[-1]} is the largest value asked"
        value = next((v for v in refused if v > accepted[0]), refused[-1])
        answers = [self.answers[base, value] for base in self.bases]
        reason = next(text for is_accepted, text in answers if not is_accepted)
        return f"{value}: {reason or 'refused'}"

    def contradictions(self) -> tuple[list[int], list[int]]:
        """Return values that the limit allows and the tool refuses, and the other way round."""
        too_lax, too_strict = list[int](), list[int]()
        for value, is_accepted in self.verdicts.items():
            case = self.case(_SMALL, value)
            allows = self.limit.allows(value, facts_of(case)) if case else None
            if allows is not None and allows != is_accepted:
                (too_strict if is_accepted else too_lax).append(value)
        return too_lax, too_strict


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
    """Questions to one compiler, each asked once.

    Attributes:
        ask: asks the compiler about models.
        is_quantized: whether the models have conversions to int8.
        stored: answers by digest of the model.
        store: called after each chunk of new answers.
        progress: called with the number of models, and of limits that are known.
    """

    ask: Ask
    is_quantized: bool
    stored: dict[str, Verdict]
    store: Callable[[], None] = lambda: None
    progress: Progress = silent

    def find_limits(self, limits: Sequence[Learnable]) -> None:
        """Ask until every limit is known; fills their answers."""
        while pending := [(item, question) for item in limits for question in item.pending()]:
            number = len(limits) - len({id(item) for item, _ in pending})
            self.progress(f"{len(self.stored)} models asked", number, len(limits))
            cases = [(item.op, item.case(*question)) for item, question in pending]
            for (item, question), verdict in zip(pending, self.verdicts(cases), strict=True):
                item.answers[question] = verdict

    def coupled(self, limits: Sequence[Learnable]) -> list[tuple[str, str]]:
        """Return pairs of height and width whose largest values are refused together."""
        open_limits = [item for item in limits if not item.limit.is_documented and item.accepted]
        largest = {item.path: item.accepted[-1] for item in open_limits}
        pairs = []
        for item in open_limits:
            name, _, side = item.fact.rpartition("_")
            width = (*item.path[:-1], f"{name}_w")
            if side == "h" and name in _PAIRED and width in largest:
                values = {item.fact: largest[item.path], f"{name}_w": largest[width]}
                case = case_of(item.op, item.mode, BASES[_SMALL] | values)
                (verdict,) = self.verdicts([(item.op, case)])
                text = ", ".join(f"{fact} {value}" for fact, value in values.items())
                pairs += [] if verdict[0] else [(f"{item.op} {text}", verdict[1])]
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
        names = list(models)
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            self.stored.update(zip(chunk, self.ask([models[n] for n in chunk]), strict=True))
            self.store()
        return [self.stored[digest] for digest in digests]


def ask_tool(tool: VendorTool, models: Sequence[tuple[bytes, Case]]) -> list[Verdict]:
    """Ask a vendor's tool, which quantizes float models with one sample."""
    calibrates = tool.vendor.name == "rknn"
    questions = []
    for data, case in models:
        shape = [case[f"in_{axis}"] for axis in "nchw"]
        sample = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
        feeds = [sample] if calibrates else []
        questions.append(Question(data, ["x"], feeds, calibrates=calibrates))
    replies = tool.ask(questions)[1]
    answers = [(r.verdict == "accepted", r.answer) for r in replies]
    return [(ok, a.message or next((la[3] for la in a.layers if la[3]), "")) for ok, a in answers]


def ask_command(command: str, models: Sequence[tuple[bytes, Case]]) -> list[Verdict]:
    """Run a command for each model; exit code 0: the compiler takes it.

    Raises:
        UsageError: the command has no ``{model}``, or does not start.
    """
    words = shlex.split(command)
    if not any("{model}" in word for word in words):
        raise UsageError("--command has no {model}", hint="as in --command 'my_compiler {model}'")
    verdicts = []
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
            verdicts.append((status == 0, reason))
    return verdicts
