"""Lower bounds on steps by the busiest links: a pipeline fills before their first message, and drains after their last one.

A node inside a pipeline sends activations to the node behind it and gradients to the node before it. No message is on its NIC
before the first microbatch has passed all stages up to the first that sends over it. And each message is followed by what its
microbatch still passes, at least all gradients of inputs of the stages before the first that sends gradients over it, and then
by the tail of the first stage. A link carries at most its full rate, so with m microbatches

    step >= least start of its messages + m (seconds of the link for one microbatch) + least rest after one of its messages

Where forwards and backwards take turns and a rank waits until its message has left (1F1B), more is known of a link that carries
the activations of one stage s, A seconds for one microbatch, and the gradients of one stage v, G seconds (`Turns`):

- Before its first gradients, which come when the backward of stage v ends at b at the earliest, the link carries activations
  only, and few: s sends w of them before its own first backward, and each further one follows another backward. If n of them
  can be sent before b, the link has done at most n A seconds of its work by then. So its work ends no earlier than if it
  began at b - n A and never paused.
- When the last forward of s ends at e, all its activations but the last one have left, because s waits for them. The last
  forward of min(s, v), the first of both stages, has ended too; at most r backwards follow it there, and as many on v. So by e
  the link has done (m - 1) A + (m - r) G seconds of work, after which the last microbatch still passes all stages behind s,
  and back.

Both hold for each replica, with the largest e of all; one with more microbatches has more work by then.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.costs.message_loads import MessageLoads
from planner.costs.stage_positions import End
from planner.space.shape import Shape
from sim.analytic.buckets import tails
from sim.analytic.candidates import PIPELINE_RANK, STAGE, Candidates, Floats
from sim.hardware.cluster import Cluster
from sim.network.paths import LinkName
from sim.plan import schedules
from sim.units import Seconds

BUSY = 0.5
"""Fraction of the load of the busiest link from which others count as busy (a guess): nodes at the ends of a pipeline have half
of it."""


class BusyLink(NamedTuple):
    """A link, and the seconds that the messages of one microbatch, of all replicas, need of it. The first and the last virtual
    stage whose forwards send over it, and those whose gradients of inputs do; -1 where there are none. ahead: seconds of the
    messages of forwards alone."""

    seconds: Seconds
    first_ahead: int
    last_ahead: int
    first_back: int
    last_back: int
    ahead: Seconds


class Turns(NamedTuple):
    """What a link waits for that carries the messages of one stage each way (above).

    sender, returner: the stage that sends activations over it, and the one that sends gradients. early: most forwards of the
    sender before its first backward; late: most backwards behind the last forward of the first of both stages."""

    sender: int
    returner: int
    early: int
    late: int

    @classmethod
    def of(cls, link: BusyLink, schedule: str, pp: int, microbatches: int) -> Turns | None:
        """Those of a link in a pipeline of so many stages without virtual ones; None where nothing is known: several stages
        send over the link, or its messages go one way, or a schedule is not 1F1B with sends that block.

        microbatches: the fewest of a replica."""
        sender, returner = link.first_ahead, link.first_back
        if min(sender, returner) < 0 or sender != link.last_ahead or returner != link.last_back:
            return None
        ahead = _around(schedule, sender, pp, max(microbatches, 2 * pp))
        behind = _around(schedule, min(sender, returner), pp, microbatches)
        return cls(sender, returner, ahead[0], behind[1]) if ahead and behind else None

    def work(self, link: BusyLink, microbatches: int) -> Seconds:
        """Seconds of work that the link has done at least when the last forward of the sender ends; 0 without gradients."""
        returned = microbatches - self.late
        return (microbatches - 1) * link.ahead + returned * (link.seconds - link.ahead) if returned > 0 else 0.0


@functools.lru_cache(maxsize=4096)
def _around(schedule: str, stage: int, pp: int, microbatches: int) -> tuple[int, int] | None:
    """(forwards of a stage before its first backward, backwards behind its last forward) where they take turns in between, each
    backward before the next forward, and each message leaves before the rank goes on; else None."""
    kind = schedules.get(schedule)
    if kind.OVERLAPS_SENDS or kind.RECEIVES_FIRST or kind.CHUNKED:
        return None
    program = "".join(action.kind for action in schedules.actions(schedule, stage, pp, microbatches, 1))
    early, late = program.find("B"), len(program) - 1 - program.rfind("F")
    return (early, late) if program == "F" * early + "BF" * (microbatches - early) + "B" * late else None


def busy_links(loads: MessageLoads, ends: Sequence[End], shape: Shape, nic: str) -> list[BusyLink]:
    """Links that the messages of a whole pipeline load most: those with at least half of the load of the busiest (`BUSY`).

    ends: the stages in pipeline order, each with its index in its cluster. Of a long run, only the stages at both ends are
    computed, as in `MessageLoads.load`. None where replicas of a stage cross other nodes than the first one: a link then has
    messages of replicas that came to it sooner than the first one's seconds say. Raises NoRoute."""
    if not all(_are_alike(cluster, shape) for cluster, _ in ends):
        return []
    pp, on_link = len(ends), dict[LinkName, list[Any]]()  # load, a range of stages ahead and one back, load of those ahead
    inside = [(s, ends[s], ends[s + 1], shape.vpp) for s in range(pp - 1) if loads.is_near_end(ends, s, shape)]
    around = [(pp - 1, ends[-1], ends[0], shape.vpp - 1)] if shape.vpp > 1 and pp > 1 else []
    for stage, source, target, times in (*inside, *around):
        for use, is_back in zip(loads.ways(source, target, shape, nic), (False, True), strict=True):
            first = stage + is_back
            last, at = first + (times - 1) * pp, 3 if is_back else 1
            for link, seconds in use.items():
                known = on_link.setdefault(link, [0.0, -1, -1, -1, -1, 0.0])
                known[0] += times * seconds
                known[5] += 0.0 if is_back else times * seconds
                if known[at] < 0 or first < known[at]:
                    known[at] = first
                if last > known[at + 1]:
                    known[at + 1] = last
    most, nbytes = max((total for total, *_ in on_link.values()), default=0.0), loads.bytes(shape)
    found: dict[tuple[int, ...], BusyLink] = {}
    for total, *stages, ahead in on_link.values():
        same = found.get(tuple(stages))
        if total >= BUSY * most and (same is None or total * nbytes > same.seconds):
            found[tuple(stages)] = BusyLink(total * nbytes, stages[0], stages[1], stages[2], stages[3], ahead * nbytes)
    return list(found.values())


