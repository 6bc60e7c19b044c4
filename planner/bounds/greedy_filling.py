"""Greedy filling: assigns layers to the stages of a pipeline, from the last stage to the first, as many as a deadline allows.

Idea. A stage of k layers with b layers before it is feasible for a deadline T if the inequalities of
`planner.bounds.deadline_test` hold and k layers fit its memory. The filling visits the stages from the last to the first, finds
the fewest layers that can be before each of them, and succeeds if the first stage can hold what is left. If it fails, no
pipeline finishes within T.

Why (exchange argument). For fixed b, feasibility is monotone in k: if k layers are feasible, fewer are, even if the stages
behind hold the others, each in no more seconds than here. To make it so, the terms that may fall with k (begin and the stage
end) are replaced by their least values over k and all larger sizes (`StageSizes.envelope`); all other terms never fall with k.
Let n' be the fewest layers that a stage and all before it can have, by the stages behind. Take a pipeline in which they have n,
and b are before the stage. If b < n', then n' - b layers are feasible for it, too, for they are at most n - b. If b >= n', then
one layer is. So the least b for which max(n' - b, 1) layers are feasible is not above the b of any pipeline. The round trips
(inequality 3) may need b > n': many layers behind a stage can leave it no time for a single one. Invariant: when the filling
has passed a stage, no feasible pipeline has fewer layers before it.

A stage holds more microbatches in flight the more stages are behind it. Memory therefore counts only the stages that are
certainly behind: all filled stages of the same class, and one stage of each later class (all its stages if the counts are
exact)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_sizes import StageSeconds, StageSizes
from sim.plan.round_trips import RoundTrips

Pipeline = tuple[tuple[int, int], ...]
"""(class, layers) of every stage in pipeline order."""


class Filling:
    """Layers on the stages of a pipeline within `seconds`, from the last stage to the first.

    counts: most stages of each class. pp: the number of stages, if known; if the counts add up to it, they are exact, not upper
    limits. A class is given by its index in the order."""

    def __init__(self, stages: OrderedStages, seconds: float, counts: list[int], pp: int | None):
        self.stages, self.seconds, self.counts, self.pp = stages, seconds, counts, pp
        self.most = stages.most_by_compute(seconds)
        self._limits: dict[tuple[int, str], int] = {}
        self.exact = self.counted = sum(counts) == pp  # counted: the number of stages behind a stage is known
        self.classes = [i for i, count in enumerate(counts) for _ in range(count)] if self.exact else []
        self.hops = [0.0, *(stages.hops(self.classes) if self.exact else ()), 0.0]  # before and behind each stage
        self.both = stages.both(self.classes) if self.exact else []
        self.messages_before: list[float] = [*accumulate(self.hops[:-1])]
        self.earlier: Sequence[int] = range(len(counts))
        self.stages_before = [*accumulate(counts)]
        self.borders, self.hop, self.round_rate, self.by_rate = stages.before
        self.wrap = stages.wrap if stages.vpp > 1 else 0.0  # least seconds of a message from the last stage to the first one
        self.longest = [*accumulate(self.most, max, initial=1)][1:]
        self.able = [most * count for most, count in zip(self.most, counts, strict=True)]

    def succeeds(self) -> bool:
        """Whether the stages can hold all layers, with a stage of each class."""
        left = self.stages.layers
        for i in reversed(range(len(self.counts))):
            here = left
            behind = sum(self.counts[i + 1 :]) if self.exact else len(self.counts) - 1 - i
            for after in range(behind, behind + self.counts[i]):
                may_be_first = i == 0 and after and (not self.exact or after == len(self.classes) - 1)
                if may_be_first and self._fits(0, "first", left, left, after):
                    return True
                before = self.fewest_before(i, "middle" if after else "last", left, after)
                if before is None:
                    break
                left = before if self.counted else min(left, before)
            if left == here and not self.counted:
                return False
        return False

    def fewest_before(self, i: int, role: str, left: int, after: int) -> int | None:
        """Fewest layers before a stage of class i with `after` stages behind it, if it and the stages before have `left` layers
        or more; None where no pipeline has such a stage. At least one layer is left for each earlier class, and for the first
        stage."""
        stages, limit = self.stages, self._limit(i, role)
        before, most = max(self.earlier[i], 1), stages.layers - after - 1
        if limit > 0 and before < left:
            limit = min(limit, stages.most_by_memory(i, role, after, self.pp))
        if limit <= 0:
            return None
        before, sizes = max(before, left - limit), self.sizes(i, role, after)
        while before <= most:
            k = left - before if before < left else 1
            room, trips = self.room_of(sizes.envelope(k), i, k, before + k, after), self._trips(i, before + k)
            if room >= trips:
                return before
            if math.isfinite(room) and before + 1 >= left:
                before += max(1, math.floor((trips - room) / self.round_rate[i] * (1 - 1e-9)))
            elif before + 1 < max(left, self._stages_that_defer(i)):
                before += 1
            else:
                return None
        return None

    def _limit(self, i: int, role: str) -> int:
        """Most layers of a stage by inequality (1) alone, with no layers before it."""
        if (i, role) not in self._limits:
            self._limits[i, role] = min(self.most[i], self.stages.sizes(i, role).most_within(self.seconds))
        return self._limits[i, role]

    def _fits(self, i: int, role: str, k: int, left: int, after: int) -> bool:
        """Whether a stage has time and memory for k layers."""
        most = min(self.most[i], self.stages.most_by_memory(i, role, after, self.pp))
        return k <= most and self.feasible(i, role, k, left, after)

    def feasible(self, i: int, role: str, k: int, left: int, after: int) -> bool:
        """Whether a stage of k layers of class i, with `left` - k layers before it, may meet the deadline.

        The inequalities of `planner.bounds.deadline_test`, by the envelope of the stage's seconds."""
        return self.room(i, role, k, left, after) >= self._trips(i, left)

    def _trips(self, i: int, left: int) -> float:
        """Least seconds of forward and gradients of inputs of a microbatch on the layers behind a stage."""
        return (self.stages.layers - left) * self.round_rate[i]

    def room(self, i: int, role: str, k: int, left: int, after: int, exactly: bool = False) -> float:
        """Most seconds of forward and gradients of inputs of a microbatch on the stages behind such a stage.

        Minus infinity where the stage cannot meet the deadline. exactly: by its exact seconds, not by the envelope."""
        sizes = self.sizes(i, role, after)
        return self.room_of(sizes.exact(k) if exactly else sizes.envelope(k), i, k, left, after)

    def room_of(self, size: StageSeconds, i: int, k: int, left: int, after: int) -> float:
        """`room` of a stage of k layers that takes these seconds."""
        stages, before, seconds = self.stages, left - k, self.seconds
        if size.both > seconds:
            return -math.inf
        forward, both, hops = self._before(i, before, after) if before else (0.0, 0.0, 0)
        messages = self._messages(i, hops)
        fill = forward + messages
        if fill + size.own > seconds:
            return -math.inf
        if before:
            work = size.busy
            if stages.splits:
                work -= self._deferred(i, before, after) * size.weight
            if stages.waits:
                # the last gradient's message counts in drain, not in busy
                work -= self.hops[hops] if self.exact else self.back(i)
            if work < size.lane:
                work = size.lane
            back = fill + work + both - forward + messages
            if size.begin > fill:
                back = max(back, size.begin + work + self._least_inputs(i, before, after) + messages)
            if back > seconds or back + stages.first_tail > seconds:  # the tail takes long to compute
                return -math.inf
        if not self.counted:
            return math.inf
        # With v virtual stages, a round trip passes v - 1 more on each stage before, which hold k - k // v of its k layers, at
        # least the fraction 1 - 1 / v. It also passes from the last stage to the first v - 1 times, and back as often.
        again = (stages.vpp - 1) * (before / stages.vpp * self.by_rate[1][i][0][0] + 2 * messages)
        room = min(self._round_trips(i, k, size, both + 2 * messages, after), _returning(self, i, k, size, fill, after))
        return room - size.trip - again - 2 * (self._messages_behind(after) * stages.vpp + self.wrap * (stages.vpp - 1))

    def back(self, i: int) -> float:
        """Least seconds of a message from a stage of class i to the stage before it."""
        return self.stages.back(i)

    def _messages(self, i: int, hops: int) -> float:
        """Least seconds of the messages of a microbatch on its way to a stage of class i behind `hops` or more stages."""
        if self.exact:
            return self.messages_before[hops]
        return self.borders[i] + max(hops - self.earlier[i], 0) * self.hop[i]

    def sizes(self, i: int, role: str, after: int) -> StageSizes:
        """Seconds of a stage of class i by its layers, with `after` stages behind it, and its own messages where known."""
        if not self.exact:
            return self.stages.sizes(i, role, after, self.pp)
        stage = len(self.classes) - 1 - after
        until = self.round_rate[i] + self.hops[stage + 2] if after else 0.0  # the next stage has a layer
        known = self.hops[stage + 1], self.hops[stage], stage, len(self.classes), self.both[stage], until
        return self.stages.sizes(i, role, after, self.pp, self.stages.sending(*known))

    def _round_trips(self, i: int, k: int, size: StageSeconds, to_and_fro: float, after: int) -> float:
        """Most seconds of a round trip of a microbatch, by inequality (3).

        to_and_fro: seconds before the first one and after the last one, on the first virtual stages of the stages before."""
        stages, pp, room = self.stages, self.pp or 0, math.inf
        left = self.seconds - stages.first_tail - to_and_fro
        for one in stages.round_trips(pp - 1 - after, pp):
            room = min(room, (left - _steps(stages, one, i, k, size)) / (one.trips + 1))
        return room

    def _messages_behind(self, after: int) -> float:
        """Seconds of the messages of a microbatch from a stage with `after` stages behind it to the last one."""
        return self.messages_before[-1] - self.messages_before[len(self.classes) - 1 - after]

    def _stages_that_defer(self, i: int) -> int:
        """How many layers before a stage of class i may let it defer more weight gradients than fewer do (`_deferred`)."""
        return self.stages_before[i] if self.stages.splits and not self.counted else 0

    def _deferred(self, i: int, before: int, after: int) -> int:
        """Most weight gradients that a stage with `before` layers before it may run after its last backward."""
        stage = (self.pp or 0) - 1 - after if self.counted else min(before, self.stages_before[i] - 1)
        return self.stages.deferred(stage, stage + 1 + after)

    def _before(self, i: int, layers: int, after: int) -> tuple[float, float, int]:
        """Least costs of one microbatch in the `layers` layers before a stage of class i, with `after` stages behind it.

        Returns (seconds of forwards, seconds of forwards and gradients of inputs, fewest stages before, each of which sends a
        message). With virtual stages, fill and drain pass only the first virtual stage of each stage: k // vpp of k layers,
        which is at least (k - vpp + 1) / vpp."""
        vpp = self.stages.vpp
        most = layers // vpp if self.pp is None else self.pp - 1 - after
        fewest = most if self.exact else max(self.earlier[i], -(-layers // self.longest[i]))
        if vpp == 1:
            return self._least(i, layers, 0), self._least(i, layers, 1), fewest
        chunks = max((layers - most * (vpp - 1)) / vpp, fewest) if self.stages.whole_chunks else fewest
        return chunks * self.by_rate[0][i][0][0], chunks * self.by_rate[1][i][0][0], fewest

    def _least_inputs(self, i: int, layers: int, after: int) -> float:
        """Least seconds of the gradients of inputs of one microbatch, back through the `layers` layers before a stage."""
        if self.stages.vpp == 1:
            return self._least(i, layers, 2)
        forward, _, _ = self._before(i, layers, after)
        return forward / self.by_rate[0][i][0][0] * self.by_rate[2][i][0][0]

    def _least(self, i: int, layers: int, which: int) -> float:
        """Least seconds of layers on the classes up to i: as many as possible on the fastest class, then the next."""
        found = 0.0
        for rate, c in self.by_rate[which][i]:
            able = self.able[c]
            if layers <= able:
                return found + rate * layers
            found, layers = found + rate * able, layers - able
        return found


def _returning(filling: Filling, i: int, k: int, size: StageSeconds, fill: float, after: int) -> float:
    """Most seconds of the first round trip of a microbatch, by inequality (4); fill: seconds before it."""
    stages, pp = filling.stages, filling.pp or 0
    one = stages.first_return(pp - 1 - after, pp)
    if one is None:
        return math.inf
    return filling.seconds - max(fill, size.begin) - _steps(stages, one, i, k, size) - size.tail


def _steps(stages: OrderedStages, one: RoundTrips, i: int, k: int, size: StageSeconds) -> float:
    """Seconds of the steps of a rank beside its round trips, which has k layers of class i."""
    steps = one.forwards * size.forward + one.backwards * size.inputs + one.weights * size.weight
    if one.more_forwards or one.more_backwards:
        forward, _, backward = stages.rates[i]
        steps += (one.more_forwards * forward + one.more_backwards * backward) * (k // stages.vpp)
    return steps
