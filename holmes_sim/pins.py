"""Pinned dimensions of a plan as keyword arguments of the Python functions, and the end of a search by another thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Protocol, TypedDict

from planner.request import Wishes
from sim.errors import OptionError
from sim.formats.suggestions import suggestion


class Pins(TypedDict, total=False):
    """Dimensions that a plan must have, as in `planner.request.Wishes`."""

    tp: int
    pp: int
    dp: int
    vpp: int
    microbatch_size: int
    schedule: str
    recompute: str
    zero_stage: int
    cp: int
    ep: int
    etp: int
    zero_shard_size: int
    offload: str


class Cancel(Protocol):
    """What ends a search, such as a threading.Event."""

    def is_set(self) -> bool:
        """Whether the search should end."""
        ...


def pinned(function: str, wishes: Wishes | None, pins: Mapping[str, Any]) -> Wishes:
    """The wishes with the pins beside them. Raises OptionError for another keyword, PlanError for a wrong value."""
    known = [field.name for field in fields(Wishes)]
    for name in pins:
        if name not in known:
            raise OptionError(f"{function} has no argument {name!r}{suggestion(name, known)}")
    return replace(wishes or Wishes(), **pins)


def cancelled_by(cancel: Cancel | None, progress: Callable[[str], None]) -> Callable[[str], None]:
    """The function of status lines, which also interrupts the search that calls it once `cancel` is set."""
    if cancel is None:
        return progress

    def checked(text: str) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        progress(text)

    return checked
