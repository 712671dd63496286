"""``python -m npuconv``."""

from npuconv.cli import main

main()
