"""Models that other people's tools judge, and the tables in the docs of what they said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from npuconv.errors import NpuconvError

ROOT = Path(__file__).resolve().parents[2]
# Extents that models leave open, by name.
SHAPES = {
    "mtcnn_pnet": {"input_1": [1, 64, 64, 3]},
    "ppocr_cls_v2": {"x": [1, 3, 48, 192]},
    "ppocrv4_rec": {"x": [1, 3, 48, 160]},
    "ppocrv4_det": {"x": [1, 3, 320, 320]},
    "bodypix_mnv1_050_s16": {"input": [1, 225, 225, 3]},
    "zerodce_mdturp": {"input": [1, 3, 128, 128]},
    "silero_vad_op15": {"input": [1, 576], "state": [2, 1, 128]},
}
_END = "<!-- end -->\n"


def paths(others: Sequence[Path]) -> list[Path]:
    """Return the sample models and others."""
    return [*sorted(ROOT.glob("samples/*/model.onnx")), *others]


def name_of(path: Path) -> str:
    """Return the first cell of a model: its folder's name for a model.onnx, else the file's."""
    return path.resolve().parent.name if path.stem == "model" else path.stem


def line(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def refusal(path: Path, error: NpuconvError) -> str:
    """Return the cell of a model that is not converted; the row has its name, wherever it lies."""
    reason = error.message.partition(f"{path.name}: ")[2] or error.message
    return f"not converted: {reason.split(' (')[0]}"


def write(page: Path, maker: str, columns: Sequence[str], rows: Mapping[str, str]) -> None:
    """Write a table into a page; rows of models that were not run stay as they are.

    Args:
        page: with the table between two comments.
        maker: the path in the first comment.
        columns: its head.
        rows: by the first cell.
    """
    before, rest = page.read_text("utf-8").split(f"<!-- made by {maker} -->\n")
    table, after = rest.split(_END)
    old = {row.split("|")[1].strip(): row for row in table.strip().splitlines()[2:]}
    head = [line(columns), line(["---"] * len(columns))]
    text = "\n".join([*head, *(old | rows).values()])
    page.write_text(f"{before}<!-- made by {maker} -->\n\n{text}\n\n{_END}{after}", "utf-8")
