"""Legalization of a model for a target, shared by check and convert.

``legal``      lint, canonicalize, legalize, lint again
``findings``   status of every finding
``selection``  findings that count: select, ignore, severity, baseline
``kept``       nodes that the user keeps float
``planned``    result and cost of the rewrites for each source node
``described``  placement and cost of every node, and the traffic
``accept``     writing of baselines
"""
