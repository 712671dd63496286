"""What each thing that is bought costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from npuconv.tuning.precision.shop import Bought, Shop


@dataclass(frozen=True)
class Bill:
    """Multiply-accumulates that are added; they sum up to the total.

    Attributes:
        channels: by tensor.
        layers: by layer, each with all of its channels.
    """

    channels: Mapping[str, int]
    layers: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.channels.values()) + sum(self.layers.values())


def bill_of(shop: Shop, bought: Bought) -> Bill:
    """The bill: channels come first, then layers that run several times with all of these.

    Args:
        shop: what there was to buy.
        bought: what is taken of it.
    """
    costs = {name: Fraction(size) for name, size in shop.macs.items()}
    channels = {}
    for offer in shop.offers:
        if offer.tensor in bought.channels:
            more = Fraction(len(bought.channels[offer.tensor]), offer.channels) - 1
            before = sum(costs.values())
            for name in (*offer.rows, *offer.columns):
                costs[name] *= 1 + more
            channels[offer.tensor] = int(sum(costs.values()) - before)
    layers = {name: int((times - 1) * costs[name]) for name, times in bought.layers.items()}
    return Bill(channels, layers)
