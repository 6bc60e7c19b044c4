"""The seconds of a step of many rounds, from those of few: later rounds add as much as the last of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from sim.disaggregation.stage import DisaggregatedStage
from sim.network.token_exchange import Numbers
from sim.units import Seconds

Value = TypeVar("Value", Seconds, Numbers)
"""Seconds of a step, or of several of its parts."""

ROUNDS = 3
"""Rounds of a step that are evaluated; each further one is taken to add as much as the last of these (a guess: by then all
streams have work)."""


def of_rounds(stage: DisaggregatedStage, rounds: int) -> DisaggregatedStage:
    """The stage with another number of rounds of as many sequences each."""
    batch = stage.workload.global_batch_size // stage.rounds * rounds
    return replace(stage, rounds=rounds, workload=replace(stage.workload, global_batch_size=batch))


def extrapolated(stage: DisaggregatedStage, seconds: Callable[[DisaggregatedStage], Value]) -> Value:
    """`seconds` of a step of the stage, a number or several, of which rounds after the first `ROUNDS` are not evaluated."""
    if stage.rounds <= ROUNDS:
        return seconds(stage)
    few, more = (seconds(of_rounds(stage, rounds)) for rounds in (ROUNDS - 1, ROUNDS))
    return more + (stage.rounds - ROUNDS) * (more - few)
