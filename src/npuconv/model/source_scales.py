"""Encodings of a model that was quantized before it came; rewrites of the model change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from npuconv.records import dataclass, field, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.lazy import np


@dataclass(frozen=True)
class SourceScales:
    """Encodings of a model that was quantized before it came.

    Attributes:
        tensors: encoding by tensor of the float graph, in int8.
        tensor_by_producer: name of such a tensor by label of its producer; rewrites keep labels.
        weights: scales of integer weights [1] or [M], by label of the layer.
        lost: reason by name of the tensor or label of the layer whose scales cannot be kept.
    """

    tensors: Mapping[str, Encoding] = field(default_factory=dict)
    tensor_by_producer: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
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

    def with_weights(self, label: str, scales: NDArray[np.float32] | str) -> SourceScales:
        """Return the scales with the scales of a layer's weights, or the reason why it has none."""
        if isinstance(scales, str):
            return replace(self, lost={**self.lost, label: scales})
        return replace(self, weights={**self.weights, label: scales})

    def weights_of(self, labels: Iterable[str]) -> NDArray[np.float32] | None:
        """Return the scales of the weights of a layer by its labels, if the source has any."""
        return next((self.weights[label] for label in labels if label in self.weights), None)

    def multiplied(self, labels: Iterable[str], factor: NDArray[np.float64]) -> SourceScales:
        """Return the scales with a factor of each output channel, [M], applied to layers.

        Where the factor is 0, any scale is right.
        """
        weights = dict(self.weights)
        for label in labels:
            stored = weights.get(label)
            if stored is not None and stored.size in (1, factor.size):
                size = abs(factor)
                weights[label] = (stored * (size + (size == 0))).astype("float32")
        return replace(self, weights=weights)
