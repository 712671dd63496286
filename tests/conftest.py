"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# A time limit for each example fails beside another load, and finds nothing. Where CI is set,
# hypothesis has a profile that neither looks at the clock nor at chance.
settings.register_profile("desk", deadline=None)
if settings.get_current_profile_name() != "ci":
    settings.load_profile("desk")
