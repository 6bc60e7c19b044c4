"""Cases that `make test` leaves to `make test-more`, so that it ends within minutes; CI runs both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

more = pytest.mark.more


def after(first: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test, a tuple for several: the first few for `make test`, the others for `make test-more`."""
    sets = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*values, marks=() if index < first else more) for index, values in enumerate(sets)]
