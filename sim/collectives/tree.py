"""Double binary tree between hosts, a chain inside each: a logarithmic number of latencies instead of one per rank.

Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009; the
tree algorithm of NCCL. Each tree carries half of the buffer, and a host is an inner node of at most one tree. Pieces are
pipelined, so the depth adds latency only: that of a step, and between hosts the time of a chunk.
"""

from __future__ import annotations

from sim.collectives import Hosts, Round, Transfer

IN_LIBRARY = True
IN_NETWORK = False
PIPELINED = True
OPERATIONS = ("all_reduce",)


def rounds(operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """One round: reduce up the chains and both trees, broadcast down again, all pipelined.

    The longest chain and the deepest path of the first tree carry the latency.
    """
    heads = [host[0] for host in hosts]
    n = len(heads)
    edges = _parents(n)
    deepest = max(edges, key=lambda edge: _depth(edges, edge[0]), default=(0, 0))[0]
    path = _path(edges, deepest)
    longest = max(hosts, key=len)
    up = [Transfer(host[i + 1], host[i], 1.0, float(host is longest)) for host in hosts for i in range(len(host) - 1)]
    up += [Transfer(heads[a], heads[b], 0.5, float(a in path)) for a, b in edges]
    up += [Transfer(heads[(a + 1) % n], heads[(b + 1) % n], 0.5, 0.0) for a, b in edges]  # shifted: inner nodes become leaves
    down = [Transfer(t.target, t.source, t.share, t.steps) for t in up]
    return (Round(tuple(up + down)),)


def _parents(n: int) -> list[tuple[int, int]]:
    """(child, parent) of the binary tree over 0 to n - 1 in which the height of a node is that of its lowest set bit."""
    edges = []
    for node in range(1, n):
        bit = node & -node
        parent = (node ^ bit) | (bit << 1)
        edges.append((node, parent if parent < n else node ^ bit))
    return edges


def _path(edges: list[tuple[int, int]], node: int) -> set[int]:
    """Nodes from `node` up to the root, without the root: the children of the edges on the path."""
    parents = dict(edges)
    path = set()
    while node in parents:
        path.add(node)
        node = parents[node]
    return path


def _depth(edges: list[tuple[int, int]], node: int) -> int:
    return len(_path(edges, node))
