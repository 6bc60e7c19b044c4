"""Checks whether this backend can execute a plan of islands. This module does not need torch."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.torch_backend import supported
from sim import compression
from sim.errors import NotSupported
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan


def check(plan: IslandsPlan) -> None:
    """Raise NotSupported with all reasons why the backend cannot execute a plan of islands, if there are any."""
    for island in plan.islands:
        supported.check(island)
    if faults := list(unsupported(plan)):
        raise NotSupported(f"the torch backend cannot exchange between these islands: {'; '.join(faults)}")


def unsupported(plan: IslandsPlan) -> Iterator[str]:
    """What the backend cannot exchange between islands, each with what it can in brackets."""
    first, sync = plan.islands[0], plan.sync
    if not sync.exchanges:
        return
    for index, island in enumerate(plan.islands):
        if island.config.offload:
            yield f"islands[{index}].config.offload {', '.join(island.config.offload)} (none)"
        if _tp_by_layer(island) != _tp_by_layer(first):
            yield f"islands[{index}].config.tp {island.config.tp} (as in islands[0], {first.config.tp}, for every layer)"
        for key in ("ep", "etp"):
            value, other = getattr(island.config, key), getattr(first.config, key)
            if value != other and first.workload.model.experts:
                yield f"islands[{index}].config.{key} {value} (as in islands[0], {other})"
    if compression.get(sync.compression).NAME == "powersgd":
        if sync.fragments > 1:
            yield f"powersgd with {sync.fragments} fragments (1: it needs whole matrices)"
        if sync.aggregation != "mean":
            yield f"powersgd with aggregation {sync.aggregation} (mean: its products are sums)"
        for index, island in enumerate(plan.islands):
            if island.config.zero_stage and island.config.most_dp_cp > 1:
                zero = f"islands[{index}].config.zero_stage {island.config.zero_stage}"
                yield f"powersgd with {zero} (0: it needs whole matrices)"


def _tp_by_layer(plan: Plan) -> list[int]:
    """The tensor-parallel degree of each layer."""
    config = plan.config
    degrees = ((config.tp_of(index % config.pp), stage.layers) for index, stage in enumerate(plan.stages))
    return [degree for degree, layers in degrees for _ in range(layers)]
