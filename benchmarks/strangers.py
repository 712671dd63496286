"""Every hostile case through check, convert and batch: what came out, at which cost.

python benchmarks/strangers.py              # all, as a table for docs/robustness.md
python benchmarks/strangers.py --every 25   # a slice
python benchmarks/strangers.py bomb/ name/  # those whose names hold one of these
python benchmarks/strangers.py check:bomb/  # the same, by one command

The exit code is 1 if anything that docs/robustness.md promises did not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from hostile import corpus, driver, verdict
from hostile.case import COMMANDS, Case

MIB = 2**20
_COMMANDS = (*COMMANDS, "verify", "run")  # for files of labels, for folders of split
HEAD = ("family", "cases", "runs", "exit 0", "exit 1", "exit 2", "faults", "peak MiB", "longest s")


def main() -> int:
    """Run, print a table, and what went wrong."""
    chosen = _arguments()
    names = [_parse(name) for name in chosen.names]
    cases = [case for case in corpus.corpus() if _is_wanted(case, "", names)][:: chosen.every]
    work = [
        (case, command)
        for case in cases
        for command in chosen.commands
        if command in case.commands and _is_wanted(case, command, names)
    ]
    rows: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    wrong: list[str] = []
    for ran in driver.run_all(work, at_once=chosen.jobs):
        rows[ran.case.family].append((ran.status, ran.peak, ran.seconds))
        found = [f"{ran.case.name}, {ran.command}: {fault}" for fault in verdict.faults(ran)]
        wrong += found
        for line in found:
            print(f"{line} | {ran.err.strip()[-300:]!r}", file=sys.stderr, flush=True)
    print(_table(cases, rows, wrong))
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="[COMMAND:]part of a name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth case only")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once")
    parser.add_argument("--commands", nargs="+", choices=_COMMANDS, default=_COMMANDS)
    return parser.parse_args()


def _parse(name: str) -> tuple[str, str]:
    """Return the command, or none, and the part of a name."""
    command, _, part = name.rpartition(":")
    return command, part


def _is_wanted(case: Case, command: str, names: list[tuple[str, str]]) -> bool:
    """Return whether a command, or any if it is empty, is to run on a case."""
    return not names or any(
        part in case.name and (not only or command in ("", only)) for only, part in names
    )


def _table(
    cases: list[Case], rows: dict[str, list[tuple[int, int, float]]], wrong: list[str]
) -> str:
    counts = Counter(case.family for case in cases)
    lines = [_line(HEAD), _line(["---", *["---:"] * (len(HEAD) - 1)])]
    for family, ran in rows.items():
        bad = sum(one.startswith(f"{family}/") for one in wrong)
        lines.append(_line(_cells(family, counts[family], ran, bad)))
    every = [one for ran in rows.values() for one in ran]
    return "\n".join([*lines, _line(_cells("all", len(cases), every, len(wrong)))])


def _cells(name: str, cases: int, ran: list[tuple[int, int, float]], bad: int) -> list[str]:
    codes = Counter(status for status, _, _ in ran)
    peak = max((peak for _, peak, _ in ran), default=0)
    longest = max((seconds for _, _, seconds in ran), default=0.0)
    numbers = [cases, len(ran), *(codes[code] for code in verdict.CODES), bad, peak // MIB]
    return [name, *map(str, numbers), f"{longest:.1f}"]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
