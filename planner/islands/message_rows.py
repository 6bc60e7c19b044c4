"""The exact plan of a fleet with compressed messages between clusters, as rows beside sync strategies.

The search for the exact plan and its certificate assume whole messages; so these are variants of the plan that was found, each
simulated, and another plan may be faster with compressed messages. No loss is published for them on language models, so what a
token is worth is not known, and no such row is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from planner.islands.sync_rows import SyncRow, of_plan
from planner.placement.simulation import simulate_plan
from sim.kernels.messages import crosses
from sim.plan.plan import Plan

COMPRESSIONS = ("int8", "top-k=10%")
"""Compressions that are tried: one that rounds every value, and one that drops most of them."""


def message_rows(plan: Plan) -> Iterator[SyncRow]:
    """A row for each compression that is tried; none where no message of the plan goes from one cluster to another."""
    config = plan.config
    hops = [*itertools.pairwise(range(config.pp)), *([(0, config.pp - 1)] if config.vpp > 1 else [])]
    if not any(crosses(plan, *hop) for hop in hops):
        return
    for text in COMPRESSIONS:
        compressed = replace(plan, config=replace(config, message_compression=text), certificate=None)
        row = of_plan(simulate_plan(compressed))
        yield replace(row, sync=f"exact gradients, messages {text}", price="bounded", worth=None)
