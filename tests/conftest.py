"""Hypothesis profiles: the same examples in every run, or many new ones with --hypothesis-profile=deep."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

TOLERANT = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("usual", max_examples=60, deadline=None, derandomize=True, suppress_health_check=TOLERANT)
settings.register_profile("deep", max_examples=3000, deadline=None, database=None, suppress_health_check=TOLERANT)
settings.load_profile("usual")  # the same examples every time; look for new ones with --hypothesis-profile=deep
