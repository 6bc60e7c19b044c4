"""Plans under another software stack."""

from __future__ import annotations

from dataclasses import replace

from sim.errors import PlanError
from sim.hardware.stack import DEFAULT, Stack, applied, software_facts
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def config_under(stack: Stack, plan: Plan) -> ParallelConfig:
    """The configuration of a plan with the facts of another software stack."""
    config = plan.config
    return replace(config, **software_facts(stack, plan.fleet, config.tp, config.own_tp_overlap, plan.placement))


def with_stack(stack: Stack, plan: Plan) -> Plan:
    """The plan on the same devices under another software stack.

    Raises PlanError if the topology has a stack of its own, whose rates its fleet has."""
    if plan.topology.stack != DEFAULT:
        raise PlanError(f"stack: topology {plan.topology.name} has a software stack of its own; leave it out here")
    topology = replace(plan.topology, fleet=applied(stack, plan.fleet), stack=stack)
    return replace(plan, config=config_under(stack, plan), topology=topology)
