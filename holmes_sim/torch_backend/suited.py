"""What of a plan this backend can play: one clear line where it cannot."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import PlanError
from sim.plan.plan import Plan


def check(plan: Plan) -> None:
    """Raise PlanError for a plan that would not be played as it is written, with all that stands against it."""
    against = list(_against(plan))
    if against:
        raise PlanError(f"the torch backend cannot play this plan: {'; '.join(against)}")


def _against(plan: Plan) -> Iterator[str]:
    config, model = plan.config, plan.workload.model
    if config.cp > 1:
        yield f"cp {config.cp} (context parallelism; plan with --cp 1)"
    if config.ep > 1:
        yield f"ep {config.ep} (expert parallelism; plan with --ep 1)"
    if model.experts:
        yield f"model {model.name} has experts (dense models only)"
    if config.zero_shard_size is not None:
        yield f"zero_shard_size {config.zero_shard_size} (all of dp share, or none)"
    if model.kv_heads % config.tp:
        yield f"tp {config.tp} does not divide kv_heads {model.kv_heads}"
    if config.tp > 1 and plan.workload.seq_len % config.tp:
        yield f"tp {config.tp} does not divide seq_len {plan.workload.seq_len}"
    if plan.workload.precision not in ("fp32", "tf32", "bf16", "fp16"):
        yield f"precision {plan.workload.precision} (fp32, tf32, bf16, fp16)"
