"""Disjoint sets of numbers: union-find with path halving. The import of NetworkX's own takes as long as small plans."""

from __future__ import annotations


class DisjointSets:
    """Sets of numbers that share no member. A number that was never joined is alone in its set."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def join(self, first: int, *others: int) -> None:
        """Unite the sets of some numbers."""
        root = self.root(first)
        for other in others:
            self._parents[self.root(other)] = root

    def root(self, member: int) -> int:
        """The member that stands for the set of a number: the same one for all of its members, until sets are united."""
        parents = self._parents
        parent = parents.setdefault(member, member)
        while parent != member:
            parents[member] = above = parents[parent]
            member, parent = above, parents[above]
        return member
