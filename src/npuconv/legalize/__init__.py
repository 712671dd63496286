"""From a model as it came to one that is as legal as it gets; check and convert share it.

``legal``      lint, canonicalize, legalize, lint again
``findings``   what became of every finding
``selection``  which findings count: select, ignore, severity, baseline
``kept``       what the user keeps float
``planned``    what the rewrites make of each source node
``described``  where every node runs, and what crosses
``accept``     baselines written
"""
