"""The link-load test: how many stages of each class a pipeline may have so that its busiest link carries all messages in time.

A link carries the messages of m microbatches in no less than m times the seconds of one microbatch's. So m times the seconds of
one microbatch's messages on the busiest link, and the tail of the first stage, which follows all messages, is a lower bound on
the step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate, product

from planner.bounds.ordered_stages import OrderedStages
from planner.costs.busy_links import BusyLink, Turns, busy_links
from planner.costs.stage_positions import Stages
from planner.placement.leaves import oversubscribed


class LinkLoad:
    """Load of the busiest link by the point-to-point messages of pipelines over classes in an order."""

    def __init__(self, stages: OrderedStages):
        self.order, self._capacities = stages.order, stages.max_stages
        self.m = stages.shape.least_microbatches(stages.context.request.workload)
        self.stages, self._busy = stages, dict[tuple[int, ...], list[BusyLink]]()
        self._open = stages.context.fleets.open
        self._load = functools.partial(stages.context.loads.load, shape=stages.shape, nic=stages.nic, fleet=self._open)

    def carries(self, counts: Sequence[int], pp: int, seconds: float) -> bool:
        """Whether the busiest link carries all messages of a pipeline with `counts` stages of each class within `seconds`.

        True if the counts do not add up to `pp`: then they are upper limits, and no particular pipeline is tested."""
        if self.m * self._heaviest + self.tail <= seconds or sum(counts) != pp:
            return True
        runs = tuple((option.cluster, 0, count) for option, count in zip(self.order, counts, strict=True))
        return self.m * self._load(runs, whole=True) + self.tail <= seconds

    def most_stages(self, seconds: float) -> list[int]:
        """Most stages of each class whose messages the busiest link carries within `seconds`; 0 where no number is possible.

        Numbers are tested from the largest down."""
        found = []
        for i, (option, count) in enumerate(zip(self.order, self._capacities, strict=True)):
            most = min(count, 4 * len(option.costs) + 2)  # with more stages, the busiest link carries the same
            if self.m * self._heaviest + self.tail > seconds and self.m * self._least(i, most) + self.tail > seconds:
                least = 1 if len(self.order) > 1 else 2  # a class with a single stage needs another class
                count = next(
                    (n for n in range(most - 1, least - 1, -1) if self.m * self._least(i, n) + self.tail <= seconds), 0
                )
            found.append(count)
        return found

    def least(self, classes: Sequence[int], tail: float) -> float:
        """A lower bound on the steps of pipelines whose stages are of these classes, by their busiest links: with one layer on
        each virtual stage, the pipeline fills before their first message and drains after their last one
        (`planner.costs.busy_links`), and then has the `tail` of its first stage. 0 on an oversubscribed fabric.

        Of virtual stages, only those of the first chunk count. Where `Turns` are known, the first microbatch passes all stages
        up to the sender before the link's work begins, and the last one all others, and back, once most of it is done: together
        a forward and a backward of every layer, wherever the layers are."""
        stages, least = self.stages, 0.0
        links = self._busy_links(tuple(classes))
        if not links:
            return least
        rates = [stages.rates[i] for i in classes]
        hops = [0.0, *accumulate(stages.hops(classes))]
        forwards, inputs = ([*accumulate(rate[which] for rate in rates)] for which in (0, 2))
        round_trips = [rate[1] for rate in rates]  # of one layer of each stage
        once = sum(round_trips) + max(stages.layers - len(classes), 0) * min(round_trips)
        for link in links:
            ahead = link.first_ahead if link.first_ahead >= 0 else len(classes) - 1
            start = forwards[ahead] + hops[ahead]
            rest = inputs[link.first_back - 1] + hops[link.first_back - 1] if 0 < link.first_back < len(classes) else 0.0
            least = max(least, start + self.m * link.seconds + rest)
            turns = Turns.of(link, stages.shape.schedule, len(classes), self.m) if stages.vpp == 1 else None
            if turns is not None and (work := turns.work(link, self.m)):
                least = max(least, once + 2 * hops[-1] + work)
        return least + tail

    def _busy_links(self, classes: tuple[int, ...]) -> list[BusyLink]:
        if classes not in self._busy:
            clusters = self.stages.clusters
            is_known = not any(oversubscribed(cluster) for cluster in clusters)
            ends = [(clusters[i], index - classes.index(i)) for index, i in enumerate(classes)]
            loads = self.stages.context.loads
            self._busy[classes] = busy_links(loads, ends, self.stages.shape, self.stages.nic) if is_known else []
        return self._busy[classes]

    @functools.cached_property
    def tail(self) -> float:
        """Least seconds of a step after its last message: the tail of the first stage."""
        return self.stages.first_tail

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
