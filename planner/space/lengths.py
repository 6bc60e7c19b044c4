"""Lengths of pipelines (pp) that the pins and limits of a request allow."""

from __future__ import annotations

from planner.request import Request
from planner.space.shape import Shape


def longest(request: Request, shape: Shape) -> int | None:
    """The largest pp of a shape; None where only layers and devices limit it."""
    limited = request.limits.most_stages(shape)
    return limited if request.wishes.pp is None else min(request.wishes.pp, limited or request.wishes.pp)


def shortest(request: Request) -> int:
    """The least pp of any shape."""
    return max(request.wishes.pp or 1, request.limits.least_stages)


def allows(request: Request, shape: Shape, pp: int) -> bool:
    """Whether pipelines of a shape may have pp stages."""
    return request.wishes.pp in (None, pp) and request.limits.allows_length(shape, pp)
