"""``npuconv verify``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import limited
from npuconv.cli.help import GroupedCommand, output_format_option
from npuconv.cli.options import chosen_config, collect_samples, sample_options
from npuconv.errors import UsageError
from npuconv.report.json import dumps
from npuconv.report.sections import Note, Section, Table, modules
from npuconv.report.words import count, equal, error_texts, part_of, percent
from npuconv.schemas.verify import VerifiedOutput, VerifyReport

_SUFFIXES = (".json", ".html", ".txt")  # suffixes of reports
_MAX_ROWS = 10  # outputs and layers that are shown unless verbose


@click.command(cls=GroupedCommand)
@click.argument("float_model", metavar="FLOAT.onnx")
@click.argument("int8_model", metavar="INT8.onnx")
@sample_options
@click.option(
    "--labels",
    metavar="FILE",
    help="classes of the samples: .npy, .npz (key y or labels), .tsv or .csv",
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    metavar="N",
    help="samples at most  [default: 64; with --labels all]",
)
@click.option("--min-sqnr", type=float, metavar="DB", help="exit code 1 below this many decibels")
@click.option(
    "--vendor",
    metavar="NAME[:CHIP]",
    help="compile and run INT8 with a vendor's tool too: qnn, rknn, vela, litert or openvino",
)
@click.option(
    "--vendor-python",
    metavar="PATH",
    help="interpreter of the tool's environment  [default: see docs/verify.md]",
)
@click.option("--report", metavar="FILE", help="write the result; .html, .json or .txt")
@output_format_option("text", "json")
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
@click.option("-v", "--verbose", is_flag=True, help="every layer, not the worst only")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@limited
def verify(
    float_model: str,
    int8_model: str,
    config: str | None,
    labels: str | None,
    samples: int | None,
    min_sqnr: float | None,
    vendor: str | None,
    vendor_python: str | None,
    report: str | None,
    output_format: str,
    quiet: bool,
    verbose: bool,
    no_color: bool,
    **flags: Any,
) -> int:
    """Say how far an int8 model is from the float model, whole and by layer.

    FLOAT.onnx is the model that was converted, or what convert --format float writes of
    it; INT8.onnx any model with the same inputs and outputs. Both run on the samples;
    layers are compared where both models have them. A .tflite file that convert wrote runs
    on LiteRT's reference kernels (extra npuconv[litert]). With --labels, how often each
    model is right.

    --vendor compiles INT8 with the tool of a vendor and runs its simulator on the samples.

    Exit code 0: done; 1: --min-sqnr is missed, or the vendor's tool does not accept the
    model; 2: files that cannot be used, or the tool is not installed.
    """
    from npuconv.evaluate.verify import verify as compare

    if report is not None:
        if not report.endswith(_SUFFIXES):
            hint = f"use {', '.join(_SUFFIXES)}"
            raise UsageError(f"{report}: no report format of verify", hint=hint)
        files.check_writable(report)
    data, keywords = collect_samples(chosen_config(config, quiet=quiet), flags)
    with screen.progress(quiet) as bar:
        result = compare(
            float_model, int8_model, data, labels=labels, samples=samples,
            min_sqnr=min_sqnr, vendor=vendor, vendor_python=vendor_python, progress=bar,
            **keywords,
        )  # fmt: skip
    screen.say_if_saturating(float_model, int8_model, quiet=quiet)
    if report is not None:
        files.write(report, _render(result, PurePath(report).suffix))
    if not quiet and output_format == "json":
        click.echo(_render(result, ".json"), nl=False)
    elif not quiet:
        screen.show(_sections(result, verbose=verbose), no_color=no_color)
    return 0 if result.passed else 1


def _render(report: VerifyReport, suffix: str) -> str:
    from npuconv.report import terminal, verified

    if suffix == ".json":
        return dumps(report)
    if suffix == ".txt":
        return terminal.render(_sections(report, verbose=True), width=100)
    return verified.render(report)


def _sections(report: VerifyReport, *, verbose: bool) -> list[Section]:
    """Return the models and the total error, then outputs and layers, the worst first."""
    sqnr, cosine, largest = error_texts(report.total)
    notes = {
        "float": [f"{report.float_model.path} (sha256 {report.float_model.sha256[:12]})"],
        "int8": [f"{report.int8_model.path} (sha256 {report.int8_model.sha256[:12]})"],
        "on": [f"{count(report.samples, 'sample')}: {report.source}"],
        "SQNR": [f"{sqnr}, cosine {cosine}, largest error {largest}"],
    }
    if labelled := report.labelled:
        shares = f"float {percent(labelled.float_top1)}, int8 {percent(labelled.int8_top1)}"
        text = f"on {labelled.samples} labelled samples: {shares} (output {labelled.output})"
        notes["right"] = [text]
    lines = [*notes.items(), *(("warning:", [warning]) for warning in report.warnings)]
    outputs = sorted(report.outputs, key=lambda output: output.rank)
    shown_outputs = outputs if verbose else outputs[:_MAX_ROWS]
    rows = [row for output in shown_outputs for row in _rows(output)]
    head: tuple[str, ...] = ("output", "SQNR", "cosine", "max error", "top-1")
    if all(output.top1_agreement is None for output in outputs):
        head, rows = head[:-1], [row[:-1] for row in rows]
    is_cut = len(shown_outputs) < len(outputs)
    cut = f", worst first ({len(shown_outputs)} of {len(outputs)})" if is_cut else ""
    sections = [
        Section("", [Note(label, texts) for label, texts in lines]),
        Section(f"outputs{cut}", [Table(head, rows, range(1, len(head)))]),
    ]
    layers = sorted(report.layers, key=lambda layer: layer.rank)
    shown_layers = layers if verbose else layers[:_MAX_ROWS]
    if layers:
        number = f"{len(shown_layers)} of {len(layers)}, on {report.layer_samples} samples"
        title = f"layers, worst first, errors of earlier ones included ({number})"
        rows = [(layer.name, *error_texts(layer)) for layer in shown_layers]
        table = Table(("layer", "SQNR", "cosine", "max error"), rows, (1, 2, 3))
        sections.append(Section(title, [table]))
    if (by_module := modules(report.layers)).rows:
        sections.append(Section("layers by module", [by_module]))
    if report.unmatched:
        names = f" ({', '.join(report.unmatched)})" if verbose else ""
        text = (
            f"not compared: {count(len(report.unmatched), 'layer')}{names}, whose tensors a "
            "rewrite removed; the model that `npuconv convert --format float` writes has them"
        )
        sections.append(Section("", [text]))
    if report.vendor is not None:
        from npuconv.report.verified import vendor_sections  # takes jinja2

        sections += vendor_sections(report.vendor, None if verbose else _MAX_ROWS)
    least = report.min_sqnr_db
    if least is not None and not report.passed and report.total.rank < least:
        sections.append(Section(f"missed: less than {least:g} dB", style="red"))
    return sections


def _rows(output: VerifiedOutput) -> Iterator[tuple[str, ...]]:
    sqnr, *errors = error_texts(output)
    sqnr = equal(output) if output.holds_indices else sqnr
    yield output.name, sqnr, *errors, part_of(output.top1_agreement, output.positions)
    for part in output.parts:
        yield f"  part {part.name}", *error_texts(part), "-"
