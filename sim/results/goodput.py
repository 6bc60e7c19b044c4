"""Goodput: fraction of the time of a long run spent on steps that no failure undoes, with checkpoints and restarts.

A run computes for an interval, then saves for `checkpoint` seconds; a failure returns it to the last checkpoint, and it
computes again after `restart` seconds; failures may happen while it saves or restarts. They are Poisson processes: each device,
node and link fails independently, with a mean time between failures (MTBF) of its kind. A spare is available within the
restart.

Closed forms: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (9), 1974; J. T. Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22, 2006, of which the expected wall time is
exact for this model in the long run, and the optimum accurate to a fraction of a percent. `simulated` runs the model as events.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import simpy

from sim import units
from sim.engine.faults import ports
from sim.errors import OptionError
from sim.plan.plan import Plan
from sim.units import Seconds

KINDS = ("device", "node", "link")
HOUR, DAY = 3600.0, 86400.0
LLAMA_3 = 54 * DAY * 16384 / 419
"""Default MTBF of a device, to which all interruptions are attributed: 419 unexpected ones in 54 days on 16,384 H100 (The Llama
3 Herd of Models, arXiv 2407.21783, section 3.3.4); 50,677 hours. A larger one means fewer failures."""


@dataclass(frozen=True, slots=True)
class Run:
    """A long run: by kind, the number of components and the MTBF of one; seconds of a checkpoint, a restart and an interval."""

    counts: Mapping[str, int]
    mtbf: Mapping[str, Seconds]
    checkpoint: Seconds
    restart: Seconds
    interval: Seconds

    @property
    def rates(self) -> dict[str, float]:
        """Failures per second of all components of each kind."""
        return {kind: self.counts[kind] / mean for kind, mean in self.mtbf.items() if self.counts[kind]}

    @property
    def between(self) -> Seconds:
        """Mean seconds between failures of the run."""
        return 1 / sum(self.rates.values())

    @property
    def goodput(self) -> float:
        """Expected fraction of the time spent on steps that no failure undoes (Daly 2006, the complete cost function).

        Zero if it is too small for a float."""
        mean = self.between
        try:
            segment = mean * math.exp(self.restart / mean) * math.expm1((self.interval + self.checkpoint) / mean)
        except OverflowError:
            return 0.0
        return self.interval / segment


def young(checkpoint: Seconds, between: Seconds) -> Seconds:
    """Optimal checkpoint interval, first order (Young 1974)."""
    return math.sqrt(2 * checkpoint * between)


def daly(checkpoint: Seconds, between: Seconds) -> Seconds:
    """Optimal checkpoint interval, higher order (Daly 2006)."""
    if checkpoint >= 2 * between:
        return between
    part = checkpoint / (2 * between)
    return young(checkpoint, between) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint


def counts(plan: Plan) -> dict[str, int]:
    """Numbers of components that can fail: devices with a rank, their hosts (kind "node"), the NICs of their nodes, and trunks
    between used clusters."""
    hosts = {(device.cluster, plan.fleet.cluster(device.cluster).on_host(device)[0]) for device in plan.placement}
    nodes = {(device.cluster, device.node) for device in plan.placement}
    clusters = {name for name, _ in nodes}
    used = 0
    for port in ports(plan.fleet):
        kind, a, b, *_ = port[0]
        used += {a, b} <= clusters if kind == "trunk" else (a, b) in nodes
    return {"device": len(plan.placement), "node": len(hosts), "link": used}


def mtbf(texts: tuple[str, ...]) -> dict[str, Seconds]:
    """MTBF by kind from texts such as `device:50000h`, `node:20000h`, `link:1e6h`; without any, `LLAMA_3` for devices.

    Raises OptionError."""
    found: dict[str, Seconds] = {}
    for text in texts:
        kind, _, mean = text.partition(":")
        if kind.strip() not in KINDS:
            raise OptionError(f"--fail {text!r} is not device, node or link with its MTBF; write for example device:50000h")
        if kind.strip() in found:
            raise OptionError(f"--fail {text!r}: the MTBF of a {kind.strip()} is given twice; give each kind once")
        found[kind.strip()] = seconds("--fail", mean, "device:50000h")
        if not found[kind.strip()]:
            raise OptionError(f"--fail {text!r}: an MTBF must be above 0; write for example device:50000h")
    return found or {"device": LLAMA_3}


def seconds(option: str, text: str, example: str) -> Seconds:
    """Parse the time of a command-line option. Raises OptionError."""
    try:
        return units.parse(text, "time")
    except ValueError as error:
        raise OptionError(f"{option} {text!r} is not a time with a unit; write for example {example}") from error


@dataclass(slots=True)
class Account:
    """Seconds of a run by use, and failures by kind. Unfinished work at the end counts as useful."""

    useful: Seconds = 0.0
    saving: Seconds = 0.0
    lost: Seconds = 0.0
    restarting: Seconds = 0.0
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


def simulated(run: Run, horizon: Seconds, seed: int) -> Account:
    """Simulate `horizon` seconds of a run as discrete events. The same seed gives the same run."""
    env, account = simpy.Environment(), Account()
    job = _Job(env, run, account)
    process = env.process(job.runs())
    for kind, rate in run.rates.items():
        env.process(_fail(env, process, rate, Random(f"{seed} {kind} fails"), account, kind))
    env.run(until=horizon)
    job.ends()
    return account


class _Job:
    """The job: whether it computes (or saves) or restarts, and since when."""

    def __init__(self, env: simpy.Environment, run: Run, account: Account):
        self.env, self.run, self.account = env, run, account
        self.begun, self.computes = 0.0, True

    def runs(self) -> Generator[simpy.Event, Any, None]:
        run, account = self.run, self.account
        while True:
            self.begun = self.env.now
            try:
                yield self.env.timeout(run.interval + run.checkpoint if self.computes else run.restart)
            except simpy.Interrupt:
                self._spent("lost" if self.computes else "restarting", self.env.now - self.begun)
                self.computes = False
                continue
            if self.computes:
                account.useful += run.interval
                account.saving += run.checkpoint
            else:
                account.restarting += run.restart
                self.computes = True

    def ends(self) -> None:
        """Account for the unfinished activity at the end of the horizon."""
        spent = self.env.now - self.begun
        if self.computes:
            self._spent("useful", min(spent, self.run.interval))
            self._spent("saving", max(spent - self.run.interval, 0.0))
        else:
            self._spent("restarting", spent)

    def _spent(self, what: str, seconds: Seconds) -> None:
        setattr(self.account, what, getattr(self.account, what) + seconds)


def _fail(
    env: simpy.Environment, job: simpy.Process, rate: float, random: Random, account: Account, kind: str
) -> Generator[simpy.Event, Any, None]:
    """Process that interrupts the job with the failures of one kind."""
    while True:
        yield env.timeout(random.expovariate(rate))
        account.failures[kind] += 1
        job.interrupt()
