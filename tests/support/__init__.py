"""Builders of models, targets and samples, and assertions on them, for all tests."""
