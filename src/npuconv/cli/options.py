"""Flags made from the one definition of every option in ``npuconv.config``."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Literal, TypeVar

import click
from pydantic.fields import FieldInfo

from npuconv.cli import screen
from npuconv.cli.help import BriefOption, help_all
from npuconv.config import Options, Preprocess, make_options, merge
from npuconv.config_files import find_config, missing_files, read_config
from npuconv.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

# Fields whose flag is not their own name.
_FLAGS = {"preset": "--preprocess", "layout": "--input-layout"}
_FILES = ("target", "calibration", "baseline")  # of a configuration, which a run reads
NO_CONFIG = "none"  # of --config: read no file
_IN_FILES_ONLY = {"rules"}
SAMPLE_OPTIONS = ("input_shape", "calibration_key", "seed")  # of Options, besides preprocessing
_PAIRS = {"input_shape": "NAME=SHAPE", "severity": "CODE=LEVEL"}
# Not split at commas, which names and values may hold.
_REPEATED = {"assume": "LIMIT=VALUE", "keep_float": "PATTERN"}
_OPPOSITES = {"keep_scales": "--requantize"}  # flags of both values have a name
_METAVARS = {
    "baseline": "FILE",
    "cache": "FOLDER",
    "calibration": "PATH",
    "calibration_key": "NAME",
    "max_extra_bytes": "PERCENT",
    "max_extra_macs": "PERCENT",
    "min_sqnr": "DB",
    "target": "NAME",
}


def shared_options(command: Command, *, without: Collection[str] = ()) -> Command:
    """Add every option of ``Options`` to a command, and ``--config``."""
    for name in reversed(Options.model_fields):
        if name not in without:
            command = _add_option(command, name)
    text = (
        "file of these options, or none; by default npuconv.yaml, or [tool.npuconv] of "
        "pyproject.toml, here or in a folder above; a flag wins over it; what is printed or "
        "written (-o, --report, -q, ...) has no key in it"
    )
    command = help_all(command)
    return click.option("--config", metavar="FILE", help=text, cls=BriefOption)(command)


def sample_options(command: Command) -> Command:
    """Add ``--data``, ``--config`` and the options for the preparation of samples to a command."""
    for name in (*reversed(SAMPLE_OPTIONS), "preprocess"):
        command = _add_option(command, name)
    text = "YAML file of options, as for convert; only what it says of samples is used"
    command = click.option("--config", metavar="FILE.yaml", help=text)(command)
    text = (
        "real inputs, best others than those calibrated with: .npz, .npy, images; which become "
        "inputs as in convert, unless a flag says how"
    )
    return click.option("--data", "--calibration", "calibration", metavar="PATH", help=text)(
        command
    )


def output_options(command: Command) -> Command:
    """Add the options for printing and reports to a command."""
    for decorate in (
        click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same"),
        click.option("-v", "--verbose", is_flag=True, help="print everything, also near misses"),
        click.option("-q", "--quiet", is_flag=True, help="print nothing but errors"),
        click.option("--timings", is_flag=True, help="say how long each stage took"),
        click.option(
            "--report",
            "reports",
            multiple=True,
            metavar="FILE",
            help="write .json .html .md .sarif .xml .txt; repeatable",
            cls=BriefOption,
        ),
    ):
        command = decorate(command)
    return command


def chosen_config(config: str | None, *, quiet: bool = False) -> str | None:
    """Return the configuration to read: the one given, or the nearest; named on stderr."""
    if config is not None:
        return None if config == NO_CONFIG else config
    nearest = find_config()
    if nearest is None:
        return None
    screen.say(f"options of {nearest} (--config none leaves them out)", quiet=quiet)
    return str(nearest)


def collect(
    config: str | None, flags: dict[str, Any], *, read: Collection[str] = _FILES
) -> Options:
    """Return the options of a configuration file and the flags that were given.

    Of the files that the configuration names, those of ``read`` must be there, unless a flag
    names another.

    Raises:
        ConfigError: the file is wrong.
        UsageError: a flag's value is.
    """
    refuse_empty({"config": config})
    by_flag = given(flags)
    by_key = {} if config is None else _read(config, [key for key in read if key not in by_flag])
    return make_options(merge(by_key, by_flag), _flag_of_path)


def _read(config: str, read: Collection[str]) -> dict[str, Any]:
    from npuconv.legalize.rule_codes import unknown_codes  # takes onnx, which help does not need

    return read_config(config, unknown_codes, partial(missing_files, keys=read))


def collect_samples(config: str | None, flags: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the path of the samples, and the options for preparing them as library keywords.

    Raises:
        NpuconvError: the configuration file or a flag is wrong.
    """
    options = collect(config, flags, read=("calibration",))
    return options.calibration, {
        "preprocess": options.preprocess.model_dump(exclude_defaults=True),
        "input_shape": options.input_shape,
        "calibration_key": options.calibration_key,
        "seed": options.seed,
    }


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, as the plain values of a configuration file.

    Raises:
        UsageError: a flag is empty, or its value has not the form that it should.
    """
    refuse_empty(flags)
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        parent, _, key = name.rpartition("__")
        parsed = _parse(name, value)
        (values.setdefault(parent, {}) if parent else values)[key] = parsed
    return values


def command_words(config: str | None, flags: dict[str, Any]) -> list[str]:
    """Return the flags that were given as words of a command, to be pasted."""
    words = [] if config is None else ["--config", config]
    for name, value in flags.items():
        if value is False:
            words.append(f"--no-{_flag(name)[2:]}")
        elif value is not None:
            for one in value if isinstance(value, tuple) else (value,):
                words += [_flag(name), str(one)]
    return words


def refuse_empty(flags: dict[str, Any]) -> None:
    """Refuse a flag without text, as ``--config "$UNSET"`` of a script.

    Raises:
        UsageError: one of them is empty.
    """
    for name in [name for name, value in flags.items() if value == ""]:
        raise UsageError(f"{_flag(name)} is empty", hint="leave it out, or say what it is to be")


def _flag_of_path(path: tuple[str, ...]) -> str:
    """Return the flag of an option; the file has been read, so that no key of it is wrong."""
    name, *inner = path
    if name == "preprocess" and inner:
        return _flag(f"preprocess__{inner[0]}")
    return " ".join((_flag(name), *(part for part in inner if not part.isdigit())))


def _flag(name: str) -> str:
    """Return the flag of an option, or of ``preprocess__KEY``."""
    parent, _, key = name.rpartition("__")
    return (_FLAGS.get(key) if parent else None) or "--" + key.replace("_", "-")


def _add_option(command: Command, name: str) -> Command:
    if name == "preprocess":
        for key, part in reversed(Preprocess.model_fields.items()):
            command = _option(f"preprocess__{key}", part)(command)
    elif name not in _IN_FILES_ONLY:
        command = _option(name, Options.model_fields[name])(command)
    return command


def _option(name: str, field: FieldInfo) -> Callable[[Command], Command]:
    flag, kind, text = _flag(name), _without_none(field.annotation), field.description or ""
    if isinstance(field.default, str | int) and not isinstance(field.default, bool):
        text += f"  [default: {field.default}]"
    settings: dict[str, Any] = {"help": text, "default": None}
    if typing.get_origin(kind) is Literal:
        settings["type"] = click.Choice([str(a) for a in typing.get_args(kind)])
    elif kind is bool:
        if name in _OPPOSITES:
            pair = f"{flag}/{_OPPOSITES[name]}"
            return click.option(pair, name, type=bool, **settings)
        settings["help"] = f"do not {text}" if field.default else text
        settings |= {"flag_value": not field.default, "type": bool, "cls": BriefOption}
        return click.option(f"--no-{flag[2:]}" if field.default else flag, name, **settings)
    elif kind is int:
        settings["type"] = int
    elif typing.get_origin(kind) is dict:
        settings |= {"multiple": True, "metavar": _PAIRS[name]}
    elif name in _REPEATED:
        settings |= {"multiple": True, "metavar": _REPEATED[name]}
    else:
        settings["metavar"] = _METAVARS.get(name) or _metavar(kind)
    return click.option(flag, name, cls=BriefOption, **settings)


def _metavar(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if typing.get_origin(item) is Literal:
            return "NAME,..."
        return {str: "CODE,...", float: "X,...", int: "N,..."}[item]
    return "TEXT"


def _without_none(kind: Any) -> Any:
    """Return X of ``X | None``."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(a for a in typing.get_args(kind) if a is not type(None))
    return kind


