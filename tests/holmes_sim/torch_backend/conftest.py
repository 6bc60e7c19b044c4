"""This machine, ready to run plans with torch: its fork server imports torch once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def here() -> Iterator[object]:
    """A `holmes_sim.torch_backend.local.Local`. One launch that fails does not end the next."""
    from holmes_sim.torch_backend import local

    with local.Local() as machine:
        yield machine
