"""Flags made from the one definition of every option in ``npuconv.config``."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection
from dataclasses import Field
from functools import partial
from typing import Any, Literal, TypeVar

import click

from npuconv.cli import screen
from npuconv.cli.help import BriefOption, help_all
from npuconv.config import Options, Preprocess, make_options, merge
from npuconv.config_files import PATHS, find_config, missing_files, read_config
from npuconv.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]
_DEVICE = "the device; by default the one that the model was converted for"
device_option = click.option("--target", metavar="NAME|FILE.yaml", help=_DEVICE)

NO_CONFIG = "none"  # value of --config: read no file
SAMPLE_OPTIONS = ("input_shape", "calibration_key", "seed")  # options of samples but preprocess
# Flags that are named differently from their option, and flags that turn a switch off.
_FLAGS = {"preprocess__preset": "--preprocess", "preprocess__layout": "--input-layout"}
_OPPOSITES = {"keep_scales": "--requantize"}
_METAVARS = {
    "assume": "LIMIT=VALUE",
    "baseline": "FILE",
    "calibration": "PATH",
    "calibration_key": "NAME",
    "input_shape": "NAME=SHAPE",
    "keep_float": "PATTERN",
    "max_extra_macs": "PERCENT",
    "min_sqnr": "DB",
    "prefer": "NAME,...",
    "preprocess__mean": "X,...",
    "preprocess__std": "X,...",
    "preprocess__resize": "N,...",
    "preprocess__crop": "N,...",
    "severity": "CODE=LEVEL",
    "source_root": "FOLDER",
    "target": "NAME",
    "without": "NAME,...",
}
_WITH_COMMAS = ("assume", "keep_float")  # not split at commas, which names and values may hold
_COLOR = "one number, or one per channel, as 123.7,116.3,103.5"
_NUMBERS = {  # description of the value, and the maximum count of numbers
    "preprocess__mean": (_COLOR, None),
    "preprocess__std": (_COLOR, None),
    "preprocess__resize": ("HEIGHT,WIDTH, or one number for the short side", 2),
    "preprocess__crop": ("HEIGHT,WIDTH, or one number for a square", 2),
}


def _decorate(command: Command, options: Collection[Decorator]) -> Command:
    """Add options to a command, in the order of its help."""
    for option in reversed([*options]):
        command = option(command)
    return command


def shared_options(command: Command) -> Command:
    """Add every option of ``Options`` to a command, and ``--config``."""
    text = (
        "file of these options, or none; by default npuconv.yaml, here or in a folder above; a "
        "flag wins over it; what is printed or written (-o, --report, -q, ...) has no key in it"
    )
    config = click.option("--config", metavar="FILE", help=text, cls=BriefOption)
    return _decorate(command, [config, help_all, *_options([*Options.model_fields])])


def sample_options(command: Command) -> Command:
    """Add ``--data``, ``--config`` and the options for the preparation of samples to a command."""
    text = (
        "real inputs, best others than those calibrated with: .npz, .npy, images; which become "
        "inputs as in convert, unless a flag says how"
    )
    data = click.option("--data", "--calibration", "calibration", metavar="PATH", help=text)
    text = "YAML file of options, as for convert; only what it says of samples is used"
    config = click.option("--config", metavar="FILE.yaml", help=text)
    return _decorate(command, [data, config, *_options(("preprocess", *SAMPLE_OPTIONS))])


def output_options(command: Command) -> Command:
    """Add the options for printing and reports to a command."""
    text = "write .json .html .md .sarif .xml .txt; repeatable"
    report: dict[str, Any] = {"multiple": True, "metavar": "FILE", "cls": BriefOption}
    flag = partial(click.option, is_flag=True)
    return _decorate(
        command,
        [
            click.option("--report", "reports", help=text, **report),
            flag("--timings", help="say how long each stage took"),
            flag("-q", "--quiet", help="print nothing but errors"),
            flag("-v", "--verbose", help="print everything, also near misses"),
            flag("--no-color", help="no colours; NO_COLOR does the same"),
        ],
    )


def chosen_config(config: str | None, *, quiet: bool = False) -> str | None:
    """Return the configuration to read: ``config``, or the nearest file, named on stderr."""
    if config is not None:
        return None if config == NO_CONFIG else config
    nearest = find_config()
    if nearest is None:
        return None
    screen.say(f"options of {nearest} (--config none leaves them out)", quiet=quiet)
    return str(nearest)


def collect(config: str | None, flags: dict[str, Any], *, read: Collection[str] = PATHS) -> Options:
    """Return the options of a configuration file and the flags that were given.

    Files that the configuration names under the keys ``read`` must exist, unless a flag
    names another file.

    Raises:
        ConfigError: the file is wrong.
        UsageError: the value of a flag is wrong.
    """
    from npuconv.legalize.rule_codes import unknown_codes  # loads the rules, help does not

    refuse_empty({"config": config})
    by_flag, by_key = parse_flags(flags), {}
    if config is not None:
        needed = [key for key in read if key not in by_flag]
        by_key = read_config(config, unknown_codes, partial(missing_files, keys=needed))
    return make_options(merge(by_key, by_flag), _flag_of_path)


def collect_samples(config: str | None, flags: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the path of the samples, and the options for preparing them as library keywords.

    Raises:
        NpuconvError: the configuration file or a flag is wrong.
    """
    options = collect(config, flags, read=("calibration",))
    names = {"preprocess", *SAMPLE_OPTIONS}
    values = options.model_dump(exclude_defaults=True)
    return options.calibration, {key: values[key] for key in values.keys() & names}


