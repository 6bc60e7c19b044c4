"""Lists the pipelines with given numbers of stages that may finish within a deadline (`planner.bounds.greedy_filling`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.bounds.greedy_filling import Filling

Layers = NDArray[np.int64]


def pipelines(filling: Filling, largest: Sequence[int], most: int) -> Layers | None:
    """Layers of all pipelines with exactly `counts` stages that may finish in time, shape (pipelines, stages).

    largest: as `largest_layers`. None where they, or their parts from some stage on, are more than `most`. Enumeration from the
    last stage to the first, of all pipelines at once, pruned by the most layers that the stages before can take. It uses the
    exact seconds, not the envelope, so a size may be feasible although a smaller one is not."""
    pp, vpp = len(filling.classes), filling.stages.vpp
    layers, left, behind = np.empty((1, 0), np.int64), np.array([filling.stages.layers]), np.zeros(1)
    for stage, i in reversed([*enumerate(filling.classes)]):
        if not len(left):
            return np.empty((0, pp), np.int64)
        role, before = "last" if stage == pp - 1 else "middle" if stage else "first", sum(largest[:stage])
        parts = []
        for total in np.unique(left).tolist():
            least, rows = total - before if stage else total, np.flatnonzero(left == total)
            ks = np.arange(max(least, vpp), min(largest[stage], total - stage * vpp) + 1)
            room = np.array([filling.room(i, role, k, total, pp - 1 - stage, True) for k in ks.tolist()])
            row, column = np.nonzero(behind[rows, None] <= room) if len(ks) else (rows[:0], rows[:0])
            parts.append((rows[row], ks[column]))
        rows, added = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
        if len(rows) > most:
            return None
        trips = {k: filling.sizes(i, role, pp - 1 - stage).exact(k).trip for k in np.unique(added).tolist()}
        layers, left = np.column_stack([added, layers[rows]]), left[rows] - added
        behind = behind[rows] + np.array([trips[k] for k in added.tolist()])
    return layers


def largest_layers(filling: Filling) -> list[int] | None:
    """Most layers of every stage, whatever the others hold; None where the stages cannot hold all layers."""
    left, least, found = filling.stages.layers, filling.stages.vpp, []
    missing = left - sum(filling.most[i] for i in filling.classes)  # beside what the stages may have by their work alone
    for after, i in enumerate(reversed(filling.classes)):
        before = (len(filling.classes) - 1 - after) * least
        role = "last" if not after else "middle" if before else "first"
        sizes = filling.sizes(i, role, after)
        most = sizes.most_within(filling.seconds)
        k = min(filling.most[i], most, filling.stages.most_by_memory(i, role, after, filling.pp))
        trips = after * least * filling.round_rate[i]  # the stages behind may hold fewer layers than `found` says
        missing += filling.most[i] - k
        if k < least or missing > 0:
            return None
        while filling.room_of(sizes.envelope(k), i, k, max(left, k + before) if before else k, after) < trips:
            k, missing = k - 1, missing + 1
            if k < least or missing > 0:
                return None
        left = max(left - k, before)
        found.append(k)
    return found[::-1]
