"""Legalization of a model for a target, shared by check and convert.

``legal``         lint, canonicalize, legalize, lint again, make the plan; the status of findings
``registry``      passes and their phases; ``manager`` runs them, ``measure`` compares
``canonicalize``  one pass a file: one spelling for each meaning
``rewrites``      one pass a file: fits the model to the target
``tools``         functions that several passes use
``split``         convolutions beyond a limit, as layers within it
``selection``     findings that count: select, ignore, severity, baselines
``keep_float``    nodes that the user keeps float
"""
