"""Which rank of an island holds, and so sends, which part of the model's parameters.

The parameters of a model are laid along the interval from 0 to 1 in the order of its layers. Each rank has a part of it: its tp
and dp x cp ranks share the interval of a stage equally, as ZeRO shards optimizer state; without ZeRO each could send all, and
they share the work. So two islands of unlike layouts exchange what the intervals of their ranks have in common."""

from __future__ import annotations

from typing import NamedTuple

from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


class Part(NamedTuple):
    """The part of the parameters from `begin` to `end`, on the way from 0 to 1, that a rank sends."""

    rank: int
    begin: float
    end: float


class Common(NamedTuple):
    """The `share` of the parameters that a rank of one island and a rank of another one have in common."""

    source: int
    target: int
    share: float


def parts(plan: Plan) -> tuple[Part, ...]:
    """The parts of all ranks of a plan, in the order of the parameters."""
    sizes = [_stage_parameters(plan, stage) for stage in range(plan.config.num_stages)]
    total, found, done = sum(sizes), list[Part](), 0.0
    for stage, size in enumerate(sizes):
        pp_rank = plan.config.rank_of(stage)
        ranks = range(plan.config.first_rank(pp_rank), plan.config.first_rank(pp_rank + 1))
        each = size / len(ranks)
        ends = [(done + each * number) / total for number in range(len(ranks) + 1)]
        found += [Part(rank, *ends[number : number + 2]) for number, rank in enumerate(_in_order(plan, ranks))] if size else []
        done += size
    return tuple(found)


def common(first: tuple[Part, ...], second: tuple[Part, ...]) -> tuple[Common, ...]:
    """The shares that ranks of two islands have in common, in the order of the parameters."""
    found, i, j = list[Common](), 0, 0
    while i < len(first) and j < len(second):
        a, b = first[i], second[j]
        share = min(a.end, b.end) - max(a.begin, b.begin)
        if share > 1e-12:  # more than the rounding of the ends
            found.append(Common(a.rank, b.rank, share))
        i, j = (i + 1, j) if a.end <= b.end else (i, j + 1)
    return tuple(found)


def largest_share(plan: Plan) -> float:
    """The largest share of the parameters that one rank has."""
    shares: dict[int, float] = {}
    for part in parts(plan):
        shares[part.rank] = shares.get(part.rank, 0.0) + part.end - part.begin
    return max(shares.values())


def _in_order(plan: Plan, ranks: range) -> list[int]:
    """Ranks of a pipeline rank with those of one tensor-parallel slice together: a slice is what ZeRO shards."""
    tp = plan.config.coordinates(ranks[0])[2]
    return [rank for first in range(plan.config.tp_of(tp)) for rank in ranks[first :: plan.config.tp_of(tp)]]


def _stage_parameters(plan: Plan, stage: int) -> float:
    """Parameters of a stage, a tied embedding counted on the first stage only."""
    first, last = plan.ends((stage,))
    layers, workload = plan.stages[stage].layers, plan.workload_of((stage,))
    found = memory.stage_parameters(workload, ParallelConfig(), layers, first, last)
    tied = plan.workload.model.tied_embeddings and last and not first
    return found - (plan.workload.model.vocab * plan.workload.model.hidden if tied else 0)
