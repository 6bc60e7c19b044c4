"""Microbatches of each pipeline rank by itself, where stages have unlike microbatch sizes: `stage_microbatch_size`.

A stage with a k times smaller size than its neighbour runs k passes where the neighbour runs one. A message has the samples of
the smaller microbatch of the two: a pass of the larger one begins when k messages have arrived, and k messages leave after it.
Samples of a replica are in the same order on every stage, so microbatch i of size n has its samples i n to i n + n - 1."""

from __future__ import annotations

import itertools

from sim.errors import NotModelled, PlanError
from sim.plan import schedules
from sim.plan.program import Program
from sim.plan.rank_numbering import degrees_text


class StageMicrobatches:
    """The microbatches of each pipeline rank. `microbatch_size` is the largest size, of which `num_microbatches` are."""

    __slots__ = ()
    pp: int
    dp: int
    vpp: int
    schedule: str
    microbatch_size: int
    stage_dp: tuple[int, ...]
    held_receivers: bool
    message_compression: str
    num_microbatches: tuple[int, ...]
    stage_microbatch_size: tuple[int, ...]

    def needs_engine(self, what: str) -> None:
        """Raise NotModelled where stages have unlike microbatch sizes, for `what` does not model them."""
        if self.stage_microbatch_size:
            raise NotModelled(f"{what} has no stages with unlike microbatch sizes; the engine simulates them")

    def size_of(self, pp_rank: int) -> int:
        """Samples of a microbatch of one replica on a pipeline rank."""
        return self.stage_microbatch_size[pp_rank] if self.stage_microbatch_size else self.microbatch_size

    @property
    def microbatch_text(self) -> str:
        """The microbatch size as text; of unlike ones each with its number of pipeline ranks in a row: `1x2+2x1`."""
        return degrees_text(self.stage_microbatch_size, self.microbatch_size)

    @property
    def microbatch_words(self) -> str:
        """The size of the microbatches that `num_microbatches` counts, and of unlike stages `microbatch_text`."""
        return f"{self.microbatch_size}{f' ({self.microbatch_text} by stage)' if self.stage_microbatch_size else ''}"

    def cuts_of(self, pp_rank: int) -> int:
        """Number of microbatches of a pipeline rank that the largest microbatch of any rank is."""
        return self.microbatch_size // self.size_of(pp_rank)

    def messages_of(self, pp_rank: int, other: int) -> int:
        """Number of messages between a pass of a pipeline rank and a neighbouring rank."""
        return max(self.cuts_of(other) // self.cuts_of(pp_rank), 1)

    def actions_of(self, pp_rank: int, microbatches: int) -> Program:
        """Compute actions of a pipeline rank with so many microbatches of its own size. Raises NotDefined."""
        if not self.stage_microbatch_size:
            return schedules.actions(self.schedule, pp_rank, self.pp, microbatches, self.vpp)
        return schedules.actions_of_sizes(self.schedule, pp_rank, self.stage_microbatch_size, microbatches)

    def in_flight_of(self, pp_rank: int, microbatches: int) -> tuple[tuple[int, int], ...]:
        """`schedules.in_flight` of a pipeline rank with so many microbatches of its own size, counted in these."""
        if not self.stage_microbatch_size:
            return schedules.in_flight(self.schedule, pp_rank, self.pp, microbatches, self.vpp)
        return schedules.in_flight_of_sizes(self.schedule, pp_rank, self.stage_microbatch_size, microbatches)


def check_microbatches(config: StageMicrobatches) -> None:
    """Check `num_microbatches` and `stage_microbatch_size` of a configuration.

    Raises PlanError where replicas have no microbatches, or the sizes are none of the pipeline ranks or do not divide one
    another, NotModelled for schedules and options with which they are not modelled."""
    if len(config.num_microbatches) != config.dp:
        raise PlanError(
            f"num_microbatches has {len(config.num_microbatches)} numbers; dp {config.dp} needs one for each replica"
        )
    if min(config.num_microbatches) < 1:
        raise PlanError("every replica needs at least one microbatch")
    if not (sizes := config.stage_microbatch_size):
        return
    named = f"stage_microbatch_size {', '.join(map(str, sizes))}"
    if len(sizes) != config.pp or len(set(sizes)) == 1 or max(sizes) != config.microbatch_size:
        raise PlanError(
            f"{named}: one size for each of pp {config.pp} pipeline ranks, of which the largest is microbatch_size "
            f"{config.microbatch_size} and some are smaller; leave it out where all are equal"
        )
    for small, large in itertools.pairwise(sorted(set(sizes))):
        if large % small:
            raise PlanError(
                f"{named}: of two sizes, one must divide the other, so that messages are whole microbatches, but {small} does "
                f"not divide {large}"
            )
    if not schedules.takes_sizes(config.schedule):
        able = ", ".join(filter(schedules.takes_sizes, schedules.names()))
        raise NotModelled(f"{named} with schedule {config.schedule}: it runs equally many passes on each stage; {able}")
    if config.stage_dp:
        raise NotModelled(f"{named} with stage_dp is not modelled: its ranks divide the samples of a microbatch; one of both")
    if config.message_compression != "none":
        raise NotModelled(f"{named} with message_compression {config.message_compression} is not modelled; one of both")
    if config.held_receivers:
        raise NotModelled(f"{named} with a software whose messages hold their receivers (held_receivers) is not modelled")
