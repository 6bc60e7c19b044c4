"""The lab as a context manager: set up on entry, removed on exit."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from holmes_sim.lab.batches import addresses, bridge_links, forwarding, rates, settings, shaping
from holmes_sim.lab.namespaces import Namespaces, set_below_proc
from holmes_sim.lab.ranks import RankOutput, environment, run_ranks
from holmes_sim.lab.traffic import LabPlan
from holmes_sim.lab.wiring import RankLocation, Wiring, wire
from sim.errors import HolmesError
from sim.units import Seconds

LONGEST: Seconds = 1.0
"""Largest scaled latency that the lab emulates. With more, TCP sends every segment twice (initial retransmission timeout, RFC
6298).
"""


class Lab:
    """The hosts and links of a plan, `scale` times slower. Raises HolmesError if the system does not allow it.

    `has_latency` (valid after entry): whether latencies are emulated, which needs netem in the kernel and no scaled latency
    above `LONGEST`.
    """

    def __init__(self, plan: LabPlan, scale: float):
        self.wiring: Wiring = wire(plan, scale)
        self.has_latency = False
        self._namespaces: Namespaces | None = None

    def __enter__(self) -> Lab:
        wiring = self.wiring
        found = self._namespaces = Namespaces(len(wiring.hosts))
        try:
            self.has_latency = _longest(wiring) <= LONGEST and _has_netem(found)
            found.run(0, ("ip", "-batch", "-"), bridge_links(wiring, found.pids[1:]))
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

    def run(self, command: Callable[[RankLocation], list[str]], timeout: Seconds | None = None) -> tuple[RankOutput, ...]:
        """Run a program for every rank in the namespace of its host, and wait for all. Returns the outputs by rank.

        Raises HolmesError if a rank fails (with its last line) or after `timeout`; all other ranks are killed. Environment of a
        rank: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as under torchrun; HOLMES_SIM_SCALE; HOLMES_SIM_HOST,
        its node (`ib/node0`); and HOLMES_SIM_INTERFACES, JSON of NIC type (or intra_node) -> names of the interfaces near its
        device.
        """
        assert self._namespaces is not None, "run needs `with Lab(...)`"
        return run_ranks(self._namespaces, self.wiring, command, timeout)

    def inside(self, command: list[str]) -> list[str]:
        """A command line that runs a command in the lab's own network and PID namespace; the command is killed when the lab
        ends.
        """
        assert self._namespaces is not None, "inside needs `with Lab(...)`"
        return self._namespaces.inside(0, command, is_program=True)

    def namespace_of(self, rank: int) -> tuple[str, dict[str, str]]:
        """(file of the network namespace of a rank, environment of the rank)."""
        assert self._namespaces is not None, "namespace_of needs `with Lab(...)`"
        location = self.wiring.ranks[rank]
        return f"/proc/{self._namespaces.pids[location.host + 1]}/ns/net", environment(self.wiring, location)

    def close(self) -> None:
        """Remove the lab."""
        if self._namespaces is not None:
            self._namespaces.close()


def _longest(wiring: Wiring) -> Seconds:
    """The largest latency of all NICs and cables."""
    nics = [nic.shape.latency for host in wiring.hosts for nic in host.interfaces]
    return max((*nics, *(shape.latency for cable in wiring.cables for shape in cable.shapes)), default=0.0)


def _has_netem(namespaces: Namespaces) -> bool:
    """Whether the kernel has netem, tested on the loopback device of the bridges' namespace."""
    try:
        namespaces.run(0, ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"))
    except HolmesError:
        return False
    return True
