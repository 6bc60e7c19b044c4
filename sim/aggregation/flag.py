"""flag: the islands' values, scaled to one norm, projected onto the subspace that most of them share (Flag Aggregator).

Almasi et al., arXiv 2302.05865. The text of the paper was not at hand; this is its code (hamidralmasi/FlagAggregator,
aggregators/flag.py and center_algorithms_torch.py): the columns of X are the values of p islands with norm 1, Y are the left
singular vectors of the (p + 1) / 2 largest singular values of X, rounded up, with columns weighted anew by their distance to Y
in each iteration of IRLS (one there, so that all weigh the same), and the result is Y Y' X summed over the columns. A guess is
the length of the result, which that code loses: here it is the mean of the projected columns times the median norm of the
islands, so that equal islands give their own values.

Everything follows from the p x p products of the islands' values, so that iterations cost nothing."""

from __future__ import annotations

NAME = "flag"
ITERATIONS = 1
"""Iterations of IRLS (`n_its` of that code)."""
WITHSTOOD = 5
"""One island in so many was wrong in the experiments of that code on scale (scripts_for_experiments/run_exp_scalability.sh: 3
of 15, 6 of 30, 12 of 60). What the paper proves is not known here, so that this share stands for it: a guess."""


def rank(islands: int) -> int:
    """Dimension of the subspace."""
    return (islands + 2) // 2


def tolerated(islands: int) -> int:
    """`WITHSTOOD`."""
    return islands // WITHSTOOD


def passes(islands: int) -> float:
    """The product of each pair, and of each island with itself, reads two values; all are read for the result.

    Small beside that, and left out: singular values of p x p matrices."""
    return islands * (islands + 1) + islands + 1


def kept(islands: int) -> float:
    """Those of all islands."""
    return float(islands)


def efficiency(islands: int) -> None:
    """Unknown: noise within the subspace stays, that outside is removed."""
