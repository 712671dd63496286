"""Coverage of models by targets, with obstacles: for ``npuconv target coverage``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from npuconv.cli.fleet import FleetShapes, Shapes
from npuconv.config import make_options
from npuconv.errors import ModelError
from npuconv.findings import Severity
from npuconv.pipeline.check import check_with
from npuconv.report.groups import Group, standing
from npuconv.report.words import device_share, total, total_macs
from npuconv.target import Target, builtin_names

SCHEMA_VERSION = 1
FIT = "fit-convolution"  # the pass that rewrites what breaks a known limit
Verdict = Literal["takes", "open", "refuses"]


@dataclass(frozen=True)
class Obstacle:
    """Findings of one rule against a model on one target, shown by the first node it names."""

    code: str
    name: str
    count: int
    node: str
    op_type: str
    message: str
    limit: str
    source: str


@dataclass(frozen=True)
class Cell:
    """One model on one target."""

    model: str
    target: str
    verdict: Verdict
    device_macs: int | None  # None where a dimension is not known
    total_macs: int | None
    device_share: str
    unknown_limits: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]
    fitted: int = 0  # convolutions that break a known limit, and are rewritten to keep it
    extra_macs: int | None = 0  # that this adds; None where a dimension is not known
    crossings: int = 0  # tensors that cross in one inference, each once for each direction
    crossing_bytes: int | None = 0  # of them, in int8; None where a dimension is not known

    @property
    def extra_share(self) -> str:
        """The added multiply-accumulates as a share of what there would be without."""
        if self.extra_macs is None or self.total_macs is None:
            return "?"
        return f"{100 * self.extra_macs / max(self.total_macs - self.extra_macs, 1):+.1f} %"


@dataclass(frozen=True)
class Coverage:
    """Models x targets."""

    models: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[Cell, ...]
    unreadable: dict[str, str]  # model -> reason

    def of(self, model: str) -> list[Cell]:
        """Return the cells of one model, one for each target."""
        return [cell for cell in self.cells if cell.model == model]

    @property
    def refusals(self) -> list[Cell]:
        """The cells in which a model is stopped."""
        return [cell for cell in self.cells if cell.verdict == "refuses"]

    def as_json(self) -> str:
        """Return the coverage as JSON, for programs."""
        data = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def cover(
    models: Sequence[str],
    targets: Sequence[str] = (),
    progress: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
    **options: Any,
) -> Coverage:
    """Check every model against every target.

    The rewrites are not measured and no sample is run: that takes most of the time and does
    not depend on the device.

    Without targets, all that come with npuconv; ``options`` are keys of ``npuconv.config.Options``.

    Raises:
        TargetError: no such target, or its file is wrong.
        UsageError: an option that no model has a use for.
    """
    names = tuple(dict.fromkeys(targets)) or tuple(builtin_names())
    for name in names:  # a misspelt name fails before the first model is read
        Target.load(name)
    given = FleetShapes(options.get("input_shape", {}))
    cells: list[Cell] = []
    unreadable: dict[str, str] = {}
    for done, model in enumerate(dict.fromkeys(models)):
        try:
            cells += given.apply(partial(_cells, model, names, options))
        except ModelError as error:
            unreadable[model] = str(error)
        progress("checking", done + 1, len(models))
    given.check()
    readable = tuple(m for m in dict.fromkeys(models) if m not in unreadable)
    return Coverage(readable, names, tuple(cells), unreadable)


def _cells(
    model: str, targets: Sequence[str], options: dict[str, Any], shapes: Shapes
) -> list[Cell]:
    return [_cell(model, name, {**options, "input_shape": shapes}) for name in targets]


def _cell(model: str, target: str, options: dict[str, Any]) -> Cell:
    chosen = make_options({"verify": False, **options, "target": target})
    report = check_with(model, chosen, runs=False)
    unknown = tuple(one.limit for one in report.unknown_limits if one.values)
    fits = [rewrite for rewrite in report.rewrites if rewrite.pass_name == FIT]
    device = report.device
    moved = [device.to_device.bytes, device.to_host.bytes] if device is not None else []
    before, after = total(fit.macs_before for fit in fits), total(one.macs_after for one in fits)
    return Cell(
        model=model,
        target=target,
        verdict="open" if report.ok and unknown else "takes" if report.ok else "refuses",
        device_macs=report.summary.placement["device"].macs,
        total_macs=total_macs(report),
        device_share=device_share(report),
        unknown_limits=unknown,
        obstacles=tuple(_obstacle(g) for g in standing(report) if g.severity == Severity.ERROR),
        fitted=len(fits),
        extra_macs=None if before is None or after is None else after - before,
        crossings=report.summary.transitions,
        crossing_bytes=total(moved),
    )


def _obstacle(group: Group) -> Obstacle:
    first = group.findings[0]
    return Obstacle(
        code=group.code,
        name=group.name,
        count=len(group.findings),
        node=first.node,
        op_type=first.op_type,
        message=first.message,
        limit=first.limit,
        source=first.source,
    )


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the paths without the folders that all of them begin with, and what all end with.

    ``models/a/model.onnx`` and ``models/b/model.onnx`` are ``a`` and ``b``; one path alone
    stays as it is.
    """
    parts = [Path(path).parts for path in paths]
    shortest = min((len(p) for p in parts), default=0)
    first = next((i for i in range(shortest) if len({p[i] for p in parts}) > 1), 0)
    last = next((i for i in range(shortest - first) if len({p[-1 - i] for p in parts}) > 1), 0)
    kept = [p[first : len(p) - last] for p in parts]
    return [str(Path(*names)) if names else path for names, path in zip(kept, paths, strict=True)]
