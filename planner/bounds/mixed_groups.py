"""Speed and messages of the replicas of a placement with mixed stages, by groups of replicas that are placed alike.

If all replicas must have equally many microbatches, what the first replica of a group can do limits all of them. Else each
replica may have its own number. Then a group is of replicas that one node holds at every stage, so that their messages take the
same ways. Messages that share a NIC count for all replicas of a group only where each NIC of the node carries equally many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.bounds.stage_messages import NOT_HELD, Held
from planner.costs.mixed_stages import MixedStageCosts, geometry
from planner.costs.stage_positions import alike_replicas
from planner.space.device_slots import Run, StageSlots, replica_groups
from planner.space.shape import Shape
from sim.units import Seconds

PARTS = 256
"""Most parts of a group of replicas that are told apart (a guess). With more of them messages do not count: a relaxation."""


class OnStage(NamedTuple):
    """A group of `replicas` on a stage of a pipeline.

    A stage of k layers takes start + k each seconds for a microbatch; `forward` and `backward` are such a pair each, or less. A
    tied embedding's all-reduce takes `tied` behind the reduction.
    Messages of a microbatch, in seconds: `sent`, where ranks wait until they have left, of which reductions do not wait for the
    last one, `back`; else the `lane` that they load; those of the first microbatch up to this stage (`arrived`), and those of
    the last one from this stage back to the first (`returned`). `held`: those that the stage before holds until it has received
    a gradient from this one (`planner.bounds.stage_messages`)."""

    replicas: int
    start: Seconds
    each: Seconds
    forward: tuple[Seconds, Seconds]
    backward: tuple[Seconds, Seconds]
    tied: Seconds = 0.0
    sent: Seconds = 0.0
    back: Seconds = 0.0
    lane: Seconds = 0.0
    arrived: Seconds = 0.0
    returned: Seconds = 0.0
    held: Held = NOT_HELD

    @property
    def drained(self) -> Seconds:
        """Messages of the first microbatch up to this stage and of the last one back to the first, but for `back`."""
        return self.arrived + self.returned - self.back


def groups(
    costs: MixedStageCosts, shape: Shape, placed: tuple[StageSlots, ...], waits: bool, alike: bool, held: Sequence[int] = ()
) -> list[tuple[OnStage, ...]]:
    """The groups of replicas of placed stages, each on every stage.

    waits: ranks wait until their messages have left; alike: all replicas have the same number of microbatches; held: how many
    messages the stage before each stage holds, if any. Raises NoRoute where no link joins two stages, NotModelled where a
    replica's cp ranks straddle clusters."""
    whole = replica_groups(placed, shape.cp)
    parts = [{runs: runs[0].count} if alike else _by_node(runs, shape.tp) for runs in whole]
    counts = all(every and not any(part[0].count % shape.cp for part in every) for every in parts)
    together = costs.reduce_together(shape, (placed[0], placed[-1]))
    found = dict[tuple[OnStage, ...], int]()
    for runs, every in zip(whole, parts, strict=True):
        speeds = _speeds(costs, shape, runs)
        for part, slots in every.items() if counts else [(runs, runs[0].count)]:
            rows = tuple(_with_messages(costs, shape, part, speeds, waits, alike, together) if counts else speeds)
            if counts and any(held):
                rows = _with_held(rows, held, joint(costs, shape, part, alike_replicas(part, shape.tp)))
            found[rows] = found.get(rows, 0) + slots // shape.cp
    return [tuple(row._replace(replicas=replicas) for row in rows) for rows, replicas in found.items()]


