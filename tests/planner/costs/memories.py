"""Memory of the stages of one shape on four nodes of devices with given bytes."""

from __future__ import annotations

from planner.costs.block_memory import BlockMemory
from planner.costs.context import PlanningContext
from planner.costs.stage_memory import StageMemory
from sim.plan.parallel_config import BLOCK
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape


def stage_memory(nbytes: float, layers: int = 6, **degrees: object) -> StageMemory:
    question = on_one_cluster(layers, 8, nodes=4, spec=make.device(memory=nbytes))
    context, (cluster,), one = PlanningContext(question), question.clusters(), shape(**degrees)
    return StageMemory(context, cluster, one)


def block_memory(nbytes: float, layers: int = 6, **degrees: object) -> BlockMemory:
    question = on_one_cluster(layers, 8, nodes=4, spec=make.device(memory=nbytes))
    context, (cluster,), one = PlanningContext(question), question.clusters(), shape(recompute=BLOCK, **degrees)
    return BlockMemory(context, cluster, one)
