"""Do check and convert end alike, and is what they make right? Random models through both.

python tools/odd_cases.py models                # odd models, many of them invalid
python tools/odd_cases.py networks --cases 500  # networks of all that devices compute
python tools/odd_cases.py networks --cases 1 --first 1234

Prints every case of which something is wrong, by its number; the exit code is 1 then.
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

if TYPE_CHECKING:
    import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
Verdict = tuple[str, str]


def main() -> int:
    """Run the cases, some at a time."""
    chosen = _arguments()
    numbers = range(chosen.first, chosen.first + chosen.cases)
    kinds: Counter[str] = Counter()
    wrong = 0
    spawning = multiprocessing.get_context("spawn")  # a fork would share a runtime's threads
    with ProcessPoolExecutor(chosen.jobs, mp_context=spawning) as pool:
        verdicts = pool.map(FAMILIES[chosen.family], numbers)
        for number, (kind, text) in zip(numbers, verdicts, strict=True):
            kinds[kind] += 1
            wrong += bool(text)
            if text:
                print(f"case {number}: {text}", flush=True)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{counts}; {wrong} wrong")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _model(number: int) -> Verdict:
    """Run a model; a kind, and what is different."""
    from support.odd_models import odd_case
    from support.verdicts import disagreement

    warnings.simplefilter("ignore")
    case = odd_case(number)
    end, text = disagreement(case)
    return f"end with {end.code}", _described(text, case.model, case.options)


def _network(number: int) -> Verdict:
    """Run a network; a kind, and what is wrong."""
    from support.network_verdicts import faults
    from support.odd_networks import odd_network

    warnings.simplefilter("ignore")
    case = odd_network(number)
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind, found = faults(case, Path(folder))
        except Exception:  # a bug of whatever kind is what is looked for
            kind, found = "broken", [traceback.format_exc(limit=-4)]
    return kind, _described("; ".join(found), case.model, case.options)


def _described(text: str, model: onnx.ModelProto, options: dict[str, object]) -> str:
    """Add to a fault of what it is."""
    shown = {key: value for key, value in options.items() if key != "calibration"}
    nodes = " ".join(node.op_type for node in model.graph.node)
    return f"{text}\n    {nodes}\n    {shown}" if text else ""


FAMILIES: dict[str, Callable[[int], Verdict]] = {"models": _model, "networks": _network}

if __name__ == "__main__":
    sys.exit(main())
