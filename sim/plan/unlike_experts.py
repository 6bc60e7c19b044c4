"""Checks of how the routed experts of each stage are divided, alike on all stages or by `stage_ep` and `stage_etp`."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import NotDefined, NotModelled, PlanError
from sim.plan.expert_parallelism import ExpertParallelism
from sim.workload.model import Model


def check_stage_experts(config: ExpertParallelism) -> None:
    """Check `stage_ep` and `stage_etp`; `ParallelConfig.of_pp_rank` has the degrees of each pipeline rank checked.

    Raises PlanError if they are no degrees of the pipeline ranks, and NotModelled beside uneven tokens, whose busiest rank
    depends on ep."""
    if not (config.stage_ep or config.stage_etp):
        return
    first = {"ep": config.ep, "etp": config.etp or config.tp_of(0)}
    for name, degrees in (("ep", config.stage_ep), ("etp", config.stage_etp)):
        if not degrees:
            continue
        listed = f"stage_{name} {_listed(degrees)}"
        if len(degrees) != config.pp or len(set(degrees)) == 1 or min(degrees) < 1:
            raise PlanError(
                f"{listed}: one degree for each of pp {config.pp} pipeline ranks, at least 1 and not all equal; leave it out "
                "where they are"
            )
        if degrees[0] != first[name]:
            raise PlanError(f"{listed}: {name} is that of the first pipeline rank, {degrees[0]}, not {first[name]}")
        if config.imbalance != 1.0 or config.exchange is not None:
            raise NotModelled(f"stage_{name} with uneven routing is not modelled: the busiest rank depends on ep; balanced")


def check_experts_of(config: ExpertParallelism, model: Model, microbatches: Sequence[int], prefix: str) -> None:
    """Check how a pipeline rank by itself divides the experts of a model; `microbatches`: those of each of its dp_cp indices,
    `prefix`: of the keys, config. or config.stage_.

    Raises PlanError if its degrees do not divide them, and NotDefined where ranks of one ep group have unlike numbers."""
    if model.experts % config.ep or not model.experts:
        key = "ep" if config.ep > 1 or config.etp is None else "etp"
        raise PlanError(f"{prefix}{key}: {getattr(config, key)} does not divide experts {model.experts} of {model.name}")
    if model.ffn_hidden % config.expert_tp:
        raise PlanError(f"{prefix}etp: {config.expert_tp} does not divide ffn_hidden {model.ffn_hidden}")
    for first in range(0, config.dp_cp, config.expert_rows):
        if len(set(microbatches[first : first + config.expert_rows])) > 1:
            raise NotDefined(f"{prefix}ep: ranks of one ep group must have the same number of microbatches")


def _listed(degrees: Sequence[int]) -> str:
    return ", ".join(map(str, degrees))
