"""The convolutions of some models, as the device would get them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuconv.config import make_options
from npuconv.diagnostics import Severity, Status
from npuconv.errors import ModelError
from npuconv.legalize.legal import legalize
from npuconv.legalize.rewrites.fit_convolution import layer_of

if TYPE_CHECKING:
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.legal import LegalModel

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Member:
    """One model: its convolutions, those that are alike counted."""

    path: str
    layers: Counter[Layer]


@dataclass(frozen=True)
class Fleet:
    """Models whose convolutions the target takes while its open limits stay open."""

    members: tuple[Member, ...]
    left_out: dict[str, str]  # path -> reason

    @property
    def layers(self) -> list[Layer]:
        """Every layer, once."""
        return list(dict.fromkeys(layer for m in self.members for layer in m.layers))


def gather(models: Sequence[str], target: str, progress: Progress, **options: Any) -> Fleet:
    """Legalize every model for a target, and note its convolutions.

    Args:
        models: paths.
        target: name of a built-in target or path.
        progress: called with a stage, how much is done, and of how much.
        **options: the keys of ``npuconv.config.Options`` besides the target.
    """
    members, left_out = [], {}
    chosen = make_options({"verify": False, **options, "target": target})
    for done, path in enumerate(models, 1):
        try:
            legal = legalize(path, chosen)
            refused = _refused(legal)
            if refused:
                left_out[path] = refused
            else:
                members.append(Member(path, _layers(legal)))
        except ModelError as error:
            left_out[path] = str(error)
        progress("reading", done, len(models))
    return Fleet(tuple(members), left_out)


def _refused(legal: LegalModel) -> str:
    """Return what already stops a model, or ''."""
    for finding in legal.findings.every:
        if finding.severity == Severity.ERROR and finding.status == Status.REMAINING:
            return f"{finding.code} {finding.node}: {finding.message}"
    return ""


def _layers(legal: LegalModel) -> Counter[Layer]:
    found: Counter[Layer] = Counter()
    for node in legal.plan.device:
        layer = layer_of(node)
        if not isinstance(layer, str):
            found[layer] += 1
    return found
