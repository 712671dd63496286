"""Encodings of a model that was quantized before, and the groups of a plan that have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.model import Model, Node, query
from npuconv.partition.operators import passes_int8
from npuconv.partition.placement import Group, Plan
from npuconv.records import dataclass, field, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding

_RENAMING = ("Conv", "Relu", "Clip")  # operators whose outputs rewrites rename
_COMPARING = ("Relu", "Clip", "Concat")  # operators that change numbers, or join tensors
_ALWAYS_MOVING = ("Pad", "Cast", "Identity")  # operators that move integers at any zero point
_DEPTHWISE = 1  # input channels of each group: their scales move into the weights' scales


@dataclass
class ImportedScales:
    """Encodings of the source for the groups of a plan."""

    groups: dict[str, Encoding] = field(default_factory=dict)  # encoding by name of the group
    # Reason why a tensor or layer lacks the scales of the source, by name.
    changed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightScales:
    """Scales of the integer weights of one layer."""

    scales: NDArray[np.float32]  # float32 [1] or [M], one for each output channel
    bits: str  # width of the stored integers, as text


@dataclass(frozen=True)
class SourceScales:
    """Encodings of a model that was quantized before it came.

    Attributes:
        tensors: encoding by tensor of the float graph, in int8.
        tensor_by_producer: name of such a tensor by label of its producer; rewrites keep labels.
        weights: scales of weights, by label of the layer.
        lost: reason by name of the tensor or label of the layer whose scales cannot be kept.
    """

    tensors: Mapping[str, Encoding] = field(default_factory=dict)
    tensor_by_producer: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, WeightScales] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether the model was quantized in any part."""
        return bool(self.tensors or self.weights or self.lost)

    def with_tensor(
        self, name: str, encoding: Encoding | str, producer: str | None
    ) -> SourceScales:
        """Return the scales with the encoding of a tensor, or the reason why it has none.

        The first encoding of a tensor stays. ``producer`` is the label of its producer.
        """
        if isinstance(encoding, str):
            return replace(self, lost={**self.lost, name: encoding})
        tensor_by_producer = dict(self.tensor_by_producer)
        if producer is not None:
            tensor_by_producer[producer] = name
        first = self.tensors.get(name, encoding)
        lost = dict(self.lost)
        if not first.equals(encoding):
            lost[name] = "it has several scales, of which the first is kept"
        return replace(
            self,
            tensors={**self.tensors, name: first},
            tensor_by_producer=tensor_by_producer,
            lost=lost,
        )

    def with_weights(self, label: str, scales: WeightScales | str) -> SourceScales:
        """Return the scales with the scales of a layer's weights, or the reason why it has none."""
        if isinstance(scales, str):
            return replace(self, lost={**self.lost, label: scales})
        return replace(self, weights={**self.weights, label: scales})

    def multiplied(self, labels: Iterable[str], factor: NDArray[np.float64]) -> SourceScales:
        """Return the scales with a factor of each output channel, [M], applied to layers.

        Where the factor is 0, any scale is right.
        """
        weights = dict(self.weights)
        for label in labels:
            stored = weights.get(label)
            if stored is not None and stored.scales.size in (1, factor.size):
                size = abs(factor)
                scales = stored.scales * (size + (size == 0))
                weights[label] = replace(stored, scales=scales.astype("float32"))
        return replace(self, weights=weights)

    def match_groups(self, model: Model, plan: Plan) -> ImportedScales:
        """Find the encoding of every group of int8 tensors.

        A tensor with consumers other than passthrough operators comes first: it is the last
        rounding. A tensor that a rewrite has renamed is known by its producer.
        """
        producers = {t.name: node for node in model.nodes() for t in node.outputs}
        imported, used = ImportedScales(changed=dict(self.lost)), set[str]()
        for group in plan.groups:
            names = list(dict.fromkeys(self._tensors_of(model, group, producers)))
            used.update(names)
            if not names:
                continue
            imported.groups[group.name] = encoding = self.tensors[names[0]]
            for name in names[1:]:
                if not encoding.equals(self.tensors[name]):
                    imported.changed[name] = f"it shares the scale of {names[0]!r} on the device"
        for name in self.tensors:
            if name not in used:
                reason = "the host computes it in float, or it is merged with another"
                imported.changed[name] = reason
        return imported

    def _tensors_of(
        self, model: Model, group: Group, producers: Mapping[str, Node]
    ) -> Iterator[str]:
        """Yield names of tensors of the source that a group represents, decisive tensors first."""
        for name in (*group.outputs, *reversed(group.tensors)):
            producer = producers.get(name)
            tensors = (t for t in (name, *_moved(producer)) if t in self.tensors)
            if (source := next(tensors, None)) is not None:
                yield source
            elif producer is not None and producer.op in _RENAMING:
                labels = reversed(model.origin(producer))
                yield from (
                    self.tensor_by_producer[label]
                    for label in labels
                    if label in self.tensor_by_producer
                )

    def is_complete(self, model: Model, plan: Plan) -> bool:
        """Return whether every int8 tensor of a plan has a scale from the source."""
        groups = self.match_groups(model, plan).groups if self else {}
        return bool(groups) and all(group.name in groups for group in plan.groups)

    def weights_of(self, model: Model, conv: Node) -> WeightScales | None:
        """Return the scales of the weights of a layer, if the source has any."""
        labels = model.origin(conv)
        return next((self.weights[label] for label in labels if label in self.weights), None)

    def uniform_tensors(self, model: Model, plan: Plan) -> list[str]:
        """Return tensors with one scale because of the scales or the integer weights of the source.

        Integer weights of a dense convolution stay unchanged only if all of its input channels
        have the same scale; depthwise weights stay unchanged at any scales.
        """
        if not self:
            return []
        groups = self.match_groups(model, plan).groups
        names = [name for group in plan.groups if group.name in groups for name in group.tensors]
        for conv in plan.convolutions:
            dims = query.shape(conv.inputs[1])
            is_depthwise = dims is not None and dims[1] == _DEPTHWISE
            if self.weights_of(model, conv) is not None and not is_depthwise:
                names.append(conv.inputs[0].name)
        return names


def _moved(producer: Node | None) -> Iterator[str]:
    """Yield the tensors from which operators only move numbers into a tensor, nearest first."""
    while producer is not None:
        if producer.op not in _ALWAYS_MOVING and (
            producer.op in _COMPARING or not passes_int8(producer, {id(t) for t in producer.inputs})
        ):
            return
        yield producer.inputs[0].name
        producer = query.producer(producer.inputs[0])
