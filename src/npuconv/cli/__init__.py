"""Command line: parses, calls the library, prints. The only package that imports click.

The module of a command is imported when the command is used, so that ``--help`` starts fast.
Results go to stdout; progress and errors to stderr; ``npuconv.errors`` has the exit codes.
"""

from __future__ import annotations

import atexit
import difflib
import gc
import io
import os
import re
import signal
import sys
import warnings

import click

from npuconv import files
from npuconv.cli import guard, screen
from npuconv.cli.help import LazyGroup
from npuconv.errors import InternalError, NpuconvError, is_lack_of_memory
from npuconv.report import FORMATS
from npuconv.version import __version__
from npuconv.yamlio import suggest

# Help of each command, by name of the command, its function and its module.
COMMANDS = {
    "convert": "Convert a float ONNX model into a device-ready int8 model and a report.",
    "check": "Say whether models can be converted, and why not; writes no model.",
    "batch": "Convert many models for many targets, each job in a process of its own.",
    "verify": "Say how far an int8 model is from the float model, whole and by layer.",
    "vectors": "Write integer inputs and outputs of every layer, to test a device with.",
    "split": "Write the parts of an int8 model, device and host, as files with a manifest.",
    "run": "Run the parts that split has written: host in onnxruntime, device simulated.",
    "inspect": "Show what is in a model: operators, convolutions, shapes, costs.",
    "target": "List, show, compare and check descriptions of devices.",
    "init": "Write a configuration that the other commands find by themselves.",
    "explain": "Explain a rule or a pass: its check, its reason, its fix.",
    "schema": "Print the JSON schema of a report, a configuration, a jobs or a target file.",
}
_NO_MEMORY = "there is not enough memory for it (--max-memory says how much there may be)"


@click.group(
    cls=LazyGroup, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Convert float ONNX models for int8 accelerators, and report the rewrites.

    npuconv convert model.onnx --calibration images/ --preprocess imagenet
    """


def main() -> None:
    """Run the command line and exit with its code."""
    # A large graph has millions of objects, which live as long as the process; Python's default
    # intervals of garbage collection would take a third of the time.
    gc.set_threshold(2_000_000, 20, 100)
    # Layers are solved in parallel and their matrices are small: more BLAS threads would double
    # the time. The variable has no effect once numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic would read the metadata of all installed packages for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    signal.signal(signal.SIGTERM, _terminate)
    _speak_utf8()
    if not sys.warnoptions:  # warnings of libraries are not for the user
        warnings.simplefilter("ignore")
    code = execute(sys.argv[1:])
    atexit._run_exitfuncs()
    # Python would free all objects one by one, which takes 40 ms. Every output is flushed by click.
    os._exit(code)


def _speak_utf8() -> None:
    """Write UTF-8 in any locale, as JSON needs it; replace characters that a terminal lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def _terminate(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second signal ends the process at once
    raise guard.Terminated


def execute(arguments: list[str]) -> int:
    """Run the command line.

    Returns:
        0 done, 1 findings, 2 a mistake of the user, 70 a bug in npuconv, 130 after Ctrl-C, 143
        after SIGTERM.
    """
    with files.record_written() as written:
        try:
            result = cli.main(arguments, prog_name="npuconv", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else "", err=True)
            return 2
        except click.ClickException as error:
            text, code = _describe_usage(error), 2
        except (KeyboardInterrupt, click.Abort) as error:
            text, code = screen.interruption(written), guard.signal_exit_code(error)
        except OSError as error:  # a full disk, a name too long, a folder that may not be entered
            fault = error.strerror or type(error).__name__
            text, code = f"{error.filename or 'the output'}: {fault}", 2
        except SystemExit:  # click's answer to a closed pipe, as of ``npuconv explain | head``
            return 0
        except guard.TimeIsUpError as error:
            text, code = str(error), 2
        except Exception as error:
            is_bug = not isinstance(error, NpuconvError) or isinstance(error, InternalError)
            if is_bug and is_lack_of_memory(error):
                text, code = _NO_MEMORY, 2
            elif is_bug and os.environ.get("NPUCONV_TRACEBACK"):
                raise
            elif isinstance(error, NpuconvError):
                for line in error.lines[:-1]:
                    screen.fail(line)
                text, code = error.lines[-1] if error.lines else str(error), error.exit_code
            else:
                fault = f"{type(error).__name__}: {error}"
                bug = InternalError(fault, where="outside any pass")
                text, code = str(bug), bug.exit_code
        else:
            return result if isinstance(result, int) else 0
    screen.fail(text)
    return code


def _describe_usage(error: click.ClickException) -> str:
    """Return the message of an error of click, with the likely option or value."""
    ctx, text = getattr(error, "ctx", None), error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        text = f"no such option: {error.option_name}{_nearest(error.option_name, ctx)}"
    elif isinstance(error, click.BadParameter) and error.param and error.message:
        wrong, kind = re.match("'(.*)' is not one of", error.message), error.param.type
        near = suggest(wrong[1], kind.choices) if wrong and isinstance(kind, click.Choice) else ""
        text = f"{error.param.opts[0]}: {error.message}" + (f"; {near}" if near else "")
    return f"{text} (see '{ctx.command_path} --help')" if ctx else text


def _nearest(option: str, ctx: click.Context | None) -> str:
    """Return a suggestion for an unknown option: by its value, its beginning, or its spelling."""
    parameters, value = [] if ctx is None else ctx.command.get_params(ctx), option[2:]
    meant = [f"{p.opts[0]} {value}" for p in parameters if value in getattr(p.type, "choices", ())]
    options = [name for parameter in parameters for name in parameter.opts]
    if "--report" in options and FORMATS.get(value):
        meant.append(f"--report FILE{FORMATS[value]}")
    meant = meant or [name for name in options if name.startswith(option)][:1]
    meant = meant or difflib.get_close_matches(option, options, 1, cutoff=0.7)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""
