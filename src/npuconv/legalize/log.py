"""Log of passes: rewrites with the regions to compare, and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from npuconv.legalize import region as _region
from npuconv.model import Model, Node, Tensor
from npuconv.partition.costs import Form
from npuconv.records import dataclass, field, replace
from npuconv.schemas.report import Refusal


@dataclass
class RewriteRecord:
    """One rewrite, with the regions before and after it until these are compared."""

    pass_name: str
    origin: tuple[str, ...]
    before: str
    after: str
    old: _region.Region | None = None
    new: _region.Region | None = None
    modulus: int | None = None
    exact: frozenset[int] = frozenset()
    max_abs_difference: float | None = None
    reference: str = "not measured"
    note: str = ""
    forms: tuple[Form, ...] = ()

    @property
    def node(self) -> str:
        """The user's own name of the node."""
        return self.origin[0] if self.origin else ""


@dataclass
class Log:
    """Rewrites and refusals in the order in which they were made; equal refusals once.

    Attributes:
        measures: whether rewrites are compared with the nodes that they replace.
        pass_name: name of the pass that writes the log.
    """

    measures: bool = True
    pass_name: str = ""
    rewrites: list[RewriteRecord] = field(default_factory=list)
    refusals: dict[Refusal, None] = field(default_factory=dict)

    def copied(self) -> Log:
        """Return a log with the same entries, to which others can be added."""
        return replace(self, rewrites=[*self.rewrites], refusals={**self.refusals})

    def extend(self, log: Log) -> None:
        """Append the entries of another log."""
        self.rewrites += log.rewrites
        self.refusals |= log.refusals

    def refuse(self, model: Model, node: Node, reason: str) -> int:
        """Log why a pass that nearly fired did not; return 0, the times that it fired.

        The report shows the reason.
        """
        refusal = Refusal(pass_name=self.pass_name, node=model.label(node), reason=reason)
        self.refusals[refusal] = None
        return 0

    @contextlib.contextmanager
    def rewrite(  # noqa: PLR0913 - a rewrite has that many parts
        self,
        model: Model,
        nodes: Sequence[Node],
        before: str,
        after: str,
        *,
        outputs: Sequence[Tensor] | None = None,
        modulus: int | None = 1,
        exact: Iterable[int] = (),
        measure: bool = True,
        unmeasured: str = "",
    ) -> Iterator[RewriteRecord]:
        """Bracket one rewrite, so that it is logged and measured.

        Args:
            model: the model that changes.
            nodes: the nodes that are replaced.
            before: text of the replaced nodes.
            after: text of the new nodes.
            outputs: tensors whose values must not change; by default the results of ``nodes``
                that the rest of the graph reads.
            modulus: the rewrite holds for any spatial extent that is equal to the real
                extent modulo this number, so a small extent is measured; None: for the
                real extent only.
            exact: axes of the inputs that keep their real extents in spite of ``modulus``.
            measure: False where there is nothing to compare (names, types).
            unmeasured: reason why the nodes cannot be run.
        """
        record = RewriteRecord(
            self.pass_name, model.origin(*nodes), before, after,
            modulus=modulus, exact=frozenset(exact),
        )  # fmt: skip
        producers = {id(n) for node in nodes for tensor in node.inputs for n in tensor.inputs}
        producers -= set(map(id, nodes))
        if unmeasured:
            record.note, measure = unmeasured, False
        elif not measure:
            record.reference = "nothing to compare"
        results = list(outputs) if outputs is not None else _region.results(model, nodes)
        if self.measures and measure:
            record.old = _region.capture(model, nodes, results)
        yield record
        if record.old is not None and record.new is None:
            record.new = _region.trace(model, record.old, results, producers)
        self.rewrites.append(record)
