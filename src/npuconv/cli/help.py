"""Help of a command: options in groups, one line each; everything with ``--help-all``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from npuconv.yamlio import suggest

Command = TypeVar("Command", bound=Callable[..., Any])

_PREPROCESS = ("preset", "mean", "std", "resize", "crop", "color", "layout")
# Options by group, in the order in which the groups are shown.
GROUPS = {
    "Input": (
        "config", "input_shape", "calibration", "calibration_key",
        *(f"preprocess__{key}" for key in _PREPROCESS), "max_samples", "seed",
        "labels", "samples",
    ),
    "Device": (
        "target", "assume", "layout", "offload", "fit", "pad_on_host", "prefer", "keep_float",
        "opset",
    ),
    "Accuracy": (
        "method", "keep_scales", "min_sqnr", "max_extra_macs", "without", "verify",
    ),
    "Gates": (
        "fail_on", "unknown", "select", "ignore", "severity", "baseline", "write_baseline",
    ),
    "Output": (
        "output", "format", "io", "standard_ops", "report", "reports", "output_format",
        "source_root", "timings", "quiet", "verbose", "no_color", "help", "help_all",
    ),
}  # fmt: skip
LIMITS = "Limits"
_UNGROUPED = "Options"
# Options of rare use, which only --help-all shows, as it does all limits.
_RARE = {
    "without", "seed", "verify", "prefer", "max_samples", "timings",
    "rules", "offload", "fit", "keep_scales", "standard_ops", "opset", "layout",
    "source_root",
}  # fmt: skip
SHOWS_ALL = "npuconv.help_all"  # key of a context: whole texts, rare options, limits
_TEXT_COLUMN = 25  # width of the flags


class BriefOption(click.Option):
    """An option whose help is one line, up to its first semicolon, unless all is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return flags and text of the option; None if it is hidden."""
        record = super().get_help_record(ctx)
        if record is None or ctx.meta.get(SHOWS_ALL):
            return record
        flags, text = record
        kind = self.type
        if isinstance(kind, click.Choice):
            flags = f"{flags.rpartition(' ')[0]} NAME"
        return flags, shortened(text, kind)


def output_format_option(
    *formats: str, text: str = "what is printed", aliases: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Add ``--output-format`` to a command; the first of ``formats`` is the default."""
    flags, kind = ("--output-format", *aliases), click.Choice(formats)
    return click.option(
        *flags, "output_format", type=kind, default=formats[0], help=text, cls=BriefOption
    )


def shortened(text: str, kind: click.ParamType[Any]) -> str:
    """Return the first clause of a help text, with choices and the default.

    Args:
        text: purpose of the option up to a semicolon; ``[default: X]`` at its end.
        kind: type of the values.
    """
    clause, _, default = text.partition("  [default: ")
    first = clause.partition(";")[0].strip()
    default = default.rstrip("]")
    if isinstance(kind, click.Choice) and not all(str(choice) in first for choice in kind.choices):
        names = [f"{name}{' (default)' * (name == default)}" for name in map(str, kind.choices)]
        return f"{first}: {', '.join(names)}"
    return f"{first}  [{default}]" if default else first


class LazyGroup(click.Group):
    """A group whose commands are imported from modules of their names when they are used.

    Args:
        modules: help of these commands by name; others are added as to any group.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands; those with modules in the order of their use."""
        return [*super().list_commands(ctx), *self.modules]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in self.modules:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"npuconv.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; refuse a misspelt one and name the nearest."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            hint = suggest(args[0], names)
            ctx.fail(f"no such command: {args[0]!r}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing their modules."""
        del ctx
        rows = [(name, self.commands[name].get_short_help_str(100)) for name in self.commands]
        with formatter.section("Commands"):
            formatter.write_dl([*sorted(rows), *self.modules.items()])


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups.

    Groups of ``brief_without`` are shown by ``--help-all`` alone.
    """

    def __init__(self, *args: Any, brief_without: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.brief_without = (*brief_without, LIMITS)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups; rare options and limits only with ``--help-all``."""
        shows_all = bool(ctx.meta.get(SHOWS_ALL))
        places = {name: place for names in GROUPS.values() for place, name in enumerate(names)}
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        options.sort(key=lambda option: places.get(str(option.name), len(places)))
        for title in (_UNGROUPED, *GROUPS, LIMITS):
            if not shows_all and title in self.brief_without:
                continue
            rows = [
                record
                for option in options
                if group_of(option) == title and (shows_all or option.name not in _RARE)
                if (record := option.get_help_record(ctx)) is not None
            ]
            if not rows:
                continue
            if not shows_all:  # the texts of all groups begin in one column
                rows[0] = (rows[0][0].ljust(_TEXT_COLUMN), rows[0][1])
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_TEXT_COLUMN)


def group_of(option: click.Option) -> str:
    """Return the title of the group that an option is shown in."""
    name = "help" if "--help" in option.opts else option.name
    for title, names in GROUPS.items():
        if name in names:
            return title
    return LIMITS if option.opts[0].startswith("--max-") else _UNGROUPED


def help_all(command: Command) -> Command:
    """Add ``--help-all`` to a command."""

    def print_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[SHOWS_ALL] = True
            click.echo(ctx.get_help())
            ctx.exit()

    return click.option(
        "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=print_all,
        help="every option, also limits on resources",
    )(command)  # fmt: skip
