"""Replicas whose ranks have equal devices and load links alike, so that they keep step."""

from __future__ import annotations

from sim.analytic.equal_loads import equally_loading, leaf
from sim.hardware.cluster import Device
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def replica_classes(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Equivalence classes of replicas, as dp_cp indices: equal microbatches, clusters, grouping into nodes, leaves, and loads.

    Nodes are numbered along a replica's whole pipeline, so that the messages of equivalent replicas leave their nodes between
    the same stages. Clusters of one device type are different: their interconnects, NICs and trunks may differ. Where stages
    have unlike dp or cp, the indices are those of a stage with the largest: each is a part of the samples or sequences of a
    replica, with the tensor-parallel group of every stage that computes it, and a group of a stage with a smaller one is in
    several. Replicas that load links unlike do not keep step (`sim.analytic.equal_loads`)."""
    config = plan.config
    classes: dict[object, list[int]] = {}
    devices: dict[int, list[tuple[Device, ...]]] = {}
    for dp_cp in range(config.most_dp_cp):
        key: list[object] = [microbatches_of(config, dp_cp)]
        hosts, leaves = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        devices[dp_cp] = []
        for pp_rank, tp in enumerate(config.degrees):
            (row,) = rows_of(config, pp_rank, (dp_cp,))
            first = config.rank(0, row, pp_rank)
            ring = plan.placement[first : first + tp]
            if config.stage_cp and pp_rank:
                key.append(_slices(config, pp_rank, dp_cp))
            key += [(d.cluster, hosts.setdefault((d.cluster, d.node), len(hosts))) for d in ring]
            key += [leaves.setdefault((d.cluster, leaf(plan.fleet, d)), len(leaves)) for d in ring]
            devices[dp_cp].append(ring)
        classes.setdefault(tuple(key), []).append(dp_cp)
    if config.pp == 1:
        return tuple(map(tuple, classes.values()))
    return tuple(part for replicas in classes.values() for part in equally_loading(plan.fleet, replicas, devices))


def rows_of(config: ParallelConfig, pp_rank: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """The dp_cp indices of a pipeline rank on which replicas, or parts of them (`replica_classes`), are."""
    if not config.stage_dp and not config.stage_cp:
        return replicas
    return tuple(dict.fromkeys(config.row_of(part, pp_rank) for part in replicas))


def _slices(config: ParallelConfig, pp_rank: int, part: int) -> tuple[tuple[int, int], ...]:
    """The tp indices of the ranks of a part of a replica that exchange messages, of the pipeline rank before and of this."""
    before = pp_rank - 1
    rows = config.row_of(part, before), config.row_of(part, pp_rank)
    return tuple(
        (tp, config.coordinates(peer)[0])
        for tp in range(config.tp_of(before))
        for peer in config.peers(config.rank(tp, rows[0], before), pp_rank)
        if config.coordinates(peer)[1] == rows[1]
    )


def microbatches_of(config: ParallelConfig, replica: int) -> int:
    """Number of microbatches of a replica, or of a part of one (`replica_classes`)."""
    return config.num_microbatches[replica * config.dp // config.most_dp_cp]
