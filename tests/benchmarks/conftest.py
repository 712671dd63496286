"""The benchmarks are scripts, not a package: their folder is where they import from."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[2] / "benchmarks"):
    sys.path.insert(0, str(folder))
