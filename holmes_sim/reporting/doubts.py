"""What a reader of a plan should doubt: memory that is nearly full, efficiencies that nobody measured, promises out of date.

The catalogue says of each number where it comes from; what begins with `guess`, or says so of a part, was not measured on the
thing itself. A fitted curve of matrix products holds for sizes like those that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holmes_sim import commands
from holmes_sim.reporting.study import Study
from sim.formats import catalog
from sim.formats.catalog_facts import DeviceFacts, NicTypeFacts
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.kernels import memory
from sim.kernels.compute import rank_kernels
from sim.plan.groups import Group
from sim.plan.plan import Plan
from sim.units import GIBI, time_text
from sim.workload.kernels import Gemm

NEAR = 0.95
"""Share of a device's memory from which on a plan is told to be near the limit."""
MEASURED = (1024, 512, 512)
"""Least m, n, k of the products that the catalogue's curves were fitted to (`gemm` in the sources of sim/catalog/devices)."""
CURVES = {"gemm": "matrix products", "attention": "the attention core", "elementwise_efficiency": "elementwise passes"}
"""Key of a device of the catalogue that holds efficiencies -> what they are of."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why to doubt, in a sentence, and what the catalogue says of it."""

    text: str
    sources: tuple[str, ...] = ()


def doubts(study: Study) -> Iterator[Doubt]:
    """What to doubt, the gravest first."""
    plan = study.plan
    yield from map(Doubt, _promise(study))
    yield from map(Doubt, _memory(plan))
    yield from _devices(plan)
    yield from _links(plan)
    yield from map(Doubt, _sizes(plan))
    yield from (Doubt(line) for line in commands.rests_on(plan) if "formula" in line or "interpolated" in line)
    idle = plan.fleet.devices - plan.config.world_size
    if idle:
        yield Doubt(f"{idle:,} of {plan.fleet.devices:,} devices stand idle.")


def _promise(study: Study) -> Iterator[str]:
    promised, found = study.plan.prediction, study.run.prediction
    if promised is not None and not math.isclose(promised.step_s, found.step_s, rel_tol=1e-9):
        yield (
            f"The plan promises {time_text(promised.step_s)} a step; this version of holmes-sim simulates "
            f"{time_text(found.step_s)}, and the pipeline and the seconds below are of that. Plan anew."
        )


def _memory(plan: Plan) -> Iterator[str]:
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    for place, (peak, limit) in enumerate(zip(peaks, limits, strict=True)):
        if peak >= NEAR * limit:
            over = "more than its device has" if peak > limit else f"within {1 - NEAR:.0%} of the limit"
            yield f"Memory of stage {place}: {peak / GIBI:.4g} of {limit / GIBI:.4g} GiB ({peak / limit:.1%}), {over}."


def _devices(plan: Plan) -> Iterator[Doubt]:
    for spec in dict.fromkeys(plan.fleet.spec(device) for device in plan.placement):
        facts = _known(spec)
        if facts is None:
            yield Doubt(f"{spec.name} is not as the catalogue has it: its efficiencies are the topology's own.")
            continue
        guessed = {what: facts.sources[key] for key, what in CURVES.items() if facts.sources.get(key, "").startswith("guess")}
        if guessed:
            words = _listed(list(guessed))
            sources = tuple(f"{what}: {source}" for what, source in guessed.items())
            yield Doubt(f"{spec.name}: the efficiency of {words} is extrapolated, not measured.", sources)


def _listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _known(spec: DeviceSpec) -> DeviceFacts | None:
    """The catalogue's entry that a device is of; None where a topology wrote its own."""
    if spec.name not in catalog.names("devices"):
        return None
    facts = catalog.device_facts(spec.name)
    own = facts.spec()
    return facts if (own.gemm, own.peak, own.memory_bandwidth) == (spec.gemm, spec.peak, spec.memory_bandwidth) else None


def _links(plan: Plan) -> Iterator[Doubt]:
    for spec in dict.fromkeys(spec for group in plan.groups for spec in _specs(plan, group)):
        facts = _link(spec)
        source = facts.sources.get("efficiency", "") if facts else ""
        if "guess" in source:
            part = "" if source.startswith("guess") else " in part"
            yield Doubt(f"{spec.name}: the share of its rate that payloads reach is extrapolated{part}.", (source,))


def _specs(plan: Plan, group: Group) -> Iterator[LinkSpec]:
    """The interconnects, or the NICs, that a group goes over."""
    for name in dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks):
        node = plan.fleet.cluster(name).node
        nic = node.nic(group.nic)
        yield nic.spec if nic else node.intra_node


def _link(spec: LinkSpec) -> NicTypeFacts | None:
    """The catalogue's entry that an interconnect or NIC is of; None where a topology wrote its own efficiency."""
    for kind, facts in (("nics", catalog.nic_facts), ("links", catalog.link_facts)):
        if spec.name in catalog.names(kind):
            found = facts(spec.name)
            return found if found.spec().efficiency == spec.efficiency else None
    return None


def _sizes(plan: Plan) -> Iterator[str]:
    """Products below the sizes that the curves were fitted to, if any."""
    products = (kernel for kernel in rank_kernels(plan.workload, plan.config) if isinstance(kernel, Gemm))
    small = [g for g in products if any(size < least for size, least in zip((g.m, g.n, g.k), MEASURED, strict=True))]
    if small:
        named = ", ".join(dict.fromkeys(f"{gemm.name} {gemm.m} x {gemm.n} x {gemm.k}" for gemm in small))
        least = " x ".join(map(str, MEASURED))
        yield f"Products smaller than those that efficiencies were fitted to ({least}), which are extrapolated: {named}."
