"""Robustness: hostile files, mutated files, odd models, kills, and models of gigabytes.

    python benchmarks/robustness.py hostile   # every hostile file through every command
    python benchmarks/robustness.py fuzz      # mutated files for every loader
    python benchmarks/robustness.py models    # odd models: do check and convert end alike
    python benchmarks/robustness.py networks  # random networks for random devices
    python benchmarks/robustness.py kills     # kills in the middle of convert and batch
    python benchmarks/robustness.py size      # memory for a model of 3 GB

Each command has --help. The exit code is 1 if anything that CONTRIBUTING.md promises did not
hold. ``hostile`` takes names: ``bomb/`` runs the cases whose names hold that, ``check:bomb/`` the
same by one command, ``--every 25`` a slice.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

from harness import commands, fuzz, kills, odd_models, size

sys.path.insert(0, str(commands.ROOT / "tests"))

from hostile import corpus, driver, verdict
from hostile.case import COMMANDS, Case

MIB = 2**20
_COMMANDS = (*COMMANDS, "verify", "run")  # verify reads labels, run reads folders of split
HEAD = ("family", "cases", "runs", "exit 0", "exit 1", "exit 2", "faults", "peak MiB", "longest s")


def run_hostile(arguments: list[str]) -> int:
    """Run the hostile cases, print a row for each family, and what went wrong."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("names", nargs="*", help="[COMMAND:]part of a name")
    add("--every", type=int, default=1, metavar="N", help="each Nth case only")
    add("--jobs", type=int, default=2, metavar="N", help="processes at once")
    add("--commands", nargs="+", choices=_COMMANDS, default=_COMMANDS)
    options = parser.parse_args(arguments)
    parts = [name.rpartition(":")[::2] for name in options.names]
    cases = [case for case in corpus.corpus() if _is_chosen(case, "", parts)][:: options.every]
    work = [
        (case, command)
        for case in cases
        for command in options.commands
        if command in case.commands and _is_chosen(case, command, parts)
    ]
    rows: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    wrong: list[str] = []
    for ran in driver.run_all(work, at_once=options.jobs):
        rows[ran.case.family].append((ran.status, ran.peak, ran.seconds))
        for fault in verdict.faults(ran):
            wrong.append(f"{ran.case.name}, {ran.command}: {fault}")
            print(f"{wrong[-1]} | {ran.err.strip()[-300:]!r}", file=sys.stderr, flush=True)
    counts = Counter(case.family for case in cases)
    print(_line(HEAD), _line(["---", *["---:"] * (len(HEAD) - 1)]), sep="\n")
    for family, runs in rows.items():
        faults = sum(text.startswith(f"{family}/") for text in wrong)
        print(_row(family, counts[family], runs, faults))
    print(_row("all", len(cases), [run for runs in rows.values() for run in runs], len(wrong)))
    return 1 if wrong else 0


def _is_chosen(case: Case, command: str, parts: list[tuple[str, str]]) -> bool:
    """Return whether a command, or any if it is empty, is to run on a case."""
    return not parts or any(
        part in case.name and (not only or command in ("", only)) for only, part in parts
    )


def _row(name: str, cases: int, runs: list[tuple[int, int, float]], faults: int) -> str:
    codes = Counter(status for status, _, _ in runs)
    peak = max((peak for _, peak, _ in runs), default=0)
    longest = max((seconds for _, _, seconds in runs), default=0.0)
    numbers = [cases, len(runs), *(codes[code] for code in verdict.CODES), faults, peak // MIB]
    return _line([name, *map(str, numbers), f"{longest:.1f}"])


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    families = {"models": odd_models.run_models, "networks": odd_models.run_networks}
    sys.exit(
        commands.run(
            __doc__,
            {
                "hostile": run_hostile,
                "fuzz": fuzz.main,
                **families,
                "kills": kills.main,
                "size": size.main,
            },
        )
    )
