"""Limits on the memory and time of a command, whatever its input files ask for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from npuconv.limits import DEFAULT, NAMES, applied, flag, present

Command = TypeVar("Command", bound=Callable[..., Any])

_SHARE = 0.9  # of the memory there is: what asks for more gets an error, not the machine
_LEAST = 256 * 2**20  # bytes
_GRACE = 10.0  # seconds until a command ends that does not listen
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class TimeIsUpError(BaseException):
    """``--max-seconds`` are over. No ``Exception``: nobody is to go on after it."""


def cause(error: BaseException) -> str:
    """Return the message for a command that exceeded its time or memory."""
    if isinstance(error, TimeIsUpError):
        return str(error)
    return "there is not enough memory for it (--max-memory says how much there may be)"


def guarded(command: Command) -> Command:
    """Add ``--max-memory`` and ``--max-seconds`` to a command, and see to them."""
    for decorate in (
        click.option(
            "--max-memory",
            metavar="SIZE",
            callback=_with_memory,
            expose_value=False,
            help="this process may take: 512MiB, 4GiB  [default: 90 % of what there is]",
        ),
        click.option(
            "--max-seconds",
            type=click.IntRange(1),
            metavar="N",
            callback=_with_time,
            expose_value=False,
            help="exit code 2 after so many",
        ),
    ):
        command = decorate(command)
    return command


def limited(command: Command) -> Command:
    """Add the flags of all limits to a command that takes no other options of a conversion."""
    for name in reversed(NAMES):
        text = f"[default: {getattr(DEFAULT, name)}]"
        option = click.option(
            flag(name), name, type=click.IntRange(0), callback=_noted, expose_value=False, help=text
        )
        command = option(command)
    return command


def _noted(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    if value is not None and parameter.name:
        context.with_resource(applied(replace(present(), **{parameter.name: value})))


def _with_memory(context: click.Context, _: click.Parameter, value: str | None) -> None:
    from npuconv.batch.settings import parse_size

    try:
        size = parse_size(value) if value else int(_there() * _SHARE)
        if value and size < _LEAST:
            raise ValueError(f"{value!r} is less than npuconv itself takes: {_LEAST >> 20}MiB")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    context.with_resource(_memory(size))


def _there() -> int:
    """Bytes of memory of the machine, or of the container."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in _CONTAINER:
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(Path(place).read_text()))
    return found


@contextlib.contextmanager
def _memory(size: int) -> Iterator[None]:
    """Whoever asks for more than this gets ``MemoryError``; not on systems without limits."""
    try:
        import resource
    except ImportError:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    least = min((one for one in before if one != resource.RLIM_INFINITY), default=size)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(size, least), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _with_time(context: click.Context, _: click.Parameter, value: int | None) -> None:
    if value is not None:
        context.with_resource(_time(value))


@contextlib.contextmanager
def _time(seconds: int) -> Iterator[None]:
    def over(_number: int, _frame: object) -> None:
        raise TimeIsUpError(said)

    def give_up() -> None:
        click.echo(f"npuconv: error: {said}", err=True)
        os._exit(2)  # it computes outside of Python, and cannot be asked to end

    said = f"took more than --max-seconds {seconds}"
    before = signal.signal(signal.SIGALRM, over)
    last = threading.Timer(seconds + _GRACE, give_up)
    last.daemon = True
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()
