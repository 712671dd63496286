"""Splits of convolutions and pools beyond a limit: ways to split as data, a planner, a writer.

``layer``       a convolution or pool that is only considered
``limits``      limits of the target that a layer breaks
``proposal``    forms of a layer, made of layers that are nearer to the limits
``planner``     the cheapest sequence of forms after which every limit is kept
``builder``     writes a plan into the graph

Each other module proposes forms: it is named after the property that it changes.
"""
