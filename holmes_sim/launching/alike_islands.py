"""Islands that differ, for targets in which rank r of an island exchanges its shard with rank r of every other island."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan


def unlike(plan: IslandsPlan) -> Iterator[str]:
    """Layouts that shard the model otherwise than islands[0], and batches of another size, which a plain mean would weigh
    wrongly."""
    first = _shards(plan.islands[0])
    for index, island in enumerate(plan.islands):
        for key, value in _shards(island).items():
            if value != first[key]:
                yield (
                    f"islands[{index}].{key} {value}: rank r of an island exchanges its shard with rank r of the others; "
                    f"{first[key]}, as in islands[0]"
                )
        if plan.batches[index] != plan.batches[0]:
            yield (
                f"islands[{index}].global_batch_size {plan.batches[index]}: its mean does not weigh islands by their batches; "
                f"{plan.batches[0]}, as in islands[0]"
            )


def _shards(island: Plan) -> dict[str, Any]:
    """What decides which part of the model a rank has."""
    found: dict[str, Any] = {key: getattr(island.config, key) for key in ("tp", "pp", "dp", "cp", "ep", "vpp")}
    layers = "-".join(str(stage.layers) for stage in island.stages)
    return found | {"zero_shard_size": island.config.shards if island.config.zero_stage else 1, "stages of layers": layers}
