"""Fitting of convolutions to the limits of a target: rewrites as data, and a planner.

A ``Layer`` is a convolution that is only considered. ``limits`` says which known limits it
breaks; each function of ``splits`` proposes exact forms of it, made of layers that are nearer
to the limits; ``planner`` searches the cheapest sequence of them after which every limit is
kept; ``builder`` writes that sequence into the graph.
"""
