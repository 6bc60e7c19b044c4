"""Ring: every rank sends to the next one; bandwidth-optimal (Patarasuk and Yuan, JPDC 2009)."""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer

IN_LIBRARY = True
IN_NETWORK = False
PIPELINED = False
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """One round of n transfers of 1/n of the buffer; n - 1 times, or 2 (n - 1) times for an all_reduce.

    send_recv is the all_gather of ring attention, made of messages: every rank's piece visits all others (Liu et al., arXiv
    2310.01889). A piece of the buffer passes the edges one by one, so each edge's latency counts repeats / n times.
    """
    ring = [rank for host in hosts for rank in host]
    share, steps, repeats = edge(operation, len(ring))
    pairs = zip(ring, ring[1:] + ring[:1], strict=True)
    return (Round(tuple(Transfer(a, b, share, steps) for a, b in pairs), repeats),)


def edge(operation: str, n: int) -> tuple[float, float, int]:
    """(share, steps) of each transfer of a ring of n ranks, and the repeats of its round."""
    repeats = 2 * (n - 1) if operation == "all_reduce" else n - 1
    return 1 / n, repeats / n, repeats
