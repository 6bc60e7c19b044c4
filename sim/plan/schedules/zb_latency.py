"""Zero bubble with a warm-up for each pipeline rank, as long as its messages are late: F, B and W in turn after the warm-up.

The warm-ups of ZB-H1 and ZB-H2 (`sim.plan.schedules.zb_h1`, Qi et al., arXiv 2401.10241) count ranks, so a rank whose next
ranks are in another cluster waits for every gradient that crosses the border. Here the name of the schedule lists the forwards
that each rank runs before its first forward and backward in turn: `zb-latency=7,6,3,2,1,0`. With as many of them as fit into
the round trip of a microbatch to the last rank, a rank never waits for a gradient (J. D. C. Little's law, see
`sim.plan.round_trips`). W follows its B at once, so a rank holds warm-up + 1 microbatches, fewer than ZB-H2 where borders are
few. `planner.search.latency` chooses the warm-ups. Without a list they are those of 1F1B.

No framework has this schedule by name. Runtimes that run any table of actions can run it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from sim.errors import NotDefined, PlanError
from sim.plan.program import Program
from sim.plan.schedules.zb_h1 import one_f_one_b_one_w

NAME = "zb-latency"
CHUNKED = False
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False
SEARCHED = False
FORWARDS_FIRST = False
WHOLE_ROUNDS = False
WARM_UP = 1


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """ranks - rank - 1 warm-up forwards, then F, B and W in turn; any number of microbatches."""
    return one_f_one_b_one_w(rank, microbatches, ranks - rank - 1, 0)


@dataclass(frozen=True, slots=True)
class Listed:
    """The schedule with the warm-up of each pipeline rank. It declares no fact from which the planner could derive a bound."""

    warm_ups: tuple[int, ...]
    NAME: str
    CHUNKED: bool = False
    OVERLAPS_SENDS: bool = True
    SPLITS_BACKWARD: bool = True
    RECEIVES_FIRST: bool = False
    SEARCHED: bool = False

    def actions(self, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
        """The actions of a pipeline rank; raises NotDefined for another number of ranks than there are warm-ups."""
        if ranks != len(self.warm_ups):
            raise NotDefined(f"schedule {self.NAME} has {len(self.warm_ups)} warm-ups, one for each rank; pp is {ranks}")
        return one_f_one_b_one_w(rank, microbatches, self.warm_ups[rank], 0)


def name_of(warm_ups: tuple[int, ...]) -> str:
    """The name of the schedule with these warm-ups."""
    return f"{NAME}={','.join(map(str, warm_ups))}"


def listed(text: str) -> Listed:
    """The schedule with the warm-ups of a text, such as `3,2,0`. Raises PlanError for other texts.

    A rank that runs fewer forwards than the next one would wait for it for ever."""
    numbers = text.split(",")
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise PlanError(f"schedule {NAME}={text}: warm-ups are whole numbers with commas between them, such as {NAME}=3,2,0")
    warm_ups = tuple(map(int, numbers))
    if any(here < behind for here, behind in pairwise(warm_ups)):
        raise PlanError(f"schedule {NAME}={text}: no warm-up may be longer than that of the rank before")
    return Listed(warm_ups, name_of(warm_ups))
