"""Seconds of messages between the stages of replicas of a plan with mixed stages, and of the sum of a tied embedding.

A pipeline has one type of NICs for all its messages between nodes (`sim.hardware.transport.common_transport`): on several
clusters that is one which joins them all, inside each of them, too. Seconds are the least, on links that nothing else loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.costs.joint_arrivals import joint_seconds
from planner.space.device_slots import Run
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.analytic.plan_costs import messages_alpha_beta
from sim.hardware.cluster import Device
from sim.hardware.transport import common_transport
from sim.kernels.payloads import message_bytes, tied_bytes
from sim.network.alpha_beta import AlphaBeta, protocol_costs
from sim.network.routes import member
from sim.units import Bytes


class MixedMessages:
    """Messages between runs of slots, computed once for each position on their nodes."""

    def __init__(self, context: PlanningContext):
        self.context, self.fleet, self.workload = context, context.request.topology.fleet, context.request.workload
        self._lanes: dict[tuple[object, ...], AlphaBeta] = {}
        self._tied: dict[tuple[object, ...], list[AlphaBeta]] = {}
        self._both: dict[tuple[object, ...], float] = {}
        self._sizes: dict[Shape, Bytes] = {}

    def nic(self, runs: Sequence[Run], tp: int) -> str:
        """The type of NICs for all messages between nodes of replicas on these runs, one for each stage; empty where the two
        nodes of a message choose it, on one cluster. Raises NoRoute."""
        latest = {run.cluster.name: run for run in runs}
        if len(latest) == 1:
            return ""
        return common_transport(self.fleet, tuple(slot(run.cluster, tp, run.first)[0] for run in latest.values()))[0]

    def leaves(self, shape: Shape, run: Run, other: Run, nic: str = "", many: int | None = None) -> float:
        """Least seconds in which the concurrent messages of all replicas on a run's first node, or of the first `many`, leave
        the node for another run.

        0 where they stay inside the node. nic: as `nic` returns it. Raises NoRoute where no link joins the two runs."""
        pairs = self._beside(shape, run, other, many or _on_first_node(run, shape.tp), nic, True)
        return pairs.per_byte * self._bytes(shape)

    def sent(self, shape: Shape, run: Run, other: Run, together: int, nic: str = "") -> float:
        """Least seconds of the message of a run's first slot to that of another run, beside those of the next slots, `together`
        in all. nic: as `nic` returns it. Raises NoRoute."""
        pairs = self._beside(shape, run, other, together, nic, False)
        return pairs.seconds(self._bytes(shape))

    def both(self, shape: Shape, runs: tuple[Run, Run, Run], together: int, nic: str = "") -> float:
        """Seconds that the links of a run's first slot need for the messages from the runs before and behind it, beside those
        of the next slots, `together` in all (`joint_seconds`). nic: as `nic` returns it. Raises NoRoute."""
        before, here, behind = runs
        key = _ends(before, here, shape.tp), _ends(here, behind, shape.tp), together, shape.tp, nic
        if key not in self._both:
            fleet = self.context.fleets.open
            ways = [
                [(x, y, nic or common_transport(fleet, (x, y))[0]) for x, y in _peers(other, here, together, shape.tp)]
                for other in (before, behind)
            ]
            self._both[key] = joint_seconds(fleet, self.context.fleets.open_capacities, *ways)
        return self._both[key] * self._bytes(shape)

    def tied(self, shape: Shape, runs: Sequence[Run], nic: str = "", together: bool = True, many: int | None = None) -> float:
        """Least seconds of the all-reduce of a tied embedding's gradient between the first stage and the last, of those on
        the first node of the first stage together, or of the first `many`. 0 where nothing is tied. Raises NoRoute.

        nic: as `nic` returns it. together: the ranks of both stages reduce gradients equally fast; else as
        `sim.analytic.plan_costs.tied_seconds`."""
        config = shape.config(self.workload, min(len(runs), 2))
        nbytes = tied_bytes(self.workload, config)
        if not nbytes or not (together or config.gathers_ahead):
            return 0.0
        many = many or _on_first_node(runs[0], shape.tp)
        key = _ends(runs[0], runs[-1], shape.tp), many, shape.tp, nic, together
        if key not in self._tied:
            fleet, pairs = self.context.fleets.open, _peers(runs[0], runs[-1], many, shape.tp)
            members = tuple(member(pair, nic or common_transport(fleet, pair)[0], "ring") for pair in pairs)
            self._tied[key] = [
                replace(protocol.cost, latency=min(route.latency for route in protocol.routes))
                for side in ([members] if together else [(one,) for one in members])
                for protocol in protocol_costs(fleet, side, "all_reduce", self.context.fleets.open_capacities)
            ]
        return min(one.seconds(nbytes) for one in self._tied[key])

    def _bytes(self, shape: Shape) -> Bytes:
        """Bytes of a message."""
        if shape not in self._sizes:
            self._sizes[shape] = message_bytes(self.workload, shape.config(self.workload, 2))
        return self._sizes[shape]

    def _beside(self, shape: Shape, run: Run, other: Run, many: int, nic: str, leaving: bool) -> AlphaBeta:
        """AlphaBeta of the messages of the first slots of a run to those of another run, `many` at once; `leaving`: only of
        those that leave the node."""
        key = _ends(run, other, shape.tp), many, shape.tp, nic, leaving
        if key not in self._lanes:
            pairs = _peers(run, other, many, shape.tp)
            between = [(x, y) for x, y in pairs if not leaving or (x.cluster, x.node) != (y.cluster, y.node)]
            fleet, capacities = self.context.fleets.open, self.context.fleets.open_capacities
            hops = tuple((x, y, nic or common_transport(fleet, (x, y))[0]) for x, y in between)
            self._lanes[key] = messages_alpha_beta(fleet, hops, capacities) if hops else AlphaBeta(0.0, 0.0)
        return self._lanes[key]


def _on_first_node(run: Run, tp: int) -> int:
    """Slots of a run on its first node."""
    per_node = run.cluster.node.count // tp
    return min(run.count, per_node - run.first % per_node)


def _peers(run: Run, other: Run, many: int, tp: int) -> list[tuple[Device, Device]]:
    """Devices of the first `many` slots of two runs, each with its peer."""
    slots = ((slot(one.cluster, tp, one.first + i) for one in (run, other)) for i in range(many))
    return [pair for a, b in slots for pair in zip(a, b, strict=True)]


def _ends(run: Run, other: Run, tp: int) -> tuple[object, ...]:
    """Positions of two runs on their nodes, and by how many nodes the second begins behind the first; None for unlike
    clusters."""
    per_node = [one.cluster.node.count // tp for one in (run, other)]
    apart = other.first // per_node[1] - run.first // per_node[0] if run.cluster == other.cluster else None
    return run.cluster.name, run.first % per_node[0], other.cluster.name, other.first % per_node[1], apart
