"""Runs a float model on samples and does nothing else: MODEL SAMPLES.npz."""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.feeds import open_session, read_feeds


def main() -> None:
    """Run."""
    session = open_session(Path(sys.argv[1]))
    for feed in read_feeds(session, Path(sys.argv[2])):
        session.run(None, feed)


if __name__ == "__main__":
    main()
