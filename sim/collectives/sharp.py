"""SHARP: switches between hosts add up the buffers of all hosts; a chain inside each host.

Graham et al., "Scalable Hierarchical Aggregation and Reduction Protocol (SHARP) Streaming-Aggregation Hardware Design and
Evaluation", ISC 2020; NCCL's algorithms CollNet (a chain inside the host) and NVLS with CollNet (its switch adds up). Every
host sends the buffer once into the network and receives the sum once, so that a leaf's uplink carries it once too: the load of
a ring of hosts with the whole buffer on every edge. Pieces are pipelined, and the latency is that of a tree of depth one.
"""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer

IN_LIBRARY = True
IN_NETWORK = True
PIPELINED = True
OPERATIONS = ("all_reduce",)


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """One round: up the chains, through the switches, and down the chains again, all pipelined.

    The longest chain carries the latency, and one edge between hosts that of both directions through the network.
    """
    heads = [host[0] for host in hosts]
    longest = max(hosts, key=len)
    up = [Transfer(host[i + 1], host[i], 1.0, float(host is longest)) for host in hosts for i in range(len(host) - 1)]
    down = [Transfer(t.target, t.source, t.share, t.steps) for t in up]
    edges = zip(heads, heads[1:] + heads[:1], strict=True) if len(heads) > 1 else ()
    across = [Transfer(a, b, 1.0, 2.0 if a == heads[0] else 0.0) for a, b in edges]
    return (Round(tuple(up + across + down)),)
