"""Do check and convert end alike? Random odd models with random options, through both.

python tools/same_verdicts.py                    # 2,000 of them
python tools/same_verdicts.py --cases 1 --first 1234

Prints every case of which they say something else, by its number; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    """Run the cases, some at a time."""
    chosen = _arguments()
    numbers = range(chosen.first, chosen.first + chosen.cases)
    kinds: Counter[str] = Counter()
    spawning = multiprocessing.get_context("spawn")  # a fork would share a runtime's threads
    with ProcessPoolExecutor(chosen.jobs, mp_context=spawning) as pool:
        for number, (kind, text) in zip(numbers, pool.map(_run, numbers), strict=True):
            kinds[kind] += 1
            if text:
                print(f"case {number}: {text}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    return 1 if kinds["different"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _run(number: int) -> tuple[str, str]:
    """Run one; a kind, and what is different."""
    from support.odd_models import odd_case
    from support.verdicts import disagreement

    warnings.simplefilter("ignore")
    case = odd_case(number)
    end, text = disagreement(case)
    shown = {key: value for key, value in case.options.items() if key != "calibration"}
    if text:
        nodes = " ".join(node.op_type for node in case.model.graph.node)
        return "different", f"{text}\n    {nodes}; {shown}"
    return f"that end with {end.code}", ""


if __name__ == "__main__":
    sys.exit(main())
