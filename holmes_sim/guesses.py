"""Which predictions rest on a guess: device types whose rates of matrix products the catalogue guesses."""

from __future__ import annotations

import math

from sim.formats import catalog
from sim.formats.catalog_facts import DeviceFacts
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.stack import Stack
from sim.kernels import compute
from sim.plan.plan import Plan

GUESS = "guess"
"""First word of the source of a number that was not measured on the device."""
CHECKED = "checked"
"""First word of the source of a number that was not fitted to measurements on the device, but agrees with some."""
CURVES = {"gemm": "matrix products", "attention": "the attention core", "elementwise_efficiency": "elementwise passes"}
"""Key of the catalogue that holds efficiencies -> what they belong to."""


def is_guessed(facts: DeviceFacts, key: str = "gemm") -> bool:
    """Whether the catalogue guesses a number of a device: by default the curve of its matrix products."""
    return facts.sources.get(key, "").startswith(GUESS)


def origin(facts: DeviceFacts) -> str:
    """Where the curve of the matrix products of a device comes from: `guess`, `checked` or `measured`."""
    source = facts.sources.get("gemm", "")
    return next((word for word in (GUESS, CHECKED) if source.startswith(word)), "measured")


def catalogued(spec: DeviceSpec, stack: Stack) -> DeviceFacts | None:
    """The catalogue's entry of a device at the rates of a software stack; None if the topology changed its rates."""
    if spec.name not in catalog.names("devices"):
        return None
    facts = catalog.device_facts(spec.name)
    own = stack.device(facts.isolated())
    same = (own.peak, own.memory_bandwidth) == (spec.peak, spec.memory_bandwidth)
    rates = ((one.gemm.compute_efficiency, one.gemm.memory_efficiency, one.gemm.launch) for one in (own, spec))
    return facts if same and all(math.isclose(a, b) for a, b in zip(*rates, strict=True)) else None


def guessed_rates(plan: Plan) -> tuple[str, ...]:
    """Device types of a plan whose matrix products have guessed rates, and no measured seconds of a profile."""
    found = []
    for spec in plan.specs:
        facts = catalogued(spec, plan.topology.stack)
        if facts is None or compute.measured(spec, plan.workload, plan.config) is not None:
            continue
        own = facts.gemm_of(plan.workload.precision) is not facts.gemm
        curve = f"gemm_{plan.workload.precision}" if own else "gemm"
        if is_guessed(facts, curve):
            found.append(spec.name)
    return tuple(found)
