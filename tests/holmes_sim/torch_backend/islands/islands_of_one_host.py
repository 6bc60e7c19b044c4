"""Plans of islands on one node of eight devices, and the same training in one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from sim.formats import topology
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.sync import Sync
from tests.holmes_sim.torch_backend.one_process import GPT, TOPOLOGY

Island = tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]
"""Layers of each stage, microbatches of each replica, further keys of the configuration."""


def islands_of(folder: Path, sync: Sync, islands: Sequence[Island], model: str = GPT) -> IslandsPlan:
    """A plan of islands, on consecutive devices of one node."""
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY.format(model=model, batch=1, precision="fp32"), encoding="utf-8")
    found, plans, used = topology.load(path), [], 0
    assert found.workload is not None
    for layers, microbatches, keys in islands:
        vpp = int(keys.get("vpp", 1))  # type: ignore[call-overload]
        config = ParallelConfig(pp=len(layers) // vpp, dp=len(microbatches), num_microbatches=microbatches)
        config = dataclasses.replace(config, **keys)  # type: ignore[arg-type]
        ends = [sum(layers[: index + 1]) for index in range(len(layers))]
        stages = tuple(Stage(end - count, end) for count, end in zip(layers, ends, strict=True))
        placement = tuple(Device("a", 0, used + index) for index in range(config.world_size))
        used += config.world_size
        workload = dataclasses.replace(found.workload, global_batch_size=sum(microbatches) * config.microbatch_size)
        groups = groups_of(found.fleet, config, placement)
        plans.append(Plan(found, workload, config, stages, placement, groups, MadeBy("test", "")))
    return IslandsPlan(sync, tuple(plans), MadeBy("test", ""))
