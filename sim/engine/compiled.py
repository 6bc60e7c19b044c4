"""Programs of ranks compiled for `sim.engine.step_times`: what each action does, with its seconds, carriers and transfers.

An operation is a tuple whose first item says what it is:

    (COMPUTE, seconds)                  computes; collectives beside it slow it down
    (PAUSE, seconds)                    computes, and waits for collectives whose links nothing else uses meanwhile
    (SEND, transfers)                   issues messages, which AWAIT calls SENT
    (RECEIVE, keys)                     waits for messages
    (ARRIVE, transfers, beside, name)   arrives at collectives, one for each carrier; `beside`: they run beside compute
    (AWAIT, name)                       waits for the end of the transfers that the rank issued or arrived at under a name

A transfer is (key, lane, legs): the key of a message is a number, that of a collective its carrier; a leg is (latency in
seconds, number of its flow, bytes). A carrier has a flow for each leg of each of its routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sim.engine.addresses import Addresses
from sim.engine.communication import gradient_lanes
from sim.engine.durations import Durations
from sim.engine.state import Component, Rank
from sim.engine.symmetry import Folding
from sim.errors import NotModelled
from sim.kernels.lowering import Lowered
from sim.network.sharing import Use
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, Action
from sim.plan.program import COMPUTE as COMPUTES
from sim.plan.round_trips import holds_receivers
from sim.units import Bytes, Seconds

COMPUTE, PAUSE, SEND, RECEIVE, ARRIVE, AWAIT = range(6)
SENT, BLOCKING = "sent", "blocking"
"""Names of messages, and of collectives that a rank waits for at once."""
Leg: TypeAlias = tuple[Seconds, int, Bytes]
Operation: TypeAlias = tuple[Any, ...]
Program: TypeAlias = tuple[Operation, ...]
Template: TypeAlias = tuple[Operation, Sequence[Any], int]
"""An operation of all pieces of one form (`Lowered.form`). Of SEND and RECEIVE it has the kind alone; their messages follow
without a microbatch, and how far that is from the microbatch of the piece."""


class Compiler:
    """Compiles programs of plans that have a folding in common. `uses`: links and weights of each flow."""

    def __init__(self, folding: Folding):
        self.folding = folding
        self.uses: list[Use] = []
        self._flows: dict[tuple[int, Use], int] = {}
        self._keys: dict[tuple[Any, ...], int] = {}
        self._lanes = gradient_lanes(folding)
        self._legs: dict[tuple[int, Bytes, float], tuple[Leg, ...]] = {}
        self._alone: dict[tuple[Leg, ...], Seconds] = {}
        self._same: dict[Operation, Operation] = {}  # programs share equal operations, to save memory
        self._private: dict[tuple[int, int], bool] = {}
        self._messages = {number for key, number in folding.of.items() if key[0] == "message"}
        self._on_link: dict[int, set[int]] = {}
        for number, carrier in enumerate(folding.carriers):
            for link in (link for route in carrier.routes for leg in route.legs for link, _ in leg.use):
                self._on_link.setdefault(link, set()).add(number)

    def programs(self, plan: Plan, pp_rank: int) -> dict[int, Program]:
        """The programs of all classes of ranks of a pipeline rank. Raises NotModelled for what only the engine simulates."""
        if holds_receivers(plan.config):
            raise NotModelled("messages that hold their receivers are simulated by the engine alone")
        plan.config.needs_engine("the compiler of programs")
        addresses, durations, found = Addresses(plan, self.folding), Durations(plan), dict[int, Program]()
        lowered: dict[int, Lowered] = {}
        for index, rank in enumerate(self.folding.representatives):
            _, dp_cp, own = plan.config.coordinates(rank)
            if own != pp_rank:
                continue
            many = plan.config.microbatches_of(dp_cp, pp_rank)
            if many not in lowered:
                lowered[many] = Lowered(plan, pp_rank, many)
            one = _OfClass(self, Rank(index, rank, pp_rank, lowered[many], Component()), addresses, durations)
            overlaps, same = schedules.get(plan.config.schedule).OVERLAPS_SENDS, self._same
            found[index] = tuple([same.setdefault(each, each) for each in _merged(one.operations(overlaps))])
        return found

    def is_private(self, carrier: int, index: int) -> bool:
        """Whether a collective of one class of ranks has its links for itself as long as no collective runs beside its compute:
        all others on the links are collectives in which the class takes part."""
        if (carrier, index) not in self._private:
            self._private[carrier, index] = self._has_own_links(carrier, index)
        return self._private[carrier, index]

    def _has_own_links(self, carrier: int, index: int) -> bool:
        carriers = self.folding.carriers
        links = (link for route in carriers[carrier].routes for leg in route.legs for link, _ in leg.use)
        others = set[int]().union(*(self._on_link[link] for link in links))
        takes_part = all(index in carriers[one].members and one not in self._messages for one in others)
        return carriers[carrier].members == (index,) and takes_part

    def lane(self, carrier: int) -> int:
        """The lane of a carrier."""
        return self._lanes.get(carrier, carrier)

    def key(self, message: tuple[Any, ...]) -> int:
        """The number of a message."""
        return self._keys.setdefault(message, len(self._keys))

    def legs(self, carrier: int, action: Action) -> tuple[Leg, ...]:
        """The legs of a transfer, as `sim.engine.communication.Communication._route`."""
        key = carrier, action.nbytes, action.times
        if key not in self._legs:
            route, count = self.folding.carriers[carrier].route(action.nbytes), action.times
            delays = [count * leg.latency for leg in route.legs]
            delays[0] += count * route.overhead
            flows = [self._flow(carrier, leg.use) for leg in route.legs]
            sizes = [count * action.nbytes * leg.share for leg in route.legs]
            self._legs[key] = tuple(zip(delays, flows, sizes, strict=True))
        return self._legs[key]

    def _flow(self, carrier: int, use: Use) -> int:
        if (carrier, use) not in self._flows:
            self._flows[carrier, use] = len(self.uses)
            self.uses.append(use)
        return self._flows[carrier, use]

    def alone(self, legs: tuple[Leg, ...]) -> Seconds:
        """Seconds of a transfer with nothing else on the network."""
        if legs not in self._alone:
            capacities = self.folding.capacities
            rates = (min(capacities[link] / weight for link, weight in self.uses[flow]) for _, flow, _ in legs)
            self._alone[legs] = sum(delay + nbytes / rate for (delay, _, nbytes), rate in zip(legs, rates, strict=True))
        return self._alone[legs]


class _OfClass:
    """Compiles the actions of a class of ranks."""

    def __init__(self, compiler: Compiler, rank: Rank, addresses: Addresses, durations: Durations):
        self.compiler, self.rank, self.addresses, self.durations = compiler, rank, addresses, durations
        self._known: dict[tuple[object, ...], list[Template]] = {}  # by form of a piece

    def operations(self, overlaps: bool) -> Iterator[Operation]:
        """The operations of all actions; ARRIVE also with its seconds, where nothing else uses its links (`_merged`).

        overlaps: sends overlap with compute."""
        program, key = self.rank.program, self.compiler.key
        for index in range(len(program)):
            own = program.microbatch(index)
            for operation, messages, later in self._templates(index, overlaps):
                if operation[0] == SEND:
                    yield SEND, tuple([(key((*sender, own + later)), *rest) for sender, *rest in messages])
                elif operation[0] == RECEIVE:
                    yield RECEIVE, tuple([key((*sender, own + later)) for sender in messages])
                else:
                    yield operation

    def _templates(self, index: int, overlaps: bool) -> list[Template]:
        """The operations of a piece, for all pieces of one form the same."""
        program, form = self.rank.program, self.rank.program.form(index)
        if form is None or form not in self._known:
            own = program.microbatch(index)
            found = [each for action in program.piece(index) for each in self._of_action(action, own, overlaps)]
            if form is None:
                return found
            self._known[form] = found
        return self._known[form]

    def _of_action(self, action: Action, own: int, overlaps: bool) -> Iterator[Template]:
        """The operations of an action of a piece whose microbatch is `own`."""
        if action.kind in ("send", "recv"):
            senders = [message[:-1] for message in self.addresses.messages(self.rank, action)]
            if action.kind == "recv":
                yield (RECEIVE,), senders, action.microbatch - own
                if host := self.durations.of_message(self.rank.rank, action):
                    yield (PAUSE, host), (), 0
                return
            if host := self.durations.of_message(self.rank.rank, action):
                yield (PAUSE, host), (), 0
            legs = [(sender, sender[0], self.compiler.legs(sender[0], action)) for sender in senders]
            yield (SEND,), legs, action.microbatch - own
            if not overlaps:
                yield (AWAIT, SENT), (), 0
            return
        yield from ((operation, (), 0) for operation in self._without_messages(action))

    def _without_messages(self, action: Action) -> Iterator[Operation]:
        """The operations of an action that is no message."""
        kind, compiler = action.kind, self.compiler
        if kind in BESIDE:
            raise NotModelled("exchanges beside compute are simulated by the engine alone")
        if kind in COMPUTES or kind == "optimizer":
            yield COMPUTE, self.durations.of(self.rank.rank, action)
        elif kind == "wait":
            yield AWAIT, (action.stage, action.group, action.operation, action.part)
        elif kind == "start" or not self.durations.include(self.rank.rank, action):
            carriers = self.addresses.carriers(self.rank, action)
            transfers = tuple((one, compiler.lane(one), compiler.legs(one, action)) for one in carriers)
            if kind == "start":
                yield ARRIVE, transfers, True, (action.stage, action.group, action.operation, action.part), None
                return
            is_private = all(compiler.is_private(one, self.rank.index) for one in carriers)
            alone = max(compiler.alone(legs) for *_, legs in transfers) if is_private else None
            yield ARRIVE, transfers, False, BLOCKING, alone
            yield AWAIT, BLOCKING


def _merged(operations: Iterator[Operation]) -> Iterator[Operation]:
    """The operations, with compute and collectives that follow one another as one pause, where no collective runs beside."""
    pause, beside = 0.0, set[Any]()
    for one in operations:
        if one[0] == COMPUTE and not beside:
            pause += one[1]
            continue
        if one[0] == ARRIVE and one[4] is not None and not beside:
            pause += one[4]
            next(operations)  # AWAIT
            continue
        if pause:
            yield PAUSE, pause
            pause = 0.0
        if one[0] == ARRIVE and one[2]:
            beside.add(one[3])
        elif one[0] == AWAIT:
            beside.discard(one[1])
        yield one[:4]
    if pause:
        yield PAUSE, pause