def _by_node(runs: tuple[Run, ...], tp: int) -> dict[tuple[Run, ...], int]:
    """The parts of a group of replicas that one node holds at every stage: of parts with equal places on their nodes only the
    first, and the slots of all of them. None where there are more than `PARTS`."""
    cuts, widths = {0, runs[0].count}, [run.cluster.node.count // tp for run in runs]
    for run, per_node in zip(runs, widths, strict=True):
        cuts |= set(range(per_node - run.first % per_node, run.count, per_node))
    found = dict[tuple[int, ...], tuple[tuple[Run, ...], int]]()
    if len(cuts) > PARTS + 1:
        return {}
    for first, end in pairwise(sorted(cuts)):
        part = tuple(Run(run.cluster, run.first + first, end - first) for run in runs)
        nodes = [run.first // per_node for run, per_node in zip(part, widths, strict=True)]
        offsets = (run.first % per_node for run, per_node in zip(part, widths, strict=True))
        key = (end - first, *offsets, *(b - a for a, b in pairwise(nodes)), nodes[-1] - nodes[0])
        like, slots = found.get(key, (part, 0))
        found[key] = like, slots + end - first
    return dict(found.values())


def _speeds(costs: MixedStageCosts, shape: Shape, runs: tuple[Run, ...]) -> list[OnStage]:
    """One replica of a group on each stage, without messages."""
    found: list[OnStage] = []
    known: dict[object, OnStage] = {}  # stages of one cluster are alike
    for stage, run in enumerate(runs):
        ends = stage == 0, stage == len(runs) - 1
        key = geometry((run,), shape.tp), ends
        if key not in known:
            known[key] = OnStage(1, *costs.least_seconds(shape, run, ends), *costs.least_passes(shape, run, ends))
        found.append(known[key])
    return found


def sent(costs: MixedStageCosts, shape: Shape, runs: tuple[Run, ...], many: int) -> list[tuple[Seconds, Seconds]]:
    """Least seconds of the messages of a replica from each stage to the next and to the previous one, beside those of the next
    replicas, `many` in all; 0 where there is no such stage. Raises NoRoute."""
    nic, last = costs.peers.nic(runs, shape.tp), len(runs) - 1

    def seconds(stage: int, other: int) -> Seconds:
        return costs.peers.sent(shape, runs[stage], runs[other], many, nic) if 0 <= other <= last else 0.0

    return [(seconds(stage, stage + 1), seconds(stage, stage - 1)) for stage in range(last + 1)]


def joint(costs: MixedStageCosts, shape: Shape, runs: tuple[Run, ...], many: int) -> list[Seconds]:
    """Seconds that the links of each stage of a replica need for the messages from the stages before and behind it together,
    beside those of the next replicas, `many` in all; 0 for the first and the last stage. Raises NoRoute."""
    nic, inner = costs.peers.nic(runs, shape.tp), zip(runs, runs[1:], runs[2:], strict=False)
    return [0.0, *(costs.peers.both(shape, one, many, nic) for one in inner), 0.0][: len(runs)]


def _with_held(rows: Sequence[OnStage], held: Sequence[int], both: Sequence[Seconds]) -> tuple[OnStage, ...]:
    """The stages where the stage before each of them holds so many messages. both: as `joint` returns it.

    The next stage has at least a layer, and waits until its own activations have left."""
    found = [rows[0]]
    for stage in range(1, len(rows)):
        own, (*_, last) = rows[stage], rows
        behind = rows[min(stage + 1, len(rows) - 1)]
        until = sum(sum(one) for one in (behind.forward, behind.backward)) + (behind.sent - behind.back) * (behind is not last)
        message = own.arrived - rows[stage - 1].arrived
        found.append(own._replace(held=Held(held[stage], message, own.back, both[stage], until)))
    return tuple(found)


def _with_messages(
    costs: MixedStageCosts, shape: Shape, runs: tuple[Run, ...], speeds: list[OnStage], waits: bool, alike: bool, together: bool
) -> Iterator[OnStage]:
    """One replica of a group on each stage, with its messages. together: the ranks of both ends reduce gradients equally fast.

    Replicas with numbers of their own need not send at the same time: then a rank waits for its own message at least."""
    peers, last, nic = costs.peers, len(runs) - 1, costs.peers.nic(runs, shape.tp)
    in_step = alike_replicas(runs, shape.tp)
    loading = None if alike else in_step if in_step == runs[0].count else 1  # None: all on the first node
    tied = peers.tied(shape, runs, nic, together, loading)
    ahead = arrived = returned = 0.0
    messages = sent(costs, shape, runs, in_step if waits and alike else 1)
    for stage, (run, speed, (there, back)) in enumerate(zip(runs, speeds, messages, strict=True)):
        arrived, returned = arrived + ahead, returned + back
        ahead = there
        speed = speed._replace(tied=tied if stage in (0, last) else 0.0, arrived=arrived, returned=returned)
        if waits:
            yield speed._replace(sent=there + back, back=back)
        else:
            next_to = (runs[other] for other in (stage + 1, stage - 1) if 0 <= other <= last)
            lane = sum(peers.leaves(shape, run, other, nic, loading) for other in next_to)
            yield speed._replace(lane=lane)