def _parse(name: str, value: Any) -> Any:
    """Return the value of a flag as the plain value of a configuration file."""
    if name == "input_shape":
        return dict(_shape(item) for item in value)
    if name == "severity":
        return dict(_level(part) for item in value for part in item.split(","))
    if name in _NUMBERS:
        return _numbers(name.partition("__")[2], str(value))
    if name in _COMMA_SEPARATED:
        return [part.strip() for part in str(value).split(",") if part]
    return value


_COMMA_SEPARATED = {"select", "ignore", "prefer", "without"}
_COLOR = "one number, or one per channel, as 123.7,116.3,103.5"
_NUMBERS = {  # form of the value, and the maximum count of numbers
    "preprocess__mean": (_COLOR, None),
    "preprocess__std": (_COLOR, None),
    "preprocess__resize": ("HEIGHT,WIDTH, or one number for the short side", 2),
    "preprocess__crop": ("HEIGHT,WIDTH, or one number for a square", 2),
}


def _numbers(key: str, text: str) -> Any:
    form, max_count = _NUMBERS[f"preprocess__{key}"]
    kind = int if max_count else float
    try:
        numbers = [kind(part) for part in text.split(",")]
        if max_count and len(numbers) > max_count:
            raise ValueError
    except ValueError:
        raise UsageError(f"--{key} takes {form}, not {text!r}") from None
    return numbers if len(numbers) > 1 else numbers[0]


def parse_shapes(items: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``--input-shape`` flags, by input.

    Raises:
        click.BadParameter: not NAME=1,3,224,224.
    """
    return {name: tuple(dims) for name, dims in map(_shape, items)}


def _shape(text: str) -> tuple[str, list[int]]:
    name, separator, dims = text.rpartition("=")
    try:
        if not separator or not name:
            raise ValueError
        return name, [int(d) for d in dims.replace("x", ",").split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not NAME=1,3,224,224", param_hint="--input-shape"
        ) from None


def _level(text: str) -> tuple[str, str]:
    code, separator, level = text.strip().partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not CODE=LEVEL", param_hint="--severity")
    return code, level
