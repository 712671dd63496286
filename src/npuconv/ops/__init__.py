"""Operators: everything that is known of one stands in one file.

``operator``  the parts that a description has, and the registry of all
``channels``  how channels with one scale are followed from inputs to outputs
``tables``    functions of one value as tables of 256 entries

Every other module describes one operator, or a few that differ in a function.
"""