def _are_alike(cluster: Cluster, shape: Shape) -> bool:
    """Whether all replicas of a stage on a cluster are on one node, or each node has replicas of one stage only."""
    width = cluster.node.count // shape.tp_on(cluster.name)
    return width % shape.slots == 0 or shape.slots % width == 0


class Passing:
    """When messages of the first microbatch begin at the earliest, and what follows each message at least.

    All are arrays of seconds over candidates, by virtual stage. forward_begins, backward_begins: the end of its first forward
    and of its first gradients of inputs; after_forward, after_backward: from the arrival of the message that it sends after one
    of them to the end of the step."""

    def __init__(self, candidates: Candidates):
        self._stage: dict[str, Floats] = dict(zip(STAGE, candidates.stages, strict=True))
        stage = self._stage
        forward, inputs, ahead, back = (stage[name] for name in ("forward", "inputs", "ahead", "back"))
        number, pp = len(forward), candidates.pp
        forward, inputs = forward + stage["forward_received"], inputs + stage["inputs_received"]
        self.forward_begins, end = [], np.zeros(len(candidates))
        for v in range(number):
            arrives = end + ahead[v - 1] if v else end
            end = arrives + forward[v]
            if v < pp:
                end = np.maximum(end, stage["gather"][v] + stage["forward"][v] / stage["parts"][v])
            self.forward_begins.append(end)
        self.backward_begins = [end] * number
        for v in reversed(range(number)):
            end = end + inputs[v] + (back[v + 1] if v + 1 < number else 0.0)
            self.backward_begins[v] = end
        rest = _tail(candidates, stage)
        self.after_backward = [rest] * number  # nothing is sent back from the first stage
        for v in range(1, number):
            rest = rest + inputs[v - 1] + (back[v - 1] if v > 1 else 0.0)
            self.after_backward[v] = rest
        rest = rest + inputs[-1] + back[-1]
        self.after_forward = [rest] * number  # nothing is sent ahead from the last stage
        for v in reversed(range(number - 1)):
            rest = rest + forward[v + 1] + (ahead[v + 1] if v + 2 < number else 0.0)
            self.after_forward[v] = rest

    def first_gradients(self, turns: Turns, ahead: Seconds) -> Floats:
        """When a link would have to begin at the earliest, to have done by its first gradients what activations it may have
        carried; `ahead`: its seconds for those of one microbatch."""
        s, stage = turns.sender, self._stage
        first = self.backward_begins[s] + stage["back"][s] + stage["forward"][s]
        period = stage["forward"][s] + stage["ahead"][s] + stage["inputs"][s] + stage["back"][s]
        begins = self.backward_begins[turns.returner]
        more: Floats = np.maximum(np.ceil((begins - first) / period), 0.0)
        return begins - (turns.early + more) * ahead

    def after_last_forward(self, stage: int) -> Floats:
        """From the end of the last forward of a stage to the end of the step, without virtual stages."""
        found: Floats = self._stage["ahead"][stage] + self.after_forward[stage]
        return found


def least_steps(candidates: Candidates, links: Sequence[BusyLink], microbatches: int) -> Floats:
    """A lower bound in seconds on the step of each candidate, shape (candidates,), by the messages of so many microbatches."""
    passing, found, is_plain = Passing(candidates), np.zeros(len(candidates)), len(candidates.stages[0]) == candidates.pp
    for link in links:
        starts, rests = [], []
        if link.first_ahead >= 0:
            starts.append(passing.forward_begins[link.first_ahead])
            rests.append(passing.after_forward[link.last_ahead])
        if link.first_back >= 0:
            starts.append(passing.backward_begins[link.last_back])
            rests.append(passing.after_backward[link.first_back])
        start, rest = np.min(starts, axis=0), np.min(rests, axis=0)
        turns = Turns.of(link, candidates.schedule, candidates.pp, microbatches) if is_plain else None
        if turns is not None:
            start = np.maximum(start, passing.first_gradients(turns, link.ahead))
            if work := turns.work(link, microbatches):
                np.maximum(found, start + work + passing.after_last_forward(turns.sender), out=found)
        np.maximum(found, start + microbatches * link.seconds + rest, out=found)
    return found


def _tail(candidates: Candidates, stage: dict[str, Floats]) -> Floats:
    """Least seconds from the end of the last gradients of inputs of the first stage to the end of the step."""
    splits = schedules.get(candidates.schedule).SPLITS_BACKWARD
    rank = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
    closing = stage["weight" if splits else "inputs"][0]
    behind = closing
    if candidates.zero_of(0) < 3 and stage["reduce"][0].any():
        behind = tails(stage["parts"][:1], [closing], stage["reduce"][:1])[0]
    ready = (behind if splits else np.maximum(behind - closing, 0.0)) + rank["reduced"][0]
    tied: Floats = np.maximum(ready, ready + candidates.tied) + rank["updated"][0]
    return tied
