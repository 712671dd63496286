"""Limits of a compiler, from its answers to models of one operator."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import signal
import subprocess
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
from npuconv.vendors.tool import Question, VendorTool
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

    def case(self, base: str, value: int) -> Case | None:
        """Return the operator with this value."""
        return case_of(self.op, self.mode, BASES[base], self.fact, value)

    @property
    def verdicts(self) -> dict[int, bool]:
        """Values that all base cases have answered, in order."""
        answered = [{v for b, v in self.answers if b == base} for base in self.bases]
        values = sorted(set.intersection(*answered))
        return {v: all(self.answers[base, v][0] for base in self.bases) for v in values}

    def pending(self) -> list[tuple[str, int]]:
        """Return the next questions; an empty list if the limit is known."""
        if self.limit.is_documented:
            numbers = [v for v in self.limit.values if isinstance(v, int)]
            around = {n + step for n in numbers for step in (-1, 0, 1)}
            return self._askable((_SMALL, v) for v in around | set(self._grid()) if v >= self._low)
        questions = self._askable((base, v) for v in self._values() for base in self.bases)
        verdicts = self.verdicts
        accepted = [v for v, is_taken in verdicts.items() if is_taken]
        if questions or len(self.bases) > 1 or not accepted:
            return questions
        middle = accepted[len(accepted) // 2]
        edges = {accepted[0] - 1, accepted[0], middle, accepted[-1], accepted[-1] + 1}
        checks = [(_LARGE, v) for v in sorted(edges & verdicts.keys())]
        if questions := self._askable(checks):
            return questions
        if any(self.answers.get(q, (verdicts[q[1]],))[0] != verdicts[q[1]] for q in checks):
            self.bases = (_SMALL, _LARGE)  # these differ: both have to accept
            return self._askable((_LARGE, v) for v in verdicts)
        return []

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
        """Return values that bisect the edges; all small ones if acceptance is no interval."""
        verdicts, most = self.verdicts, LEARNABLE[self.fact][1]
        if not verdicts:
            return self._grid()
        values = list(verdicts)
        accepted = [v for v in values if verdicts[v]]
        if not accepted:
            return []
        first, last = accepted[0], accepted[-1]
        if not all(verdicts[v] for v in values if first <= v <= last):
            return [v for v in range(self._low, min(most, _LISTED) + 1) if v not in verdicts]
        below = max((v for v in values if v < first), default=first)
        above = min((v for v in values if v > last), default=last)
        bisected = {
            lo + (hi - lo) * k // 4 for lo, hi in ((below, first), (last, above)) for k in (1, 2, 3)
        }
        inside = {first + (last - first) * k // 5 for k in range(1, 5)}
        beyond = {above + above // 2} if above > last else set()
        found = sorted(v for v in bisected - set(values) if below < v < above)
        return found or sorted(v for v in (inside | beyond) - set(values) if v <= most)

    def predicate(self) -> dict[str, Any]:
        """Return the limit as a target file has it; empty if no value is accepted."""
        verdicts = self.verdicts
        accepted = [v for v, is_taken in verdicts.items() if is_taken]
        if not accepted:
            return {}
        if self.fact == "bias":
            return {"one_of": [v == 1 for v in accepted]}
        refused = [v for v in verdicts if v not in accepted]
        if all(v < accepted[0] or v > accepted[-1] for v in refused):
            low = accepted[0] if any(v < accepted[0] for v in refused) else self._low
            is_bounded = any(v > accepted[-1] for v in refused)
            return {"range": [low, accepted[-1]]} if is_bounded else {"min": low}
        divisor = math.gcd(*accepted)
        if divisor > 1 and all((v % divisor == 0) == taken for v, taken in verdicts.items()):
            return {"multiple_of": divisor}
        if all((v > 0 and v & (v - 1) == 0) == taken for v, taken in verdicts.items()):
            return {"power_of_two": True}
        return {"one_of": accepted}

    def why(self) -> str:
        """Return the reason for people: the first refusal, or the largest value that was asked."""
        verdicts = self.verdicts
        accepted = [v for v, is_taken in verdicts.items() if is_taken]
        refused = [v for v in verdicts if v not in accepted]
        if not accepted:
            return "no value is accepted"
        if not refused:
            return "" if self.fact == "bias" else f"{accepted[-1]} is the largest value asked"
        value = next((v for v in refused if v > accepted[0]), refused[-1])
        answers = (self.answers[base, value] for base in self.bases)
        return f"{value}: {next(text for is_taken, text in answers if not is_taken) or 'refused'}"

    @property
    def name(self) -> str:
        """``Conv.depthwise.kernel_h``."""
        return ".".join(filter(None, (self.op, self.mode, self.fact)))

    def contradictions(self) -> tuple[list[int], list[int]]:
        """Return values that the limit allows and the tool refuses, and the other way round."""
        too_lax, too_strict = list[int](), list[int]()
        for value, is_taken in self.verdicts.items():
            case = self.case(_SMALL, value)
            allowed = self.limit.allows(value, facts_of(case)) if case else None
            if allowed is not None and allowed != is_taken:
                (too_strict if is_taken else too_lax).append(value)
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
            known = len(limits) - len({id(item) for item, _ in pending})
            self.progress(f"{len(self.stored)} models asked", known, len(limits))
            cases = [(item.op, item.case(*question)) for item, question in pending]
            for (item, question), verdict in zip(pending, self.verdicts(cases), strict=True):
                item.answers[question] = verdict

    def coupled(self, limits: Sequence[Learnable]) -> list[tuple[str, str]]:
        """Return pairs of height and width whose largest values are refused together."""
        largest = {
            item.path: max(value for value, is_taken in item.verdicts.items() if is_taken)
            for item in limits
            if not item.limit.is_documented and any(item.verdicts.values())
        }
        pairs = []
        for item in limits:
            name, _, side = item.fact.rpartition("_")
            paths = item.path, (*item.path[:-1], f"{name}_w")
            if side == "h" and name in _PAIRED and set(paths) <= largest.keys():
                values = {str(path[-1]): largest[path] for path in paths}
                case = case_of(item.op, item.mode, BASES[_SMALL] | values)
                (verdict,) = self.verdicts([(item.op, case)])
                text = ", ".join(f"{fact} {value}" for fact, value in values.items())
                pairs += [] if verdict[0] else [(f"{item.op} {text}", verdict[1])]
        return pairs

    def verdicts(self, cases: Sequence[tuple[str, Case | None]]) -> list[Verdict]:
        """Return the answers on operators, those that are stored without asking again."""
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
        questions.append(Question(data, ["x"], feeds, keys={"calibrates": calibrates}))
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
                with log.open("wb") as stream:
                    process = subprocess.Popen(
                        [word.replace("{model}", str(file)) for word in words],
                        stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                        start_new_session=True,
                    )  # fmt: skip
                status: int | None = process.wait(SECONDS)
            except OSError as error:
                raise UsageError(f"--command: {words[0]}: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            lines = log.read_text("utf-8", "replace")[-4096:].split("\n")
            last = next((li.strip() for li in reversed(lines) if li.strip()), "")
            reason = last.replace(name, "")[:200]
            if status is None or status < 0:
                reason = f"took over {SECONDS} s" if status is None else f"signal {-status}"
            verdicts.append((status == 0, reason))
    return verdicts
