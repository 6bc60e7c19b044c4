"""Communication in a simulation: messages and collectives as transfers on the flow network.

A transfer takes the legs of its carrier's route one after the other: first the latency of a leg, then its bytes as a flow,
which shares the links max-min fairly (`sim.network.sharing`). Transfers of one lane run one at a time in the order of
issue. Each carrier has a lane of its own, except that the gradient collectives of one group share a lane: they run on one
stream, whatever their operation."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import simpy

from sim.engine.addresses import Addresses
from sim.engine.carriers import Key
from sim.engine.spans import Label, SpanLog
from sim.engine.state import Rank, Steps, Transfer, elapse
from sim.engine.symmetry import Folding
from sim.network.sharing import Network, Use
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import TENSOR, Action
from sim.units import Bytes, Seconds


def gradient_lanes(folding: Folding) -> dict[int, int]:
    """Gradient carrier -> its lane, which is the first carrier of the same group.

    An all_reduce of ranks that scatter gradients is one of largest values (`payloads.layer_collectives`) and has a lane of its
    own, as it has a communicator of its own in Megatron-Core (get_amax_reduction_group of parallel_state.py)."""
    gradient = {key: index for key, index in folding.of.items() if key[0] in GRADIENT_KINDS}
    scattered = {key[:-1] for key in gradient if key[-1] == "reduce_scatter"}
    own = {key for key in gradient if key[-1] == "all_reduce" and key[:-1] in scattered}
    of_group: dict[Key, int] = {}
    return {index: index if key in own else of_group.setdefault(key[:-1], index) for key, index in gradient.items()}


class Communication:
    """The network, its transfers under way, and what ranks do to send, receive and run collectives."""

    def __init__(self, env: simpy.Environment, plan: Plan | PipelinesPlan, folding: Folding, ranks: list[Rank], log: SpanLog):
        self.env, self.folding, self.log = env, folding, log
        self.addresses = Addresses(plan, folding)
        self.network = Network(env, folding.capacities)
        self.members = [[ranks[member] for member in carrier.members] for carrier in folding.carriers]
        self.transfers: dict[tuple[Any, ...], Transfer] = {}
        self._lane_ends: dict[int, Transfer] = {}
        self._gradient_lanes = gradient_lanes(folding)
        self._legs: dict[tuple[int, Bytes, float], tuple[tuple[Seconds, Use, Bytes], ...]] = {}

    def close(self, link: int, begin: Seconds, until: Seconds) -> Steps:
        """An outage: a link carries nothing for a while."""
        yield self.env.timeout(begin)
        self.network.set_capacity(link, 0.0)
        yield self.env.timeout(until - begin)
        self.network.set_capacity(link, self.folding.capacities[link])

    def _transfer(self, key: tuple[Any, ...]) -> Transfer:
        """The transfer of a key, made for the first rank that arrives at it."""
        if key not in self.transfers:
            self.transfers[key] = Transfer(key)
        return self.transfers[key]

    def _carry(self, transfer: Transfer, action: Action) -> Steps:
        """Run a transfer over the legs of its route."""
        for leg, (delay, use, nbytes) in enumerate(self._route(transfer.key[0], action)):
            transfer.leg = leg
            if delay:
                yield from elapse(self.env, transfer, delay)
            transfer.flow = self.network.start(use, nbytes)
            yield transfer.flow
            transfer.flow = None

    def _route(self, carrier: int, action: Action) -> tuple[tuple[Seconds, Use, Bytes], ...]:
        """(latency, links, bytes) of every leg that a payload takes; the first latency includes the overhead."""
        key = carrier, action.nbytes, action.times
        if key not in self._legs:
            route, count = self.folding.carriers[carrier].route(action.nbytes), action.times
            delays = [count * leg.latency for leg in route.legs]
            delays[0] += count * route.overhead
            sizes = (count * action.nbytes * leg.share for leg in route.legs)
            self._legs[key] = tuple(zip(delays, (leg.use for leg in route.legs), sizes, strict=True))
        return self._legs[key]

    def _queue(self, transfer: Transfer, lane: int, after: int) -> Steps:
        """Put a transfer at the end of its lane, and wait until the one before it has ended."""
        previous, self._lane_ends[lane] = self._lane_ends.get(lane), transfer
        transfer.ready, transfer.after = self.env.now, after
        if previous is not None and not previous.has_ended:
            transfer.previous = previous
            transfer.after = yield previous.ended(self.env)
        transfer.begun = self.env.now

    def lane(self, carrier: int) -> int:
        """The lane of a collective's carrier."""
        return self._gradient_lanes.get(carrier, carrier)

    def seconds_alone(self, carrier: int, action: Action) -> Seconds:
        """Seconds that the payload of an action takes on its carrier's route where nothing else is on the network."""
        capacities = self.folding.capacities
        return sum(
            delay + (nbytes / min([capacities[link] / weight for link, weight in use]) if nbytes else 0.0)
            for delay, use, nbytes in self._route(carrier, action)
        )

    def seconds_of_links(self, carrier: int, action: Action) -> Iterator[tuple[int, Seconds]]:
        """Seconds of each link that the payload of an action takes on a leg of its carrier's route."""
        for _, use, nbytes in self._route(carrier, action):
            for link, weight in use:
                yield link, nbytes * weight / self.folding.capacities[link]

    # messages

    def send(self, rank: Rank, action: Action) -> Generator[simpy.Event, Any, int]:
        """Send to all peers at the same time; returns the span that ends with the last arrival."""
        first, *others = (self._transfer(key) for key in self.addresses.messages(rank, action))
        for transfer in others:
            self.env.process(self._send(rank, action, transfer))
        last = yield from self._send(rank, action, first)
        for transfer in others:
            if not transfer.has_ended:
                yield transfer.ended(self.env)
            last = max(last, transfer.last, key=self.log.end_of)
        return last

    def _send(self, rank: Rank, action: Action, transfer: Transfer) -> Generator[simpy.Event, Any, int]:
        """Send one message; returns the span that ends with its arrival."""
        yield from self._queue(transfer, transfer.key[0], rank.last)
        yield from self._carry(transfer, action)
        lane = "send" if action.operation == "F" else "return"
        last = self.log.add(rank, lane, "send", transfer.begun, self.env.now, Label(action, "pp"), transfer.after)
        transfer.lasted = self.env.now - transfer.begun
        transfer.end(last)
        return last

    def receive(self, rank: Rank, action: Action) -> Generator[simpy.Event, Any, Seconds]:
        """Wait for the messages of all peers: the last sender (a bubble), then the network (exposed); returns their seconds."""
        every = [self._transfer(key) for key in self.addresses.messages(rank, action)]
        for transfer in every:
            if not transfer.has_ended:
                rank.last = yield transfer.ended(self.env)
        for transfer in every:
            del self.transfers[transfer.key]
        issued = min(max(rank.since, *(transfer.ready for transfer in every)), self.env.now)
        if issued > rank.since:
            awaited = Label(Action(action.operation, action.stage, action.microbatch, peer=action.peer), "pp", "wait ")
            self.log.add(rank, "wait", "bubble", rank.since, issued, awaited)
        self.log.add(rank, "wait", "exposed", issued, self.env.now, Label(action, "pp"))
        return max(transfer.lasted for transfer in every)

    # collectives

    def _arrive(self, rank: Rank, carrier: int) -> tuple[Transfer, bool]:
        """Arrive at the next collective of a carrier; whether this rank is the last one that it needs."""
        number = rank.arrived.get(carrier, 0)
        rank.arrived[carrier] = number + 1
        transfer = self._transfer((carrier, number))
        transfer.arrivals += 1
        return transfer, transfer.arrivals == len(self.members[carrier])

    def run(self, rank: Rank, action: Action) -> Steps:
        """Run a blocking collective: the process of the last rank to arrive runs its transfer; all ranks wait for its end.

        A rank that shares a tied embedding with several peers runs a collective with each of them at the same time."""
        first, *others = (self._arrive(rank, carrier) for carrier in self.addresses.carriers(rank, action))
        for transfer, is_last in others:
            if is_last:
                self.env.process(self._collective(transfer, action, rank, rank.last))
        transfer, is_last = first
        if is_last:
            rank.last = yield from self._collective(transfer, action, rank, rank.last)
        for transfer, _ in (first, *others):
            yield from self.wait(rank, action, transfer)
            rank.since = self.env.now

    def start(self, rank: Rank, action: Action) -> tuple[Transfer, ...]:
        """Arrive at a collective that runs beside the compute of its ranks; in unlike pipelines, at one for each slice of the
        weights that the rank has."""
        carriers = self.addresses.carriers(rank, action)
        rank.overlapped += len(carriers)
        every = [self._arrive(rank, carrier) for carrier in carriers]
        for transfer, is_last in every:
            if is_last:
                self.env.process(self._collective(transfer, action, rank, rank.last))
        return tuple(transfer for transfer, _ in every)

    def wait_for(self, rank: Rank, action: Action, started: tuple[Transfer, ...]) -> Steps:
        """Wait for the end of all collectives that were started together."""
        for transfer in started:
            yield from self.wait(rank, action, transfer)
            rank.since = self.env.now

    def wait(self, rank: Rank, action: Action, transfer: Transfer) -> Steps:
        """Wait for the end of a collective: for its last rank (a bubble), then for the network (exposed)."""
        if not transfer.has_ended:
            rank.last = yield transfer.ended(self.env)
        issued, group = min(max(rank.since, transfer.ready), self.env.now), action.group
        if issued > rank.since:
            self.log.add(rank, "wait", "bubble", rank.since, issued, Label(action, group, "wait ", has_microbatch=False))
        self.log.add(rank, "wait", "exposed", issued, self.env.now, Label(action, group, has_microbatch=False))

    def _collective(self, transfer: Transfer, action: Action, latest: Rank, after: int) -> Generator[simpy.Event, Any, int]:
        """Run the transfer of a collective whose last rank, `latest`, has arrived; returns the span of it on that rank.

        `after` is the index of the span whose end let the collective begin, unless it has to wait in its lane."""
        carrier = transfer.key[0]
        yield from self._queue(transfer, self.lane(carrier), after)
        is_overlapped = action.kind != "collective"
        slows = 0.0 if action.kind in TENSOR else self.folding.carriers[carrier].interference
        if is_overlapped:
            self._slow_down(carrier, slows)
        yield from self._carry(transfer, action)
        if is_overlapped:
            self._speed_up(carrier, slows)
        last = transfer.after
        lane = {"embedding": "dp", "etp": "ep"}.get(action.group, action.group)
        label = Label(action, action.group, has_microbatch=action.group in ("tp", "cp", "etp", "ep"))
        for rank in self.members[carrier]:
            span = self.log.add(rank, lane, "collective", transfer.begun, self.env.now, label, transfer.after)
            last = span if rank is latest else last
        del self.transfers[transfer.key]
        transfer.end(last)
        return last

    def _slow_down(self, carrier: int, slows: float) -> None:
        """A collective beside the compute of its ranks goes onto the network and slows their compute, except beside products,
        where copy engines do it (Transformer Engine, use_ce of its user buffers)."""
        for rank in self.members[carrier]:
            rank.slowdowns.append(slows)
            _interrupt(rank)

    def _speed_up(self, carrier: int, slows: float) -> None:
        """A collective beside the compute of its ranks has left the network."""
        for rank in self.members[carrier]:
            rank.slowdowns.remove(slows)
            rank.overlapped -= 1
            _interrupt(rank)


def _interrupt(rank: Rank) -> None:
    """Let a computing rank take notice of its slowdowns."""
    if rank.changed is not None and not rank.changed.triggered:
        rank.changed.succeed()
