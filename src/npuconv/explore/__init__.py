"""Cost of undocumented limits, the tighter they are: for ``npuconv target explore``.

``fleet``   the convolutions of some models, as the device would get them
``curves``  the cost of these for every value of one limit, and its knee
``page``    the curves as an HTML page of small plots
"""

from __future__ import annotations

from npuconv.explore.curves import Curve, Exploration, ExploreSettings, Point, explore

__all__ = ["Curve", "Exploration", "ExploreSettings", "Point", "explore"]