def parse_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, as the plain values of a configuration file.

    Raises:
        UsageError: a flag is empty, or its value is malformed.
    """
    refuse_empty(flags)
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        parent, _, key = name.rpartition("__")
        group = values.setdefault(parent, {}) if parent else values
        group[key] = _parse(name, value)
    return values


def command_words(config: str | None, flags: dict[str, Any]) -> list[str]:
    """Return the flags that were given as words of a command, to be pasted."""
    words = [] if config is None else ["--config", config]
    for name, value in flags.items():
        if isinstance(value, bool):
            words.append(_switch(name, value))
        elif value is not None:
            for item in value if isinstance(value, tuple) else (value,):
                words += [_flag(name), str(item)]
    return words


def refuse_empty(flags: dict[str, Any]) -> None:
    """Refuse a flag without text, as ``--config "$UNSET"`` of a script.

    Raises:
        UsageError: a flag is empty.
    """
    for name, value in flags.items():
        if value in ("", ("",)):
            hint = "leave it out, or say what it is to be"
            raise UsageError(f"{_flag(name)} is empty", hint=hint)


def _flag_of_path(path: tuple[str, ...]) -> str:
    """Return the flag of an option, given as the path of its keys in a file."""
    name, *inner = path
    if name == "preprocess" and inner:
        return _flag(f"preprocess__{inner[0]}")
    return " ".join((_flag(name), *(part for part in inner if not part.isdigit())))


def _flag(name: str) -> str:
    """Return the flag of an option, or of ``preprocess__KEY``."""
    return _FLAGS.get(name) or f"--{name.removeprefix('preprocess__').replace('_', '-')}"


def _switch(name: str, value: bool) -> str:
    """Return the flag that turns a switch on or off."""
    flag = _flag(name)
    return flag if value else _OPPOSITES.get(name, f"--no-{flag[2:]}")


def _options(names: Collection[str]) -> list[Decorator]:
    """Return the flags of options; ``rules`` has none."""
    options = []
    for name in names:
        if name == "preprocess":
            keys = Preprocess.model_fields.items()
            options += [_option(f"preprocess__{key}", field) for key, field in keys]
        elif name != "rules":
            options.append(_option(name, Options.model_fields[name]))
    return options


def _option(name: str, field: Field[Any]) -> Decorator:
    """Return the click option of a field: type and help follow from its type and default."""
    flag, kind, text = _flag(name), field.type, field.metadata["description"]
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    origin = typing.get_origin(kind)
    if name in _OPPOSITES:
        flags = f"{flag}/{_OPPOSITES[name]}"
        return click.option(flags, name, type=bool, help=text, default=None)
    if isinstance(field.default, str | int) and kind is not bool:
        text += f"  [default: {field.default}]"
    settings: dict[str, Any] = {"help": text, "default": None, "cls": BriefOption}
    if kind is bool:  # the flag changes the default
        flag = _switch(name, not field.default)
        settings["help"] = f"do not {text}" if field.default else text
        settings |= {"flag_value": not field.default, "type": bool}
    elif origin is Literal:
        settings["type"] = click.Choice([str(choice) for choice in typing.get_args(kind)])
    elif kind is int:
        settings["type"] = int
    else:
        settings["multiple"] = origin in (dict, tuple) and name not in _NUMBERS
        settings["metavar"] = _METAVARS.get(name, "CODE,..." if origin is tuple else "TEXT")
    return click.option(flag, name, **settings)


def _parse(name: str, value: Any) -> Any:
    """Return the value of a flag as the plain value of a configuration file."""
    if name == "input_shape":
        return parse_shapes(value)
    if name in _NUMBERS:
        return _parse_numbers(name, str(value))
    if not isinstance(value, tuple) or name in _WITH_COMMAS:
        return value
    parts = [part.strip() for item in value for part in item.split(",") if part]
    if name != "severity":
        return parts
    levels = {}
    for part in parts:
        code, separator, levels[code] = part.partition("=")
        if not separator:
            raise click.BadParameter(f"{part!r} is not CODE=LEVEL", param_hint="--severity")
    return levels


def _parse_numbers(name: str, text: str) -> Any:
    form, max_count = _NUMBERS[name]
    kind = int if max_count else float
    try:
        numbers = [kind(part) for part in text.split(",")]
        if max_count and len(numbers) > max_count:
            raise ValueError
    except ValueError:
        raise UsageError(f"{_flag(name)} takes {form}, not {text!r}") from None
    return numbers if len(numbers) > 1 else numbers[0]


def parse_shapes(items: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``--input-shape`` flags, by input.

    Raises:
        click.BadParameter: not NAME=1,3,224,224.
    """
    shapes = {}
    for item in items:
        name, _, dims = item.rpartition("=")
        try:
            if not name:
                raise ValueError
            shapes[name] = tuple(int(dim) for dim in dims.replace("x", ",").split(","))
        except ValueError:
            raise click.BadParameter(
                f"{item!r} is not NAME=1,3,224,224", param_hint="--input-shape"
            ) from None
    return shapes
