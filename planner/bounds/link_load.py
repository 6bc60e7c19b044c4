"""The link-load test: how many stages of each class a pipeline may have so that its busiest link carries all messages in time.

A link carries the messages of m microbatches in no less than m times the seconds of one microbatch's. So m times the seconds of
one microbatch's messages on the busiest link is a lower bound on the step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product

from planner.bounds.ordered_stages import OrderedStages
from planner.costs.stage_positions import Stages


class LinkLoad:
    """Load of the busiest link by the point-to-point messages of pipelines over classes in an order."""

    def __init__(self, stages: OrderedStages):
        self.order, self._capacities = stages.order, stages.max_stages
        self.m = stages.shape.least_microbatches(stages.context.request.workload)
        self._open = stages.context.fleets.open
        self._load = functools.partial(stages.context.loads.load, shape=stages.shape, nic=stages.nic, fleet=self._open)

    def carries(self, counts: Sequence[int], pp: int, seconds: float) -> bool:
        """Whether the busiest link carries all messages of a pipeline with `counts` stages of each class within `seconds`.

        True if the counts do not add up to `pp`: then they are upper limits, and no particular pipeline is tested."""
        if self.m * self._heaviest <= seconds or sum(counts) != pp:
            return True
        runs = tuple((option.cluster, 0, count) for option, count in zip(self.order, counts, strict=True))
        return self.m * self._load(runs, whole=True) <= seconds

    def most_stages(self, seconds: float) -> list[int]:
        """Most stages of each class whose messages the busiest link carries within `seconds`; 0 where no number is possible.

        Numbers are tested from the largest down."""
        found = []
        for i, (option, count) in enumerate(zip(self.order, self._capacities, strict=True)):
            most = min(count, 4 * len(option.costs) + 2)  # with more stages, the busiest link carries the same
            if self.m * self._heaviest > seconds and self.m * self._least(i, most) > seconds:
                least = 1 if len(self.order) > 1 else 2  # a class with a single stage needs another class
                count = next((n for n in range(most - 1, least - 1, -1) if self.m * self._least(i, n) <= seconds), 0)
            found.append(count)
        return found

    @functools.cached_property
    def _heaviest(self) -> float:
        """An upper bound on the seconds of one microbatch's messages on any link; where it is small, the test is skipped.

        It sums the messages between all stages of one node and their neighbours, each at the load of the costliest pair."""
        positions = [(option, position) for option in self.order for position in range(len(option.costs))]
        pairs = [(one, i, one, i + 1) for one, i in positions if i + 1 < one.max_stages]
        pairs += [(a, i, b, j) for a, i in positions for b, j in positions if a is not b]
        heaviest = max((self._load(((a.cluster, i, 1), (b.cluster, j, 1))) for a, i, b, j in pairs), default=0.0)
        return 2 * (max(len(option.costs) for option in self.order) + 1) * heaviest

    def _least(self, i: int, stages: int) -> float:
        """Least seconds of one microbatch's messages on the busiest link of the first `stages` stages of class i and their
        neighbours in other classes, over all positions of those neighbours on their nodes."""
        mine = (self.order[i].cluster, 0, stages)

        def beside(j: int) -> list[tuple[Stages, ...]]:
            """The neighbouring stage of class j, in every position on its nodes."""
            if not 0 <= j < len(self.order):
                return [()]
            return [((self.order[j].cluster, position, 1),) for position in range(len(self.order[j].costs))]

        runs = ((*before, mine, *behind) for before, behind in product(beside(i - 1), beside(i + 1)))
        return min(self._load(run) for run in runs)
