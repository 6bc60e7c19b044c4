"""A group whose ranks stand on interfaces that nothing joins: InfiniBand in one cluster, RoCE in the other."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import pytest

from holmes_sim import lab
from holmes_sim.lab.wiring import Interface
from holmes_sim.torch_backend import local
from holmes_sim.torch_backend.fork_server import RankProcess
from holmes_sim.torch_backend.run_options import RunOptions
from sim.errors import HolmesError
from tests.holmes_sim.test_lab_run import PERMITTED, plan_of
from tests.more import more

INTERFACES = "HOLMES_SIM_INTERFACES"
FAST = ("infiniband", "roce")


@more
@PERMITTED
def test_ranks_on_two_fabrics_end_with_one_line() -> None:
    """The pp groups, which go over Ethernet, are told the RDMA NICs of their hosts: without a route, and on a route on which
    nobody answers."""
    plan = plan_of("lab-hybrid-nics", "megatron", pp=2, dp=2, microbatch_size=8)
    assert {group.nic for group in plan.groups if group.kind == "pp"} == {"ethernet"}
    with lab.Lab(plan, 20.0) as machines:
        nics = [nic for host in machines.wiring.hosts for nic in host.interfaces if nic.name.startswith(FAST)]
        assert sorted(nic.name for nic in nics) == ["infiniband0", "infiniband0", "roce0", "roce0"]

        def stand(seat: RankProcess, rank: int) -> RankProcess:
            namespace, environment = machines.namespace_of(rank)
            names = json.loads(environment[INTERFACES])
            names["ethernet"] = next(names[kind] for kind in FAST if kind in names)
            environment = seat.environment | environment | {INTERFACES: json.dumps(names)}
            return dataclasses.replace(seat, namespace=namespace, environment=environment)

        with local.Local(machines.inside) as here:
            for is_silent, how in enumerate(("cannot connect: ", "has not connected within 3 s")):
                if is_silent:
                    lead_nowhere(machines, nics)
                with pytest.raises(HolmesError) as error:
                    here.run(plan, RunOptions(steps=1, compute="paced", scale=20.0, connect=3.0), stand)
                told = str(error.value)
                groups = [f"the pp group of ranks {ranks} on ethernet {how}" for ranks in ("[0, 2]", "[1, 3]")]
                assert told.startswith(tuple(groups))
                assert "\n" not in told


def lead_nowhere(machines: lab.Lab, nics: list[Interface]) -> None:
    """Every host believes that the other fabric's addresses are its own fabric's: packets go out, no bridge knows where to."""
    for number, host in enumerate(machines.wiring.hosts):
        own = next(nic for nic in host.interfaces if nic.name.startswith(FAST))
        others = [nic for nic in nics if nic.name != own.name]
        lines = [f"route add {nic.address}/32 dev {own.name}" for nic in others]
        lines += [f"neigh replace {nic.address} lladdr {nic.mac} dev {own.name} nud permanent" for nic in others]
        rank = next(rank for rank, location in enumerate(machines.wiring.ranks) if location.host == number)
        namespace, _ = machines.namespace_of(rank)
        command = machines.inside(["nsenter", f"--net={namespace}", "ip", "-batch", "-"])
        subprocess.run(command, input="\n".join(lines), text=True, check=True)
