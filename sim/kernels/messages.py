"""Messages between pipeline ranks: their bytes, and the work to compress those between clusters.

With `ParallelConfig.message_compression`, all messages between two neighbouring pipeline ranks are compressed if one of them
goes from one cluster to another, those of activations and those of their gradients alike. The sender compresses after it
computed a forward or backward, the receiver decompresses before it computes: passes over memory, which count as compute of
the stage. Buffers of compressed messages are not counted as memory: they are smaller than the messages."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from sim import compression
from sim.compression import Code
from sim.hardware.device_spec import DeviceSpec
from sim.kernels.formulas import pass_seconds
from sim.kernels.payloads import activation_bytes, message_bytes
from sim.network.p2p_load import P2PLoad
from sim.network.paths import Capacities
from sim.network.rings import Sites
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds

Passes: TypeAlias = tuple[Bytes, ...]
"""Bytes that each of some passes over memory reads and writes."""
NO_PASSES: tuple[Passes, Passes] = (), ()
"""The passes of a forward and of a backward of a stage whose messages are whole."""


def handling_seconds(passes: Passes, device: DeviceSpec) -> Seconds:
    """Seconds of passes that compress or decompress messages on a device."""
    return sum(pass_seconds(moved, device) for moved in passes)


def pairs_between(plan: Plan, source: int, target: int) -> dict[tuple[int, int], str]:
    """(sending rank, receiving rank) -> NIC type, of all messages from one pipeline rank to a neighbouring one."""
    found: dict[tuple[int, int], str] = {}
    for group in plan.groups:
        if group.kind == "pp":
            ranks = sorted(group.ranks)
            found[ranks[source], ranks[target]] = group.nic
    return found


def crosses(plan: Plan, source: int, target: int) -> bool:
    """Whether a message between two pipeline ranks goes from one cluster to another."""
    places = plan.placement
    return any(places[a].cluster != places[b].cluster for a, b in pairs_between(plan, source, target))


class Messages:
    """The messages of a plan: between which pipeline ranks they are compressed, and how."""

    def __init__(self, plan: Plan):
        self.plan, self.width = plan, plan.workload.bytes_per_value
        self._codes: dict[tuple[int, int], Code] = {}
        text = plan.config.message_compression
        if text != compression.NONE:
            seconds = {hop: self._seconds(*hop) for hop in self._hops() if crosses(plan, *hop)}
            slowest = max(seconds.values(), default=0.0)
            self._codes = {hop: compression.code(text, self.width, own / slowest) for hop, own in seconds.items()}

    def _hops(self) -> set[tuple[int, int]]:
        """Pairs of pipeline ranks with messages, the smaller one first."""
        rank_of = self.plan.config.rank_of
        ends = ((rank_of(stage), rank_of(stage + 1)) for stage in range(self.plan.head_stage))
        return {(min(pair), max(pair)) for pair in ends if pair[0] != pair[1]}

    def _seconds(self, source: int, target: int) -> Seconds:
        """Seconds of whole messages between two pipeline ranks, of all replicas at once, on an idle network."""
        pairs = pairs_between(self.plan, source, target)
        ends = np.array(list(pairs))
        load = P2PLoad(self.plan, Sites(self.plan), ends[:, 0], ends[:, 1], list(pairs.values()))
        return load.alpha_beta_cost("send_recv", Capacities(self.plan.fleet)).seconds(self._whole(source, target))

    def _whole(self, source: int, target: int) -> Bytes:
        config = self.plan.config
        parts = max(config.split_of(source), config.split_of(target))
        cp, tp = config.context_of(source)
        cuts = max(config.cuts_of(source), config.cuts_of(target))
        return message_bytes(self.plan.workload, config, cuts * parts * cp // config.cp * tp * config.sharing(source, target))

    def _code(self, source: int, target: int) -> Code | None:
        return self._codes.get((min(source, target), max(source, target)))

    def is_compressed(self, source: int, target: int) -> bool:
        """Whether messages between two pipeline ranks are compressed."""
        code = self._code(source, target)
        return code is not None and code.compressing > 0

    def nbytes(self, source: int, target: int) -> Bytes:
        """Bytes on the network of one message between two pipeline ranks, from a rank to one of its peers."""
        whole, code = self._whole(source, target), self._code(source, target)
        return whole * code.sent / self.width if code else whole

    def passes(self, stages: tuple[int, ...]) -> tuple[Passes, Passes]:
        """The passes of one rank to decompress and compress messages, beside the forwards and beside the backwards of one
        microbatch on these stages of one pipeline rank; and to join and to cut them, where a pass has several messages."""
        forward: list[Bytes] = []
        backward: list[Bytes] = []
        if self.plan.config.stage_microbatch_size:
            copied = self._copied(stages)
            return copied, copied
        for stage in stages if self._codes else ():
            own = self.plan.config.of_pp_rank(self.plan.config.rank_of(stage))
            values = activation_bytes(self.plan.workload, own) / self.width / own.tp
            before, after = (self._code_after(index) for index in (stage - 1, stage))
            if before is not None:
                forward.append(values * before.decompressing)
                backward.append(values * before.compressing)
            if after is not None:
                forward.append(values * after.compressing)
                backward.append(values * after.decompressing)
        return tuple(forward), tuple(backward)

    def _copied(self, stages: tuple[int, ...]) -> Passes:
        """The copies of activations of one microbatch, and of as many of gradients: a rank reads and writes them once for each
        neighbour with smaller microbatches, whose messages it joins or cuts."""
        config, found = self.plan.config, list[Bytes]()
        for stage in stages:
            own = config.rank_of(stage)
            smaller = [other for other in (own - 1, own + 1) if 0 <= other < config.pp and config.messages_of(own, other) > 1]
            values = activation_bytes(self.plan.workload, config.of_pp_rank(own)) / config.tp_of(own)
            found += [2 * values] * sum(self.is_sent(min(own, other)) for other in smaller)
        return tuple(found)

    def is_sent(self, stage: int) -> bool:
        """Whether a stage sends a message to the next one: that is on another rank, and the head is not before it."""
        rank_of = self.plan.config.rank_of
        return 0 <= stage < self.plan.head_stage and rank_of(stage) != rank_of(stage + 1)

    def _code_after(self, stage: int) -> Code | None:
        """How the messages between a stage and the next one are compressed; None if there are none, or they are whole."""
        rank_of = self.plan.config.rank_of
        code = self._code(rank_of(stage), rank_of(stage + 1)) if 0 <= stage < self.plan.head_stage else None
        return code if code and code.compressing else None
