"""Which layers to run several times and which channels to make, so that each pays most."""

from __future__ import annotations

import math
from itertools import product

from npuconv.tuning.precision.ledger import Ledger
from npuconv.tuning.precision.shop import MOST, Bought, Shop

_RELUCTANCE = (1.0, 3.0, math.inf)


def spend(shop: Shop, limit: float, enough: float = 0.0) -> Bought:
    """What to buy.

    The step that takes away most noise for each multiplication is taken, until the limit
    or the goal is reached. A step is one channel once more, one layer, or a layer with all
    that read it on the device: the noise of the tensor between them only goes if both
    repeat. Steps that are cheap may leave no room for a dear one that is worth more, so what
    is left is spent also after every layer has been held to two and to three runs, and with
    channels only where they are bargains, or not at all; and the best is taken.

    Args:
        shop: what there is.
        limit: multiply-accumulates that may be added, in all.
        enough: noise that is little enough.
    """
    found = []
    for first, reluctance in product(range(2, MOST + 1), _RELUCTANCE):
        ledger = Ledger(shop, reluctance)
        for most in range(first, MOST + 1):
            ledger.spend(limit, enough, most)
        found.append(ledger)
    reaching = [each for each in found if each.left <= enough]
    if reaching:
        return min(reaching, key=lambda each: each.spent).bought
    return min(found, key=lambda each: each.left).bought
