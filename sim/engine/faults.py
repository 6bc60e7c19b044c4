"""Faults of a step: stragglers, jitter, degraded and flapping links, drawn at random by seed.

Optional and reproducible: the same seed gives the same timeline, byte for byte, and without faults it is that of the plan.
Drawn faults change the seconds of `sim.engine.durations` and the capacities of `sim.engine.symmetry`, which the engine
reads; there is no second model. Each kind of fault has a random stream of its own, which runs through all machines of the
fleet in their order: a seed slows the same devices for every plan, whatever other faults are asked for.

Only NICs (both directions of one together) and trunks can have link faults. Collectives and messages keep the routes chosen
without faults: a library that has made its rings does not make them anew for a slow link."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from sim import units
from sim.errors import OptionError
from sim.hardware.cluster import Device, Fleet
from sim.network.paths import LinkName
from sim.units import Seconds

Port: TypeAlias = tuple[LinkName, ...]
"""The links that fail together: both directions of one NIC, or of one trunk."""

HORIZON = 4.0
"""Time for which flaps are drawn, in units of the step without faults; later, a longer step has no flaps. A guess; a larger
value makes each draw slower."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Each device is, with probability `share`, a straggler, which computes `factor` times as long for the whole step."""

    share: float
    factor: float


@dataclass(frozen=True, slots=True)
class Degraded:
    """Each NIC and each trunk has, with probability `share`, only `rate` times its bandwidth, for the whole step."""

    share: float
    rate: float


@dataclass(frozen=True, slots=True)
class Flaps:
    """Each NIC and each trunk is up for `up` seconds on average (exponential), then down for `down` seconds, in which it
    transfers nothing. So it goes down once in `up + down` seconds on average."""

    up: Seconds
    down: Seconds


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that may happen. `jitter` is the standard deviation of a compute action's seconds over their mean (lognormal)."""

    stragglers: Stragglers | None = None
    jitter: float = 0.0
    degraded: Degraded | None = None
    flaps: Flaps | None = None

    def __str__(self) -> str:
        slow, weak, flaps = self.stragglers, self.degraded, self.flaps
        said = [f"{100 * slow.share:.4g} % of the devices {slow.factor:.4g} times as slow" if slow else ""]
        said += [f"jitter {100 * self.jitter:.4g} %" if self.jitter else ""]
        said += [f"{100 * weak.share:.4g} % of the links at {100 * weak.rate:.4g} % of their rate" if weak else ""]
        said += [
            f"each link down after {flaps.up / 3600:.4g} h up on average, for {units.time_text(flaps.down)}" if flaps else ""
        ]
        return ", ".join(filter(None, said)) or "none"


