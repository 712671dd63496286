"""Limits on the memory and time of a command, files it must not replace, and its exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from npuconv import files
from npuconv.cli.help import help_all
from npuconv.errors import UsageError
from npuconv.limits import DEFAULT, NAMES, applied, flag, present
from npuconv.records import replace

if TYPE_CHECKING:
    from npuconv.config import Options

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT_SHARE = 0.9  # share of the memory that a command may take, so that others go on
_MIN_BYTES = 256 * 2**20  # memory that npuconv itself takes
# Seconds of grace for a command that computes outside of Python and cannot be interrupted.
_GRACE_SECONDS = 10.0
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Terminated(KeyboardInterrupt):
    """SIGTERM: unfinished files are removed as after Ctrl-C."""


class TimeIsUpError(BaseException):
    """End of ``--max-seconds``. No ``Exception``: no handler may continue after it."""


def signal_exit_code(error: BaseException) -> int:
    """Return the exit code of a command that a signal has ended: 128 + its number."""
    terminated = isinstance(error.__cause__ or error, Terminated)
    return 128 + (signal.SIGTERM if terminated else signal.SIGINT)


def guarded(command: Command) -> Command:
    """Add ``--max-memory`` and ``--max-seconds`` to a command, and enforce them."""
    command = click.option(
        "--max-memory",
        metavar="SIZE",
        callback=_apply_memory,
        expose_value=False,
        help="memory of this process: 512MiB, 4GiB  [default: 90 % of what there is]",
    )(command)
    return click.option(
        "--max-seconds",
        type=click.IntRange(1),
        metavar="N",
        callback=_apply_time,
        expose_value=False,
        help="seconds; exit code 2 after so many",
    )(command)


def limited(command: Command) -> Command:
    """Add ``guarded``, input limits and ``--help-all`` to a command without conversion options."""
    command = help_all(guarded(command))
    for name in reversed(NAMES):
        text = f"[default: {getattr(DEFAULT, name)}]"
        command = click.option(
            flag(name), name, type=click.IntRange(0), callback=_apply_limit, expose_value=False,
            help=text,
        )(command)  # fmt: skip
    return command


def _apply_limit(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    if value is not None and parameter.name:
        context.with_resource(applied(replace(present(), **{parameter.name: value})))


def _apply_memory(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:  # a share of the memory of the machine, or of the container
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for place in _CONTAINER_LIMITS:
            with contextlib.suppress(OSError, ValueError):
                size = min(size, int(Path(place).read_text()))
        size = int(size * _DEFAULT_SHARE)
    else:
        from npuconv.batch.job import parse_size

        try:
            size = parse_size(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if size < _MIN_BYTES:
            least = f"{_MIN_BYTES >> 20}MiB"
            raise click.BadParameter(f"{value!r} is less than npuconv itself takes: {least}")
    context.with_resource(_memory_limit(size))


@contextlib.contextmanager
def _memory_limit(size: int) -> Iterator[None]:
    """Limit the memory of this process within a with statement, where the system can."""
    try:
        import resource
    except ImportError:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    least = min((bound for bound in before if bound != resource.RLIM_INFINITY), default=size)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(size, least), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _apply_time(context: click.Context, _: click.Parameter, value: int | None) -> None:
    if value is not None:
        context.with_resource(_time_limit(value))


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    text = f"took more than --max-seconds {seconds}"

    def raise_error(_number: int, _frame: object) -> None:
        raise TimeIsUpError(text)

    def end_process() -> None:
        click.echo(f"npuconv: error: {text}", err=True)
        os._exit(2)

    before = signal.signal(signal.SIGALRM, raise_error)
    last = threading.Timer(seconds + _GRACE_SECONDS, end_process)
    last.daemon = True
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


Input = tuple[Path, str]  # a file that is read, and its role


def check_destinations(destinations: Iterable[str | Path], inputs: Iterable[Input]) -> None:
    """Refuse to write where nothing can be written, or over a file that is read.

    Raises:
        UsageError: a destination is an input, possibly under another name.
        OutputError: a folder does not exist or is not writable, or it is a directory.
    """
    paths = [Path(destination) for destination in destinations]
    sources = list(inputs) if any(map(os.path.exists, paths)) else []
    for destination in paths:
        for source, role in sources:
            is_same = False
            with contextlib.suppress(OSError):  # a name too long: opening it reports that
                is_same = source.is_file() and destination.samefile(source)
            if is_same:
                hint = "give another name"
                raise UsageError(f"{destination}: would overwrite {role}", hint=hint)
        files.check_writable(destination)


def input_files(models: Iterable[str], options: Options, config: str | None) -> Iterator[Input]:
    """Yield the files that a command reads."""
    from npuconv.model import external_data

    for model in models:
        yield Path(model), "the model"
        yield from ((path, "weights of the model") for path in external_data.files(Path(model)))
    inputs = {
        "the calibration samples": options.calibration,
        "the target": options.target,
        "the baseline": options.baseline,
        "the configuration": config,
    }
    yield from ((Path(path), role) for role, path in inputs.items() if isinstance(path, str))
