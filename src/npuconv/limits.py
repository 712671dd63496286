"""Limits on untrusted files: every limit by name, with its default.

A model or archive of a few kilobytes can ask for petabytes. Each of these limits is checked
before anything is allocated; the error names the limit, and the flag or key that raises it.
The defaults leave room for models several times larger than the models that
accelerators run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from npuconv.records import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Limits on models, images and archives."""

    model_bytes: int = 16 * 2**30  # bytes of a model's file and its external data together
    nodes: int = 50_000  # number of nodes of a model, its subgraphs and its called functions
    depth: int = 16  # depth of subgraphs inside subgraphs
    tensor_mib: int = 2048  # MiB of one tensor of a model
    image_pixels: int = 8192 * 8192  # pixels of one image
    archive_bytes: int = 64 * 2**30  # bytes of the arrays of one archive, once decompressed
    archive_ratio: int = 200  # decompressed to compressed bytes of an array over 64 MiB


DEFAULT = Limits()
NAMES = tuple(field.name for field in fields(Limits))
_present: ContextVar[Limits] = ContextVar("limits", default=DEFAULT)


def present() -> Limits:
    """Return the limits in force."""
    return _present.get()


@contextlib.contextmanager
def applied(limits: Limits) -> Iterator[None]:
    """Apply limits within a with statement."""
    token = _present.set(limits)
    try:
        yield
    finally:
        _present.reset(token)


def hint(name: str) -> str:
    """Return a hint on how to raise a limit."""
    return f"if you trust it, raise {flag(name)}"


def flag(name: str) -> str:
    """Return the flag of a limit."""
    return f"--max-{name.replace('_', '-')}"
