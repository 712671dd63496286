"""Glossary: the terms that reports and documents use, each with one meaning."""

from __future__ import annotations

from typing import NamedTuple


class GlossaryTerm(NamedTuple):
    """One term; ``meaning`` may have code in backticks."""

    key: str  # anchor of the term
    name: str
    meaning: str


TERMS = (
    GlossaryTerm("sqnr", "SQNR", (
        "Signal to quantization noise ratio: 10 log10(sum f² / sum (f - q)²) in dB, where f is "
        "the output of the float model and q that of the int8 model. 20 dB is an error of 10 % of "
        "the signal, 40 dB of 1 %. The report gives the range that 80 % of new sample sets of the "
        "same size are expected to fall into."
    )),
    GlossaryTerm("noise", "Share of the noise", (
        "Part of the error in the outputs that the rounding of one layer makes on its own. The "
        "layers with the largest shares are those worth more precision."
    )),
    GlossaryTerm("calibration", "Calibration", (
        "Running the float model on samples to observe the range of every tensor. int8 covers "
        "that range, so the samples must look like the inputs in use."
    )),
    GlossaryTerm("scale", "Scale and zero point", (
        "A real value is scale x (level - zero point), with levels from -128 to 127. One scale "
        "for a tensor, or one for each channel."
    )),
    GlossaryTerm("clipped", "Clipped", (
        "Values outside the range that int8 covers. They become the nearest end of it. Clipping a "
        "few values can be better than coarse steps for all."
    )),
    GlossaryTerm("device", "Device, host, undocumented", (
        "Where a node runs. Device: the accelerator, in int8. Host: the CPU, in float. "
        "Undocumented: the target file says nothing of the operator, so the host runs it."
    )),
    GlossaryTerm("crossing", "Crossing", (
        "A tensor that crosses between device and host in one inference. It is quantized or "
        "dequantized there."
    )),
    GlossaryTerm("subgraph", "Subgraph", (
        "Nodes that the device runs in one go, without the host in between."
    )),
    GlossaryTerm("limit", "Undocumented limit", (
        "A limit that the target file marks `?`: nobody has written it down yet. It is listed "
        "with the values that the model needs; `--unknown fail` makes it an error."
    )),
    GlossaryTerm("finding", "Finding", (
        "One thing a rule found at one node: an error stops a conversion, a warning does not, a "
        "note informs. `npuconv explain CODE` says why it matters and how to fix it."
    )),
    GlossaryTerm("rewrite", "Rewrite", (
        "A change by the converter that keeps the result: both pieces of graph are run on the "
        "same inputs, and the largest difference is reported."
    )),
    GlossaryTerm("apart", "Kept apart", (
        "Samples that calibration does not see, so that accuracy is measured on new inputs."
    )),
    GlossaryTerm("made-up", "Made-up samples", (
        "Random numbers instead of data. Ranges and accuracy of real inputs are other ones: "
        "accuracy is unproven until --calibration gives real inputs."
    )),
    GlossaryTerm("legalize", "Legalize", (
        "To rewrite a model until it breaks no limit of the target."
    )),
    GlossaryTerm("target", "Target", (
        "A YAML file that describes an accelerator: operators, limits, and the source of each."
    )),
    GlossaryTerm("macs", "MACs", (
        "Multiply-accumulate operations of one inference: the usual measure of work."
    )),
    GlossaryTerm("baseline", "Baseline", (
        "A file of findings that are known and accepted; they do not fail a check."
    )),
    GlossaryTerm("cosine", "Cosine", (
        "Cosine of the angle between the outputs of the float and the int8 model; 1 is best."
    )),
    GlossaryTerm("top1", "Top-1 agreement", (
        "How often both models give the same largest class. It needs no labels."
    )),
)  # fmt: skip
