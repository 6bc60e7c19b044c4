"""All-to-all: every rank sends each other rank its own part of its buffer, all at once.

NCCL has no other algorithm for it: it is a group of sends and receives (NCCL user guide, point-to-point communication)."""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer

IN_LIBRARY = True
OPERATIONS = ("all_to_all",)


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """One round of n (n - 1) transfers of 1/n of a rank's buffer; nothing is handed on: the longest way's latency is paid."""
    ranks = [rank for host in hosts for rank in host]
    longest = ranks[0], ranks[-1]
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    return (Round(tuple(Transfer(*pair, 1 / len(ranks), float(pair == longest)) for pair in pairs)),)
