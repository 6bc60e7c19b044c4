"""Cases that `make test` and CI leave out, so that they end within minutes.

Drawn cases of a law are many, because each may find a fault of its own. `make test` tries the first of them. `make test-more`
tries some more, and more launches of real processes: before a change is merged. `make test-deep` tries the others, and tests
that simulate many measured runs or print rows of benchmarks: after a change of the search, of a bound or of a cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

more = pytest.mark.more
deep = pytest.mark.deep


def after(first: int, values: Iterable[Any], last: float = math.inf) -> list[Any]:
    """Parameters of a test, a tuple for several: the first few for `make test`, those up to `last` for `make test-more`, the
    others for `make test-deep`."""
    sets = [value if isinstance(value, tuple) else (value,) for value in values]
    marks = [() if index < first else more if index < last else deep for index in range(len(sets))]
    return [pytest.param(*values, marks=mark) for values, mark in zip(sets, marks, strict=True)]
