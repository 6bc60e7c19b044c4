"""All groups that Megatron-LM builds, by their name in its NCCL options, and the network of each.

Names and groups are those of initialize_model_parallel (megatron/core/parallel_state.py, megatron-core 0.19.2): every call of
get_nccl_options. That function ignores unknown names without an error. net_name may only be IB or Socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holmes_sim.launching import torch_launch
from holmes_sim.launching.holmes_launch import network
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan

FIXED = {
    "tp": ("cp", "dp", "pp"),
    "pp": ("tp", "cp", "dp"),
    "mp": ("cp", "dp"),
    "cp": ("tp", "dp", "pp"),
    "dp": ("tp", "cp", "pp"),
    "dp_cp": ("tp", "pp"),
    "tp_cp": ("dp", "pp"),
    "tp_dp": ("cp", "pp"),
    "tp_dp_cp": ("pp",),
    "ep": ("etp", "edp", "pp"),
    "ep_tp": ("ep", "edp", "pp"),
    "tp_ep_mp": ("edp", "pp"),
    "tp_ep_pp": ("edp",),
    "ep_dp": ("etp", "ep", "pp"),
    "intra_dp_cp": ("tp", "instance", "pp"),
    "intra_ep_dp": ("etp", "instance", "ep", "pp"),
    "inter_ep_dp": ("etp", "shard", "ep", "pp"),
    "intra_dist_opt_instance": ("instance",),
}
"""Group name -> indices that all its ranks have in common; `instance` is a copy of the optimizer state."""
SEVERAL_INSTANCES = ("intra_dp_cp", "intra_ep_dp", "inter_ep_dp")
"""Groups that exist only with several copies of the optimizer state."""


def of_config(config: ParallelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (name, ranks) of every group of two or more ranks."""
    indices = [_indices(config, rank) for rank in range(config.world_size)]
    for name, fixed in FIXED.items():
        if name in SEVERAL_INSTANCES and config.shards == config.dp_cp:
            continue
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, own in enumerate(indices):
            found.setdefault(tuple(own[index] for index in fixed), []).append(rank)
        yield from ((name, tuple(ranks)) for ranks in found.values() if len(ranks) > 1)
        if name == "pp" and config.pp > 1:
            yield from (("embd", (ranks[0], ranks[-1])) for ranks in found.values())


def _indices(config: ParallelConfig, rank: int) -> dict[str, int]:
    tp, dp_cp, pp = config.coordinates(rank)
    own, width = rank - config.first_rank(pp), config.expert_tp
    return {
        "tp": tp, "pp": pp, "cp": dp_cp % config.cp, "dp": dp_cp // config.cp, "etp": own % width,
        "ep": own // width % config.ep, "edp": own // config.expert_mesh,
        "instance": dp_cp // config.shards if config.zero_stage else 0,
        "shard": dp_cp % config.shards,
    }  # fmt: skip


def nccl_yaml(plan: Plan) -> str:
    """nccl.yaml: the network of every name whose groups all use the same one; empty if there is none.

    The shim sets the network of the other groups one by one.
    """
    table = json.loads(torch_launch.table(plan))
    host_of = {rank: index for index, host in enumerate(table["hosts"]) for rank in host["ranks"]}
    by_name: dict[str, set[str | None]] = {}
    for name, ranks in of_config(plan.config):
        own = [table["hosts"][index] for index in dict.fromkeys(map(host_of.__getitem__, ranks))]  # of many hosts, these
        by_name.setdefault(name, set()).add(network({**table, "hosts": own}, None))
    lines, open_ones = [], []
    for name, found in by_name.items():
        if len(found) > 1:
            open_ones.append(f"# {name}: {_listed(found)}: holmes_launch.py tells each group its own\n")
        elif (only := found.pop()) is not None:
            lines.append(f"{name}: {{net_name: {only}}}\n")
    if not lines:
        return ""
    return "".join(("# NCCL's network by name of group, read by megatron/core/parallel_state.py\n", *lines, *open_ones))


def _listed(found: set[str | None]) -> str:
    return ", ".join(sorted(name or "inside a host" for name in found))
