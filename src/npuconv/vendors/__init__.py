"""Vendors' compilers and simulators: each in an environment and a process of its own.

``tool``     the tools, where their environments are, and questions to them
``scripts``  programs for these environments, which import nothing of npuconv
"""
