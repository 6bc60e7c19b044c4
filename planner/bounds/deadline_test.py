"""The deadline test: whether some pipeline over given node classes, in a given order, can finish a step within T seconds.

A negative answer is a proof, so a search over T yields a lower bound on the step time (`deadline_bound`). The test is a
conjunction of necessary conditions. Take a stage of k layers with b layers before it, in a step of m microbatches:

    (1) stage end     max(fill(b), begin(k)) + m cycle(k) + tail(k)                                            <= T
    (2) drain end     max(fill(b), begin(k)) + max(m busy(k) - d weight(k), m lane(k)) + drain(b) + first tail <= T
    (3) round trips   fill(b) + n trip(k) + other steps of the rank + trip(k) + drain(b) + first tail          <= T
    (4) first return  max(fill(b), begin(k)) + trip(k) + later steps of the rank + tail(k)                     <= T

fill(b)      forwards and messages of the first microbatch through the b layers before, on the classes where they take least
begin(k)     time before which the parameter gathers of the stage do not let its first forward begin
cycle(k)     seconds of one microbatch on the stage's most loaded resource: ranks, data-parallel network or message lane
busy(k)      seconds of one microbatch on the stage's ranks; lane(k): on its message lane, if the schedule overlaps messages
d weight(k)  seconds of the d weight gradients (W) that a zero-bubble schedule may defer until after the last backward (B)
tail(k)      seconds from the end of the stage's last backward to its own end: gradient reduction, optimizer, tied embedding
first tail   the least tail of the first stage
drain(b)     gradients of inputs and messages of the last microbatch, back through the b layers before
trip(k)      forward and gradients of inputs of one microbatch on the stage and on all stages behind it, and the messages there
             and back

Why (1) is necessary: the stage cannot begin before the first microbatch arrives, its cycles do not overlap, and its tail
follows them. Why (2) is necessary: after the last backward of this stage, the last microbatch still passes all stages before
it, and then the first stage runs its tail. Fill and drain pass the same b layers on the same classes, so fill + drain is one
least sum: the b layers go to the classes where forward plus gradients of inputs takes least. If begin is later than fill, begin
+ drain is tested, too: then fill does not count, and drain is the least sum of the gradients of inputs alone. Where a rank
waits for its messages to leave, the send of the last gradient is part of drain, not of busy.

Why (3) is necessary: `sim.plan.round_trips` says which steps of a rank follow one another between its first forward and its
last one, among them n round trips. The last forward begins another trip, after which the last microbatch drains. Where borders
are slow, a trip takes longer than the work of the microbatches that the schedule lets in meanwhile. (3) is tested where the
number of stages is known. With virtual stages, a trip passes all of them, and fill and drain the first ones.

Why (4) is necessary: the first backward of the stage follows the first round trip, and all that the schedule of its rank has
after that backward follows it, then the tail. So a stage with a long tail waits for the stages behind it, too. With virtual
stages, it is the first one of the rank.

Under schedules that receive first (DeepSpeed), busy(k) also counts the messages that the stage before holds
(`planner.bounds.stage_messages`), so far as the number of stages is known.

A step also takes no less than a NIC of the stage's nodes needs for its messages, gradients and weights together
(`planner.bounds.shared_nics`), which matters where no rank waits for messages to leave.

Relaxations of a pipeline are tested one after the other: all orders of the classes at once (`planner.bounds.any_order`), the
greedy filling of stages in one order (`planner.bounds.greedy_filling`, which proves that greedy is optimal), and the messages
on the busiest link (`planner.bounds.link_load`). The test passes (True) where none of them excludes T. Given the number of
stages of each class (`CountsTest`), their nodes are known, and so are the messages that leave a node. The pipelines that are
left are listed, and bounded by the same inequalities with all stages known (`planner.bounds.whole_pipelines`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Protocol

import numpy as np

from planner.bounds.greedy_filling import Filling, Pipeline
from planner.bounds.link_load import LinkLoad
from planner.bounds.listing import Layers, largest_layers, pipelines
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_counts import holding
from planner.bounds.whole_pipelines import least_steps
from planner.costs.node_classes import under
from planner.placement.leaves import oversubscribed
from planner.space import lengths
from planner.space.shapes import overlaps
from sim.errors import NoRoute

PRECISE = 1e-3
"""Relative width of the interval at which the bisection for a bound stops (a guess). A larger one loosens bounds."""
ROUGH = 0.05
"""The same for a bound that serves only to order the search (a guess)."""
COUNTS = 200
"""Maximum number of splits of pp stages over the classes that are tested one by one (a guess), for a schedule that is not
defined for every pp. If there are more splits, one test takes the most stages of each class, which is quicker and weaker."""
SPLITS = 1_000
"""Most splits of a pipeline's stages over the classes that are tested one by one for a variant's last bound (a guess)."""
FEW_SPLITS = 1_000
"""Splits up to which pipelines are listed for each that has enough compute, without a test of its own (a guess)."""
ENUMERATED = 200_000
"""Most pipelines with given numbers of stages that are enumerated (a guess): a tenth of a second for ten stages."""


MANY = 100
"""Pipelines from which it pays to test both orders of gathers apart (a guess): computing the costs of stages anew takes longer
than evaluating fewer."""


class Test(Protocol):
    """A test of some pipelines."""

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""


def deadline_bound(tests: Iterable[Test], least: float, cutoff: float, precise: float = PRECISE) -> float:
    """A lower bound in seconds on the step of all pipelines of the tests.

    `least`: a known lower bound. The result is at least `least`, and at most the larger of `least` and `cutoff`. Bisection on a
    logarithmic scale to a relative width of `precise`, test by test; a test that does not pass at the least bound of the tests
    before it is done. Invariant: no test so far passes at `bound`, or `bound` is `least`."""
    bound = max(least, cutoff)
    for test in tests:
        if bound <= least or not test.within(bound):
            continue
        low, high = least, bound
        while math.isfinite(high) and high > low * (1 + precise):
            middle = math.sqrt(low * high) if low > 0 else high / 2
            low, high = (low, middle) if test.within(middle) else (middle, high)
        bound = low
    return bound


class DeadlineTest:
    """The deadline test of pipelines over classes in one order, with one stage or more of each (`OrderedStages`)."""

    def __init__(self, stages: OrderedStages):
        self.stages, self.order, self._links = stages, stages.order, LinkLoad(stages)
        self.exact = not any(oversubscribed(cluster) for cluster in stages.clusters)
        """Whether no choice of nodes makes a pipeline faster than the evaluator says. On an oversubscribed fabric, another
        choice may."""
        self._counted: dict[int, OrderedStages] = {}

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        stages = self.stages
        if not stages.possible or any(option.layer_seconds * stages.m > seconds for option in self.order):
            return False
        if not self._fill(stages.max_stages, seconds):
            return False
        counts = self._links.most_stages(seconds)
        return counts == stages.max_stages or self._fill(counts, seconds)

    def _fill(self, counts: list[int], seconds: float) -> bool:
        """Whether the stages can hold all layers within `seconds`, with at most `counts` stages of each class."""
        if not self._computable(counts, seconds) or not all(counts):
            return False
        if not any(self._hold(some, seconds) for some in self._allowed_counts(counts)):
            return False
        return not self.stages.chunked or any(
            self._computable(some, seconds)
            and Filling(self.stages, seconds, some, pp).succeeds()
            and self._links.carries(some, pp, seconds)
            for pp, some in self._lengths(counts, seconds)
        )

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """All pipelines that might finish within `seconds`; None where there are more than `most`."""
        stages = self.stages
        found: list[Pipeline] = []
        counts = self._links.most_stages(seconds) if stages.possible else [0]
        if math.prod(counts) > most:
            return None
        few = math.prod(counts) <= FEW_SPLITS  # listing each rules out more than filling, and takes as long
        for some in self._splits(counts, seconds, not few):
            counted = self._with_last(some[-1] - 1)
            largest = largest_layers(filling := Filling(counted, seconds, list(some), sum(some)))
            if largest is None or not self._links.carries(some, sum(some), seconds):
                continue
            layers = pipelines(filling, largest, ENUMERATED)
            if layers is None:
                return None
            chosen = [layers[:0]]
            for first in range(0, len(layers), 2 * most):  # part by part, because many splits have far more than `most`
                part = layers[first : first + 2 * most]
                chosen.append(self._within(counted, filling.classes, part, seconds))
                if len(found) + sum(map(len, chosen)) > most:
                    return None
            layers = np.concatenate(chosen)
            found += [tuple(zip(filling.classes, row, strict=True)) for row in layers.tolist()]
        return found

    def _within(self, counted: OrderedStages, classes: Sequence[int], layers: Layers, seconds: float) -> Layers:
        """Those of many pipelines that might finish within `seconds` by `least_steps`; shapes (pipelines, stages).

        counted: the stages where the last one is known.

        Where the test holds for gathers before the forwards and after the optimizer, `least_steps` leaves them out. Where many
        pipelines are left, it is asked under each of both: a step has the gathers in one of both places."""
        left = layers[least_steps(counted, classes, layers) <= seconds]
        if self.stages.either and len(left) >= MANY:
            left = left[np.min([least_steps(stages, classes, left) for stages in self._apart], axis=0) <= seconds]
        return left

    @functools.cached_property
    def _apart(self) -> list[OrderedStages]:
        """The stages under each order of gathers."""
        context, horizon = self.stages.context, self.stages.horizon
        return [OrderedStages(context, under(context, one, self.order), horizon) for one in overlaps(self.stages.shape)]

    def by_counts(self, seconds: float) -> list[CountsTest] | None:
        """Tests of given numbers of stages, together of all pipelines that might finish within `seconds`; None where they are
        more than `SPLITS`."""
        counts = self._links.most_stages(seconds) if self.stages.possible else [0]
        if math.prod(counts) > SPLITS:
            return None
        return [CountsTest(self._with_last(some[-1] - 1), some, self._links) for some in self._splits(counts, seconds)]

    def _with_last(self, index: int) -> OrderedStages:
        """The stages where the last one is that with this index of its class: then the seconds of a tied embedding are known.

        On an oversubscribed fabric, where other nodes may have other positions, those of any."""
        stages = self.stages
        if not stages.tied or not self.exact:
            return stages
        if index not in self._counted:
            tied = stages.tied
            with suppress(NoRoute):
                tied = stages.context.tied.seconds(stages.clusters[0], stages.clusters[-1], index, stages.shape, stages.nic)
            alike = (one for one in self._counted.values() if one.tied == tied)
            self._counted[index] = next(alike, None) or stages.with_tied(max(tied, stages.tied))
        return self._counted[index]

    def _splits(self, counts: Sequence[int], seconds: float, are_filled: bool = True) -> Iterator[tuple[int, ...]]:
        """Numbers of stages of each class, at most `counts`, of pipelines that the request and the schedule allow, and that
        compute and, if `are_filled`, the greedy filling do not rule out within `seconds`."""
        stages, most = self.stages, self.stages.layers // self.stages.shape.vpp
        holds = self._hold if are_filled else self._computable
        for some in holding(counts, lambda some: holds(some, seconds)):
            if 2 <= sum(some) <= most and self._is_allowed(some) and stages.shape.is_defined(stages.m, sum(some)):
                yield some

    def _lengths(self, most: list[int], seconds: float) -> Iterator[tuple[int, list[int]]]:
        """(pp, stages of each class) for every number of stages pp that the schedule is defined for.

        If pp has more than `COUNTS` splits over the classes: pp with the most stages of each class."""
        stages = self.stages
        fewest = math.ceil(stages.layers / max(stages.most_by_compute(seconds)))
        for pp in range(max(2, fewest, len(most)), min(sum(most), stages.layers // stages.shape.vpp) + 1):
            if lengths.allows(stages.context.request, stages.shape, pp) and stages.shape.is_defined(stages.m, pp):
                limits = [min(one, pp - len(most) + 1) for one in most]
                splits = (
                    some for some in product(*(range(1, one + 1) for one in limits[1:])) if 0 < pp - sum(some) <= limits[0]
                )
                found = list(islice(splits, COUNTS + 1))
                for some in found if len(found) <= COUNTS else []:
                    yield pp, [pp - sum(some), *some]
                if len(found) > COUNTS:
                    yield pp, limits

    def _hold(self, counts: Sequence[int], seconds: float) -> bool:
        """Whether at most `counts` stages of each class hold all layers within `seconds`, by compute and greedy filling."""
        return self._computable(counts, seconds) and Filling(self.stages, seconds, list(counts), None).succeeds()

    def _computable(self, counts: Sequence[int], seconds: float) -> bool:
        """Whether `counts` stages of each class hold all layers by the compute of the layers alone."""
        most = self.stages.most_by_compute(seconds)
        return sum(count * one for count, one in zip(counts, most, strict=True)) >= self.stages.layers

    def _allowed_counts(self, counts: list[int]) -> list[list[int]]:
        """Numbers of stages of each class, so that every pipeline with at most `counts` stages that the request allows has at
        most as many as one of them; `counts` itself where these are more than `COUNTS`."""
        longest = self.stages.longest
        if self._affords(counts) and (longest is None or sum(counts) <= longest):
            return [counts]
        if math.prod(counts[:-1]) > COUNTS:
            return [counts]
        found = []
        for some in product(*(range(1, count + 1) for count in counts[:-1])):
            most = counts[-1] if longest is None else min(counts[-1], longest - sum(some))
            last = next((last for last in range(most, 0, -1) if self._affords([*some, last])), 0)
            if last:
                found.append([*some, last])
        return found

    def _affords(self, counts: Sequence[int]) -> bool:
        """Whether the request allows the nodes of so many stages of each class, and their rent."""
        request = self.stages.context.request
        named = {option.cluster.name: count for option, count in zip(self.order, counts, strict=True)}
        return request.limits.allows_nodes(request.topology.fleet, self.stages.shape, named)

    def _is_allowed(self, counts: Sequence[int]) -> bool:
        """Whether pins and limits of the request allow a pipeline with so many stages of each class."""
        return lengths.allows(self.stages.context.request, self.stages.shape, sum(counts)) and self._affords(counts)


@dataclass(frozen=True, slots=True)
class CountsTest:
    """The deadline test of the pipelines with given numbers of stages of each class, so that the positions of all stages on
    their nodes are known, and with them their messages (`OrderedStages.hops`)."""

    stages: OrderedStages
    counts: tuple[int, ...]
    links: LinkLoad

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        pp = sum(self.counts)
        filling = Filling(self.stages, seconds, list(self.counts), pp)
        return (
            filling.succeeds()
            and self.links.carries(self.counts, pp, seconds)
            and self.links.least(filling.classes, self.stages.first_tail) <= seconds
        )
