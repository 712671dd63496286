"""Cost of undocumented limits, the tighter they are: for ``npuconv target explore``.

``curves``  the convolutions of some models, their cost for every value of one limit, its knee
``page``    the curves as an HTML page of small plots
"""

from __future__ import annotations

from npuconv.explore.curves import Curve, Exploration, ExploreSettings, Point, explore

__all__ = ["Curve", "Exploration", "ExploreSettings", "Point", "explore"]
