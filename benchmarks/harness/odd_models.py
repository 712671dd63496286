"""Random models through check and convert: do both end alike, and is the result right.

Every case that has a fault is printed by its number: ``--cases 1 --first NUMBER`` repeats it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import ROOT

if TYPE_CHECKING:
    import onnx

sys.path.insert(0, str(ROOT / "tests"))
Verdict = tuple[str, str]


def run_models(arguments: list[str]) -> int:
    """Run odd models, many of them invalid; the exit code is 1 if something is wrong."""
    return _run(_model, arguments)


def run_networks(arguments: list[str]) -> int:
    """Run valid networks of everything that devices compute."""
    return _run(_network, arguments)


def _run(judge: Callable[[int], Verdict], arguments: list[str]) -> int:
    """Run the cases, some at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.cases)
    kinds: Counter[str] = Counter()
    wrong = 0
    spawning = multiprocessing.get_context("spawn")  # a fork would share a runtime's threads
    with ProcessPoolExecutor(options.jobs, mp_context=spawning) as pool:
        for number, (kind, text) in zip(numbers, pool.map(judge, numbers), strict=True):
            kinds[kind] += 1
            wrong += bool(text)
            if text:
                print(f"case {number}: {text}", flush=True)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{counts}; {wrong} wrong")
    return 1 if wrong else 0


def _model(number: int) -> Verdict:
    """Run a model; return a kind, and a difference between the commands."""
    from support.odd_models import odd_case
    from support.verdicts import disagreement

    warnings.simplefilter("ignore")
    case = odd_case(number)
    end, text = disagreement(case)
    return f"end with {end.code}", _described(text, case.model, case.options)


def _network(number: int) -> Verdict:
    """Run a network; return a kind, and faults."""
    from support.odd_networks import odd_network
    from support.verdicts import faults

    warnings.simplefilter("ignore")
    case = odd_network(number)
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind, texts = faults(case, Path(folder))
        except Exception:  # a bug of whatever kind is what is looked for
            kind, texts = "broken", [traceback.format_exc(limit=-4)]
    return kind, _described("; ".join(texts), case.model, case.options)


def _described(text: str, model: onnx.ModelProto, options: dict[str, object]) -> str:
    """Add the nodes and options of the case to the text of a fault."""
    chosen_options = {key: value for key, value in options.items() if key != "calibration"}
    nodes = " ".join(node.op_type for node in model.graph.node)
    return f"{text}\n    {nodes}\n    {chosen_options}" if text else ""
