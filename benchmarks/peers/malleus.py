"""Malleus' model (PKU-DAIR/Hetu 9e47240, python/hetu/engine/strategy.py) of training with slow devices, and plans under it.

4 pipelines train 60 layers with 64 microbatches on 16 groups of 2 A800; a few devices are slow. In units of a layer and
microbatch on a healthy group, a step takes

    T = max over pipelines i of m_i o_i,   o_i = max over stages j of y_j l_j,   sum of m_i = 64, m_i >= stages, sum of l_j = 60

with y the group's slowness: that of its slowest device, or 2 for the healthy one of a pair alone. Memory of a stage, in MB:

    (k_j l_j + 1200 at both ends) h + 5500 <= 81252 - 4096,   k_j by the stage's distance from the last, h = 2 on one device

Malleus enumerates placements and solves two integer programmes for each: layers, then microbatches. `joint` optimises all of
these together and exactly: the least T at which a dynamic programme over the remaining groups finds pipelines for 64
microbatches. `uniform` is the best layout that a plan file can express: one tp, one depth and one split for all pipelines.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

LAYERS, MICROBATCHES, PIPELINES, GROUPS = 60, 64, 4, 16
PER_LAYER = (4608.02, 4124.24, 3641.99, 3129.95)
"""MB of a layer by stage of four; the last stage keeps the fewest activations."""
EMBEDDING, EXTRA, MEMORY = 1200.0, 5500.0, 81252.0 - 4096.0
HALF = 2.0
"""Slowness of a group of one healthy device."""
SLOW = {
    "two slow": (4.79, 2.34),
    "three slow": (4.79, 3.8, 2.34),
}
"""Slowness of the slow devices, each in a different pair. The source's layout was planned with two slow devices: the third,
rank 16, is still used in a stage of 19 layers. The source's new input has three."""


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Devices of one stage of one pipeline: slowness, and memory per device in multiples of that of a healthy pair."""

    slowness: float = 1.0
    share: int = 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Groups and layers of the stages, in order."""

    groups: tuple[Group, ...]
    layers: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Time of one microbatch in the slowest stage, in the units above."""
        return max(group.slowness * layers for group, layers in zip(self.groups, self.layers, strict=True))

    @property
    def fits(self) -> bool:
        """Whether the stages have all layers and every stage fits memory."""
        rooms = (room(group, j, len(self.groups)) for j, group in enumerate(self.groups))
        return sum(self.layers) == LAYERS and all(k <= most for k, most in zip(self.layers, rooms, strict=True))


Layout = tuple[tuple[Pipeline, int], ...]
"""(pipeline, microbatches) each."""
REPORTED: Layout = (
    (Pipeline((Group(2.34), Group(HALF, 2), Group(), Group()), (11, 8, 19, 22)), 10),
    *(((Pipeline((Group(),) * 4, (15,) * 4)), 18),) * 3,
)
"""The source's layout for two slow devices: the slower one is not used, and the other device of its pair is a stage alone."""


def judge(layout: Layout) -> float:
    """T of a layout; raises ValueError where it breaks a constraint."""
    if sum(m for _, m in layout) != MICROBATCHES or not all(pipeline.fits for pipeline, _ in layout):
        raise ValueError("layers, microbatches or memory do not add up")
    if any(m < len(pipeline.groups) for pipeline, m in layout):
        raise ValueError("a pipeline has fewer microbatches than stages")
    return max(pipeline.seconds * m for pipeline, m in layout)


