"""The lab as one thing: wired when it is entered, gone when it is left."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from holmes_sim.lab.batches import addresses, forwarding, rates, settings, shaping, switchboard
from holmes_sim.lab.namespaces import Namespaces, set_below_proc
from holmes_sim.lab.ranks import Said, environment, play
from holmes_sim.lab.wiring import Seat, Wiring, wire
from sim.errors import HolmesError
from sim.plan.plan import Plan
from sim.units import Seconds

LONGEST: Seconds = 1.0
"""Latency, scaled, up to which the lab has any: beyond it TCP sends everything twice (its first timeout, RFC 6298)."""


class Lab:
    """The machines of a plan, `scale` times slower. Raises HolmesError where the system does not allow it.

    `has_latency` tells, once wired, whether packets are late as well: where the kernel has netem and no latency, scaled, is
    above `LONGEST`.
    """

    def __init__(self, plan: Plan, scale: float):
        self.wiring: Wiring = wire(plan, scale)
        self.has_latency = False
        self._namespaces: Namespaces | None = None

    def __enter__(self) -> Lab:
        wiring = self.wiring
        found = self._namespaces = Namespaces(len(wiring.hosts))
        try:
            self.has_latency = _longest(wiring) <= LONGEST and _has_netem(found)
            found.run(0, ("ip", "-batch", "-"), switchboard(wiring, found.pids[1:]))
            found.run(0, ("bridge", "-batch", "-"), forwarding(wiring.bridges))
            found.run(0, ("tc", "-batch", "-"), shaping(wiring, self.has_latency))
            for number in range(len(wiring.hosts)):
                found.run(number + 1, ("ip", "-batch", "-"), addresses(wiring, number, self.has_latency))
                found.run(number + 1, ("tc", "-batch", "-"), rates(wiring, number, self.has_latency))
                for path, value in settings(wiring, self.has_latency):
                    found.run(number + 1, set_below_proc(path, value))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def play(self, command: Callable[[Seat], list[str]], timeout: Seconds | None = None) -> tuple[Said, ...]:
        """Run a program for every rank in its host's namespace, and wait for all; what each one wrote, by rank.

        Raises HolmesError with the last line of the first rank that fails, once all others are killed, or when `timeout` is
        over. A rank finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as under torchrun; HOLMES_SIM_SCALE;
        HOLMES_SIM_HOST, its node (`ib/node0`); and HOLMES_SIM_INTERFACES, JSON of NIC type (or intra_node) -> names of the
        interfaces near to its device.
        """
        assert self._namespaces is not None, "play inside `with Lab(...)`"
        return play(self._namespaces, self.wiring, command, timeout)

    def inside(self, command: list[str]) -> list[str]:
        """A command line that runs a command in the lab's own network and PID namespace: it dies with the lab."""
        assert self._namespaces is not None, "inside `with Lab(...)`"
        return self._namespaces.inside(0, command, is_program=True)

    def stand(self, rank: int) -> tuple[str, dict[str, str]]:
        """The file of the network namespace that a rank belongs into, and its environment."""
        assert self._namespaces is not None, "stand inside `with Lab(...)`"
        seat = self.wiring.seats[rank]
        return f"/proc/{self._namespaces.pids[seat.host + 1]}/ns/net", environment(self.wiring, seat)

    def close(self) -> None:
        """Take it all down."""
        if self._namespaces is not None:
            self._namespaces.close()


def _longest(wiring: Wiring) -> Seconds:
    nics = [nic.shape.latency for host in wiring.hosts for nic in host.interfaces]
    return max((*nics, *(shape.latency for cable in wiring.cables for shape in cable.shapes)), default=0.0)


def _has_netem(namespaces: Namespaces) -> bool:
    """Whether this kernel can make packets late, tried out on the loopback of the bridges' namespace."""
    try:
        namespaces.run(0, ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"))
    except HolmesError:
        return False
    return True