@dataclass(frozen=True, slots=True)
class DrawnFaults:
    """Faults drawn by a seed: slowdown factors of devices, shares of rate that links keep, outages (from, until) of links.

    `jitter` has a random stream for each device, named by `seed`; without jitter the seed is 0, so that equal draws are equal
    values."""

    slow: tuple[tuple[Device, float], ...] = ()
    weak: tuple[tuple[LinkName, float], ...] = ()
    down: tuple[tuple[LinkName, tuple[tuple[Seconds, Seconds], ...]], ...] = ()
    jitter: float = 0.0
    seed: int = 0
    _slow: dict[Device, float] = field(init=False, repr=False, compare=False)
    _weak: dict[LinkName, float] = field(init=False, repr=False, compare=False)
    _down: dict[LinkName, tuple[tuple[Seconds, Seconds], ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("slow", "weak", "down"):
            object.__setattr__(self, f"_{name}", dict(getattr(self, name)))

    def slowdown(self, device: Device) -> float:
        """Factor on the compute seconds of a device; 1 for a device without fault."""
        return self._slow.get(device, 1.0)

    def rate_share(self, link: LinkName) -> float:
        """Share of its rate that a link has; 1 for a link without fault."""
        return self._weak.get(link, 1.0)

    def outages(self, link: LinkName) -> tuple[tuple[Seconds, Seconds], ...]:
        """Outages of a link as (from, until), in order."""
        return self._down.get(link, ())

    def jitter_factors(self, device: Device) -> Iterator[float]:
        """Lognormal factors of mean 1, one for each compute action of a device in turn."""
        random, variance = Random(f"{self.seed} jitter {device}"), math.log1p(self.jitter**2)
        while True:
            yield math.exp(random.gauss(-variance / 2, math.sqrt(variance)))

    def by_node(self) -> Iterator[tuple[tuple[str, int], int, tuple[object, ...]]]:
        """((cluster, node), index of a device or -1 for the whole node, fault) of every fault on a node."""
        for device, factor in self.slow:
            yield (device.cluster, device.node), device.index, ("slow", factor)
        for link, fault in (*self.weak, *self.down):
            if link[0] == "nic":
                yield (str(link[1]), int(link[2])), -1, (*link[3:], fault)


NO_FAULTS = DrawnFaults()
"""No faults: the step of the plan."""


def draw(faults: Faults, fleet: Fleet, seed: int, step_s: Seconds = 0.0) -> DrawnFaults:
    """Draw faults on the machines of a fleet; flaps within `HORIZON` times `step_s`, the seconds of the step without faults."""
    slow: list[tuple[Device, float]] = []
    weak: list[tuple[LinkName, float]] = []
    down: list[tuple[LinkName, tuple[tuple[Seconds, Seconds], ...]]] = []
    if faults.stragglers is not None:
        random = Random(f"{seed} stragglers")
        slow = [(d, faults.stragglers.factor) for d in _devices(fleet) if random.random() < faults.stragglers.share]
    if faults.degraded is not None:
        random = Random(f"{seed} degraded")
        chosen = [port for port in ports(fleet) if random.random() < faults.degraded.share]
        weak = [(link, faults.degraded.rate) for port in chosen for link in port]
    if faults.flaps is not None:
        random = Random(f"{seed} flaps")
        for port in ports(fleet):
            times = tuple(_flaps(faults.flaps, random, HORIZON * step_s))
            down += [(link, times) for link in port if times]
    return DrawnFaults(tuple(slow), tuple(weak), tuple(down), faults.jitter, seed if faults.jitter else 0)


def _flaps(flaps: Flaps, random: Random, horizon: Seconds) -> Iterator[tuple[Seconds, Seconds]]:
    """Outages of a link as (from, until); the first may have begun before the step."""
    begin = random.expovariate(1 / flaps.up) - flaps.down
    while begin < horizon:
        yield max(begin, 0.0), begin + flaps.down
        begin += flaps.down + random.expovariate(1 / flaps.up)


def _devices(fleet: Fleet) -> Iterator[Device]:
    for cluster in fleet.clusters:
        for node in range(cluster.nodes):
            for index in range(cluster.node.count):
                yield Device(cluster.name, node, index)


def ports(fleet: Fleet) -> Iterator[Port]:
    """All links of a fleet that can fail: NICs node by node, then trunks."""
    for cluster in fleet.clusters:
        for node in range(cluster.nodes):
            for nic in cluster.node.nics:
                for index in range(nic.count):
                    at: LinkName = ("nic", cluster.name, node, nic.kind, index)
                    yield (*at, "out"), (*at, "in")
    for (a, b), kind in dict.fromkeys((trunk.between, trunk.kind) for trunk in fleet.trunks):
        yield ("trunk", a, b, kind, "out"), ("trunk", b, a, kind, "out")


# text forms of the command line

_NUMBER = r"[0-9]*\.?[0-9]+"
_SHARED = re.compile(rf"({_NUMBER})\s*(%?)\s*:\s*({_NUMBER})\s*(%?)")
_SPREAD = re.compile(rf"({_NUMBER})\s*(%?)")


def stragglers(text: str) -> Stragglers:
    """`1%:1.5`: one device in a hundred takes 1.5 times as long. Raises OptionError."""
    share, factor = _pair("--stragglers", text, "1%:1.5")
    if factor < 1:
        raise OptionError(
            f"--stragglers {text!r}: a straggler takes at least 1 times as long, not {factor:g}; write for example 1%:1.5"
        )
    return Stragglers(share, factor)


def degraded(text: str) -> Degraded:
    """`1%:50%`: one link in a hundred has half its rate. Raises OptionError."""
    share, rate = _pair("--degrade", text, "1%:50%")
    if not 0 < rate <= 1:
        raise OptionError(
            f"--degrade {text!r}: the rate that a link keeps must be above 0 and at most 1 (100%); write for example 1%:50%"
        )
    return Degraded(share, rate)


def jitter(text: str) -> float:
    """`3%`: the standard deviation over the mean. Raises OptionError."""
    match = _SPREAD.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"--jitter {text!r} is not a standard deviation over the mean; write for example 3%")
    found = _number(match[1], match[2])
    if found > 1:
        raise OptionError(f"--jitter {text!r}: it must be at most 1 (100%); write for example 3%")
    return found


def flaps(text: str) -> Flaps:
    """`100h:5s`: each link goes down after 100 hours up on average, for 5 seconds. Raises OptionError."""
    up, colon, down = text.partition(":")
    try:
        parsed = Flaps(units.parse(up, "time"), units.parse(down, "time"))
    except ValueError as error:
        raise OptionError(
            f"--flaps {text!r} is not the mean time up between flaps and the time down; write for example 100h:5s"
        ) from error
    if not colon or not parsed.up > 0:
        raise OptionError(f"--flaps {text!r}: the time between flaps must be above 0; write for example 100h:5s")
    return parsed


def _pair(option: str, text: str, example: str) -> tuple[float, float]:
    match = _SHARED.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"{option} {text!r} is not a share and an effect; write for example {example}")
    share = _number(match[1], match[2])
    if share > 1:
        raise OptionError(f"{option} {text!r}: a share is at most 1 (100%); write for example {example}")
    return share, _number(match[3], match[4])


def _number(digits: str, percent: str) -> float:
    return float(digits) / (100 if percent else 1)
