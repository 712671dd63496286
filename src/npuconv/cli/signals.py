"""Exit codes of a command that Ctrl-C or SIGTERM ended."""

from __future__ import annotations

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
TERMINATED = 143  # 128 + SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM: what is on the way is cleaned up, as after Ctrl-C."""


def ended_by(error: BaseException) -> int:
    """The exit code of a command that a signal has ended."""
    return TERMINATED if isinstance(error.__cause__ or error, Terminated) else INTERRUPTED
