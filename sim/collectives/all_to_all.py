"""All-to-all: every rank sends a different part of its buffer to each other rank, all at the same time.

NCCL has no other algorithm for it: it is a group of sends and receives (NCCL user guide, point-to-point communication)."""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer

IN_LIBRARY = True
IN_NETWORK = False
PIPELINED = False
OPERATIONS = ("all_to_all",)


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """One round of n (n - 1) transfers of 1/n of a rank's buffer. None waits for another: one latency, first to last.

    A rank hands its messages to other hosts to its NIC one after the other; the smallest host has most of them. Inside one host
    they are those to all other ranks.
    """
    ranks = [rank for host in hosts for rank in host]
    longest = ranks[0], ranks[-1]
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    transfers = tuple(Transfer(*pair, 1 / len(ranks), float(pair == longest)) for pair in pairs)
    here = min(len(host) for host in hosts) if len(hosts) > 1 else 1
    return (Round(transfers, messages=len(ranks) - here),)
