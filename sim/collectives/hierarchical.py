"""Hierarchical: reduce-scatter inside each host, rings across the hosts, all-gather inside.

The g devices of a host share its traffic to the network, so a host sends 1/g of what g single rings would send. NCCL does not
choose this by itself; a framework must (HSDP, or several distributed-optimizer instances)."""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer, ring
from sim.errors import NotDefined

IN_LIBRARY = False
IN_NETWORK = False
PIPELINED = False
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """Rounds of an operation; raises NotDefined unless every host holds the same number of ranks."""
    width = len(hosts[0])
    if any(len(host) != width for host in hosts):
        raise NotDefined("a hierarchical collective needs the same number of ranks on every host")
    if len(hosts) == 1 or width == 1:
        return ring.rounds(operation, hosts)
    inside = _together(tuple(ring.rounds("reduce_scatter", (host,)) for host in hosts), 1.0)
    lanes = tuple(tuple((host[i],) for host in hosts) for i in range(width))
    across = _together(tuple(ring.rounds(operation, lane) for lane in lanes), 1 / width)
    if operation == "reduce_scatter":
        return inside + across
    if operation == "all_gather":
        return across + inside
    return inside + across + inside


def _together(parts: tuple[tuple[Round, ...], ...], share: float) -> tuple[Round, ...]:
    """Rounds of several rings that run side by side, each on `share` of the buffer."""
    merged = []
    for rounds_at in zip(*parts, strict=True):
        transfers = tuple(
            Transfer(t.source, t.target, t.share * share, t.steps / len(rounds_at)) for r in rounds_at for t in r.transfers
        )
        merged.append(Round(transfers, rounds_at[0].repeats))
    return tuple(merged)
