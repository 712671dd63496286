"""Splits of convolutions and pools beyond a limit: ways to split as data, a planner, a writer.

``layer``       a convolution or pool that is only considered
``limits``      limits of the target that a layer breaks
``proposal``    registry of ways to split, and the forms of a layer that they propose
``planner``     the cheapest sequence of forms after which every limit is kept
``builder``     writes a plan into the graph

Each other module holds ways to split: it is named after the property that they change.
"""
