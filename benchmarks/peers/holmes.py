"""Holmes' published layer splits, 26 | 22 and 16 | 14 (scripts of zhejianglab/Holmes dadcc08), compared with certified plans.

The rule of arXiv 2312.03549, section 3, gives environment i floor(alpha S(i) / sum of S x layers), the rest to the last. With
alpha = 1 and the speeds S of the paper's table 1, 197 TFLOP/s on InfiniBand and 160 on RoCE, it gives both splits (any ratio of
speeds from 1.182 to 1.285 does); with the alpha = 1.05 of the paper it gives 27 | 21 and 17 | 13. The scripts contain the split
as a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

from holmes_sim import commands
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.shape import Shape
from sim.plan.plan import Plan

SCRIPTS = {"holmes-39b-4": (8, (26, 22)), "peers/holmes-3.6b-2": (1, (16, 14))}
"""Topology -> (tp, layers on InfiniBand and on RoCE); both scripts have pp 2 and microbatches of 4 samples."""


@dataclass(frozen=True, slots=True)
class Row:
    """A script: layers and simulated step (s) of the published split, and of the certified plan with the same degrees."""

    name: str
    published: tuple[int, ...]
    published_s: float
    certified: tuple[int, ...]
    certified_s: float


def published(name: str, like: Plan) -> Plan:
    """The simulated plan of the script's split under the configuration of another plan."""
    _, layers = SCRIPTS[name]
    topology, config = commands.load(name), like.config
    shape = Shape(
        config.tp, config.dp, config.microbatch_size, config.recompute, config.schedule, config.vpp, config.zero_stage
    )
    stages = tuple(zip(("ib", "roce"), layers, strict=True))
    return simulate_plan(build(Request(topology, commands.workload_of(topology)), shape, stages, "published"))


def measure(time_limit: float = 5.0) -> list[Row]:
    """Rows of both scripts."""
    rows = []
    for name, (tp, layers) in SCRIPTS.items():
        wishes = Wishes(tp=tp, pp=2, microbatch_size=4)
        ours = commands.plan(commands.load(name), wishes=wishes, time_limit=time_limit).plan
        found = tuple(stage.layers for stage in ours.stages)
        rows.append(Row(name, layers, step(published(name, ours)), found, step(ours)))
    return rows