def room(group: Group, stage: int, stages: int) -> int:
    """Maximum number of layers that fit a stage."""
    end = EMBEDDING if stage in (0, stages - 1) else 0.0
    return int(((MEMORY - EXTRA) / group.share - end) // PER_LAYER[stage - stages])


@functools.cache
def fastest(groups: tuple[Group, ...]) -> Pipeline | None:
    """The fastest pipeline on these groups, in any order; None if the layers do not fit memory."""
    found = [p for order in set(itertools.permutations(groups)) if (p := filled(order)) is not None]
    return min(found, key=lambda p: (p.seconds, p.groups), default=None)


def filled(order: tuple[Group, ...]) -> Pipeline | None:
    """The fastest pipeline whose stages are on these groups in this order; None if the layers do not fit memory.

    Each of the layers goes to the stage that would be the fastest with it, among those with memory for it. This greedy choice
    minimises the time of the slowest stage: a later layer of a stage never takes less time than an earlier one."""
    rooms = [room(group, j, len(order)) for j, group in enumerate(order)]
    layers = [0] * len(order)
    if sum(rooms) < LAYERS:
        return None
    for _ in range(LAYERS):
        j = min((j for j in range(len(order)) if layers[j] < rooms[j]), key=lambda j: order[j].slowness * (layers[j] + 1))
        layers[j] += 1
    return Pipeline(order, tuple(layers))


def joint(slow: tuple[float, ...]) -> Layout:
    """The layout of least T over placement, depth, layers and microbatches."""
    return _least(lambda limit: _packed(slow, limit), (p.seconds for p, *_ in _choices(slow)))


def _choices(slow: tuple[float, ...]) -> list[tuple[Pipeline, int, int]]:
    """(pipeline, bits of the slow pairs that it uses, healthy pairs that it uses)."""
    found = []
    for bits in range(1 << len(slow)):
        ratios = [ratio for i, ratio in enumerate(slow) if bits >> i & 1]
        for healthy in range(len(PER_LAYER) + 1 - len(ratios)):
            for mixed in itertools.product(*((Group(ratio), Group(HALF, 2)) for ratio in ratios)):
                groups = (*mixed, *(Group(),) * healthy)
                if groups and (pipeline := fastest(tuple(sorted(groups)))) is not None:
                    found.append((pipeline, bits, healthy))
    return found


def _packed(slow: tuple[float, ...], limit: float) -> Layout | None:
    """Pipelines that process the most microbatches within the limit; None if these are not all microbatches."""
    choices = [(p, bits, n, int(limit / p.seconds + 1e-9)) for p, bits, n in _choices(slow)]

    @functools.cache
    def most(left: int, bits: int, healthy: int) -> tuple[int, Layout]:
        if not left:
            return 0, ()
        best: tuple[int, Layout] | None = None
        for pipeline, used, n, m in choices:
            if used & ~bits or n > healthy or m < len(pipeline.groups):
                continue
            rest, others = most(left - 1, bits & ~used, healthy - n)
            if rest >= 0 and (best is None or rest + m > best[0]):
                best = rest + m, ((pipeline, m), *others)
        return best or (-1, ())

    total, layout = most(PIPELINES, (1 << len(slow)) - 1, GROUPS - len(slow))
    return _trimmed(layout, total - MICROBATCHES) if total >= MICROBATCHES else None


def _trimmed(layout: Layout, over: int) -> Layout:
    """The layout with `over` microbatches fewer, each taken from the pipeline that finishes last."""
    counts = [m for _, m in layout]
    for _ in range(over):
        i = max(
            (i for i, (p, _) in enumerate(layout) if counts[i] > len(p.groups)), key=lambda i: counts[i] * layout[i][0].seconds
        )
        counts[i] -= 1
    return tuple((pipeline, m) for (pipeline, _), m in zip(layout, counts, strict=True))


def _least(packed: Callable[[float], Layout | None], seconds: Iterable[float]) -> Layout:
    """The layout at the least limit with a layout, by bisection; limits are whole numbers of microbatches of some pipeline."""
    limits = sorted({value * m for value in set(seconds) for m in range(1, MICROBATCHES + 1)})
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if packed(limits[middle]) is None:
            low = middle + 1
        else:
            high = middle
    found = packed(limits[low])
    assert found is not None
    return found


def uniform(slow: tuple[float, ...]) -> Layout:
    """The layout of least T with one split for all pipelines of four stages on pairs, which a plan file can express.

    In a pipeline the slowest group gets the fewest layers; slow pairs may be in one pipeline."""
    return min((_watered(p) for p in _uniform(slow)), key=judge)


def _uniform(slow: tuple[float, ...]) -> Iterator[tuple[Pipeline, ...]]:
    rooms = [room(Group(), j, 4) for j in range(4)]
    splits = [s for s in itertools.product(*(range(1, most + 1) for most in rooms)) if sum(s) == LAYERS]
    for shares in set(map(_sorted_shares, itertools.product(range(PIPELINES), repeat=len(slow)))):
        for split in splits:
            order = sorted(range(4), key=lambda j: split[j])
            pipelines = []
            for i in range(PIPELINES):
                groups = [Group()] * 4
                for j, ratio in zip(
                    order, sorted((slow[s] for s, of in enumerate(shares) if of == i), reverse=True), strict=False
                ):
                    groups[j] = Group(ratio)
                pipelines.append(Pipeline(tuple(groups), split))
            yield tuple(pipelines)


def _sorted_shares(shares: tuple[int, ...]) -> tuple[int, ...]:
    """The same assignment of slow pairs to pipelines, with pipelines numbered in order of appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(share, len(names)) for share in shares)


def _watered(pipelines: tuple[Pipeline, ...]) -> Layout:
    """Assign microbatches one by one to the pipeline that finishes first with one more."""
    counts = [len(p.groups) for p in pipelines]
    for _ in range(MICROBATCHES - sum(counts)):
        i = min(range(len(pipelines)), key=lambda i: (counts[i] + 1) * pipelines[i].seconds)
        counts[i] += 1
    return tuple(zip(pipelines, counts, strict=True))


@dataclass(frozen=True, slots=True)
class Row:
    """A case: T of Malleus' layout (None if the source has none), the best layout, the best uniform one; CPU seconds."""

    name: str
    reported: float | None
    joint: Layout
    uniform: Layout
    seconds: float


def measure() -> list[Row]:
    """Rows of both cases."""
    rows = []
    for name, slow in SLOW.items():
        begun = time.process_time()
        found = joint(slow)
        seconds = time.process_time() - begun
        rows.append(Row(name, judge(REPORTED) if name == "two slow" else None, found, uniform(slow), seconds))
    return rows
