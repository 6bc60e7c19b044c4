"""Warnings about a plan: memory that is nearly full, efficiencies that were not measured, slow transports, idle clusters.

The catalogue gives the source of each number. A number whose source begins with `guess`, or names a guess for a part, was not
measured on that device or link. A fitted curve of matrix products holds for sizes like the measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holmes_sim import commands
from holmes_sim.guesses import CURVES, catalogued, is_guessed
from holmes_sim.idle import idle_clusters, idle_devices, idle_nodes
from holmes_sim.results import SAME, confirms
from sim.formats import catalog
from sim.formats.catalog_facts import NicTypeFacts
from sim.hardware.cluster import Trunk
from sim.hardware.link_spec import LinkSpec
from sim.islands.exchange import exchange_cost
from sim.islands.prediction import is_on_host, outer_state_bytes
from sim.kernels import memory, offload
from sim.kernels.compute import rank_kernels
from sim.network import tcp
from sim.plan.groups import Group
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import GIBI, Bytes, Seconds, bytes_per_second_text, rate_text, time_text
from sim.workload.kernels import Gemm

NEAR = 0.9
"""Share of a device's memory above which a plan gets a warning. A guess: the predicted memory of runs that completed is off
by 10 % on average (docs/accuracy.md)."""
MEASURED = (1024, 512, 512)
"""Smallest m, n, k of the products that the catalogue's curves were fitted to (`gemm` in the sources of
sim/catalog/devices).
"""
EXPERTS = (
    "The model has experts: no constant was fitted to runs of such models on your software; their errors are larger "
    "(docs/accuracy.md)."
)
"""What is said of every plan of a mixture of experts."""


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """A warning in a sentence, and what the catalogue gives as sources."""

    text: str
    sources: tuple[str, ...] = ()


def plan_warnings(plan: Plan, simulated: Prediction | None = None) -> Iterator[PlanWarning]:
    """All warnings about a plan, the most important first. `simulated`: the prediction of a new simulation of it."""
    if simulated is not None and (text := unconfirmed(plan, simulated.step_s)):
        yield PlanWarning(text)
    yield from map(PlanWarning, memory_warnings(plan))
    yield from map(PlanWarning, _long_links(tcp.used(plan.fleet, plan.placement, plan.groups)))
    yield from _of_machines(plan)
    yield from (PlanWarning(text) for text in (idle_devices(plan), *idle_clusters(plan), *idle_nodes(plan)) if text)


def memory_warnings(plan: Plan) -> Iterator[str]:
    """Warnings about the memory of a plan's devices and hosts: a plan by hand may need more than there is."""
    yield from (*_memory(plan), *_host_memory(plan))


def islands_warnings(plan: IslandsPlan, period_s: Seconds | None = None) -> Iterator[PlanWarning]:
    """All warnings about a plan of islands: those of each island's plan, and what is assumed of the links between islands.

    `period_s`: the outer period of a new simulation of it."""
    if period_s is not None and (text := unconfirmed_islands(plan, period_s)):
        yield PlanWarning(text)
    outer = outer_state_bytes(plan) if is_on_host(plan) else (0.0,) * len(plan.islands)
    of_islands: dict[str, list[int]] = {}
    for index, (island, state) in enumerate(zip(plan.islands, outer, strict=True)):
        for text in (*_memory(island), *_host_memory(island, outer=state)):
            of_islands.setdefault(text, []).append(index)
    for text, numbers in of_islands.items():
        yield PlanWarning(f"{_islands(numbers)}: {text}")
    crossed = {frozenset(link[1:3]) for link, _ in exchange_cost(plan).use if link[0] == "trunk" and link[3] == "ethernet"}
    inside = [trunk for island in plan.islands for trunk in tcp.used(island.fleet, island.placement, island.groups)]
    between = [trunk for trunk in plan.fleet.trunks if trunk.kind == "ethernet" and frozenset(trunk.between) in crossed]
    yield from map(PlanWarning, _long_links(dict.fromkeys((*inside, *between))))
    yield from dict.fromkeys(warning for island in plan.islands for warning in _of_machines(island))


def _islands(numbers: list[int]) -> str:
    """`Island 2`, `Islands 0 and 1`, `Islands 0, 2 and 5`, or `Islands 0 to 7` for consecutive numbers."""
    if len(numbers) == 1:
        return f"Island {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"Islands {numbers[0]} to {numbers[-1]}"
    return f"Islands {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


OTHER_PREDICTION = (
    "the file was changed, or another version of holmes-sim, or another profile, made the prediction. Make a new plan."
)
"""Why a prediction is not that of a new simulation."""


def unconfirmed_islands(plan: IslandsPlan, period_s: Seconds) -> str:
    """One line if the plan's prediction differs from a new simulation of its outer period, in seconds; empty if it does not."""
    if plan.prediction is None or math.isclose(plan.prediction.period_s, period_s, rel_tol=SAME):
        return ""
    return (
        f"The plan predicts {time_text(plan.prediction.period_s)} per outer period, but its simulation gives "
        f"{time_text(period_s)}: {OTHER_PREDICTION}"
    )


def _of_machines(plan: Plan) -> Iterator[PlanWarning]:
    """Warnings about the machines and the model of a plan, which several islands may have in common."""
    yield from map(PlanWarning, _sockets(plan))
    yield from _devices(plan)
    yield from _links(plan)
    yield from map(PlanWarning, _sizes(plan))
    yield from map(PlanWarning, _positions(plan))
    if plan.workload.model.experts:
        yield PlanWarning(EXPERTS)
    yield from map(PlanWarning, commands.software(plan))
    yield from (PlanWarning(line) for line in commands.rests_on(plan) if "formula" in line or "interpolated" in line)


def pipelines_warnings(plan: PipelinesPlan) -> Iterator[PlanWarning]:
    """Warnings about a plan of unlike pipelines: the memory of each, and the machines and the model of all."""
    for index, pipeline in enumerate(plan.pipelines):
        yield from (PlanWarning(f"Pipeline {index}: {text}") for text in _memory(pipeline))
    yield from map(PlanWarning, _host_memory(*plan.pipelines))
    yield from dict.fromkeys(warning for pipeline in plan.pipelines for warning in _of_machines(pipeline))


def unconfirmed(plan: Plan | PipelinesPlan, step_s: Seconds) -> str:
    """One line if the plan's prediction differs from a new simulation of its step, in seconds; empty if it does not."""
    if plan.prediction is None or confirms(plan, step_s):
        return ""
    return (
        f"The plan predicts {time_text(plan.prediction.step_s)} per step, but its simulation gives {time_text(step_s)}, which "
        f"is shown: {OTHER_PREDICTION}"
    )


def _memory(plan: Plan) -> Iterator[str]:
    """A warning for each stage whose memory is near or above the limit."""
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    for pp_rank, (peak, limit) in enumerate(zip(peaks, limits, strict=True)):
        if peak >= NEAR * limit:
            over = "more than its device has" if peak > limit else f"within {1 - NEAR:.0%} of the limit"
            yield f"Memory of stage {pp_rank}: {peak / GIBI:.4g} of {limit / GIBI:.4g} GiB ({peak / limit:.1%}), {over}."


def _host_memory(*plans: Plan, outer: Bytes = 0.0) -> Iterator[str]:
    """What a plan, or unlike pipelines together, offload, and outer state of `outer` bytes a rank, take on hosts, and what is
    unknown of the hosts."""
    on_hosts = any(plan.config.offloads_optimizer for plan in plans)
    states = (("optimizer", on_hosts), ("outer", outer))
    words = [f"{' and '.join(state)} state"] if (state := [word for word, is_there in states if is_there]) else []
    words += ["activations"] if any(plan.config.offloads_activations for plan in plans) else []
    kept = f"{' and '.join(words)} take{'' if words[-1:] == ['activations'] else 's'}"
    for name, nbytes in offload.fullest_hosts(*plans, beside=outer).items():
        node = plans[0].fleet.cluster(name).node
        text = f"Host memory of {name}: {kept} {nbytes / GIBI:.4g} GiB on its fullest host"
        if node.host_memory is None:
            yield f"{text}, and is not checked: the topology does not give clusters.{name}.node.host_memory."
        elif nbytes > NEAR * node.host_memory:
            yield f"{text}, of {node.host_memory / GIBI:.4g} GiB ({nbytes / node.host_memory:.1%})."
        if on_hosts and node.device.host_memory_bandwidth is None:
            rate = bytes_per_second_text(offload.DEVICE_SHARE)
            yield (
                f"The optimizer on the CPUs of {name} is assumed to have {rate} of memory bandwidth for each device, a guess; "
                f"give clusters.{name}.node.host_memory_bandwidth."
            )
    if on_hosts:
        yield (
            "The optimizer on the hosts is predicted with all their CPUs at work. Published updates took three to six times as "
            "long where ranks had one thread or shared cores; exported launches set OMP_NUM_THREADS (nproc / ranks)."
        )


def _sockets(plan: Plan) -> Iterator[str]:
    """A warning for each kind of groups, except pipelines, that use sockets because their ranks have no common RDMA network."""
    for kind in dict.fromkeys(group.kind for group in plan.groups if group.transport == "tcp" and group.kind != "pp"):
        groups = [group for group in plan.groups if group.transport == "tcp" and group.kind == kind]
        size = f"{len(groups)} {kind} group{'s' if len(groups) > 1 else ''}"
        clusters = ", ".join(dict.fromkeys(plan.placement[rank].cluster for group in groups for rank in group.ranks))
        yield f"TCP sockets, and copies by the host, in {size} on {clusters}: the ranks have no common RDMA network."


def _long_links(trunks: Iterable[Trunk]) -> Iterator[str]:
    """A warning for each long link between clusters, unless one untuned connection fills it: what is assumed of TCP on it."""
    for trunk in trunks:
        name = f"TCP between {' and '.join(trunk.between)}"
        if tcp.is_limited(trunk):
            rate = tcp.rank_rate((trunk,))
            assert rate is not None
            yield f"{name}: at most {rate_text(rate)} for each rank, by the window, loss and connections of the link."
        elif trunk.latency >= tcp.LONG:
            untuned = tcp.rank_rate((replace(trunk, window=tcp.LINUX_WINDOW),))
            assert untuned is not None
            if untuned >= trunk.bandwidth:
                continue
            yield (
                f"{name} is assumed to fill the link; untuned, one connection carries {rate_text(untuned)} at a latency of "
                f"{time_text(trunk.latency)} (window: 4 MiB at the link plans with that)."
            )


def _devices(plan: Plan) -> Iterator[PlanWarning]:
    """A warning for each device type with efficiencies that were not measured, or that are not from the catalogue."""
    for spec in plan.specs:
        facts = catalogued(spec, plan.topology.stack)
        if facts is None:
            yield PlanWarning(f"{spec.name} differs from the catalogue: its efficiencies are from the topology.")
            continue
        guessed = {what: facts.sources[key] for key, what in CURVES.items() if is_guessed(facts, key)}
        if guessed:
            words = _listed(list(guessed))
            sources = tuple(f"{what}: {source}" for what, source in guessed.items())
            yield PlanWarning(f"{spec.name}: the efficiency of {words} is extrapolated, not measured.", sources)


def _listed(words: Sequence[str]) -> str:
    """Words as text: `a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _links(plan: Plan) -> Iterator[PlanWarning]:
    """A warning for each interconnect or NIC with an efficiency that was not measured."""
    for spec in dict.fromkeys(spec for group in plan.groups for spec in _specs(plan, group)):
        facts = _link(spec)
        source = facts.sources.get("efficiency", "") if facts else ""
        if "guess" in source:
            part = "" if source.startswith("guess") else "partly "
            yield PlanWarning(f"{spec.name}: the share of its rate that payload reaches is {part}a guess.", (source,))


def _specs(plan: Plan, group: Group) -> Iterator[LinkSpec]:
    """The interconnects or NICs that a group uses."""
    for name in dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks):
        node = plan.fleet.cluster(name).node
        nic = node.nic(group.nic)
        yield nic.spec if nic else node.intra_node


def _link(spec: LinkSpec) -> NicTypeFacts | None:
    """The catalogue's entry of an interconnect or NIC; None if the topology changed its efficiency."""
    for kind, facts in (("nics", catalog.nic_facts), ("links", catalog.link_facts)):
        if spec.name in catalog.names(kind):
            found = facts(spec.name)
            return found if found.spec().efficiency == spec.efficiency else None
    return None


def _sizes(plan: Plan) -> Iterator[str]:
    """A warning for matrix products below the fitted sizes, if there are any."""
    products = (kernel for kernel in rank_kernels(plan.workload, plan.config) if isinstance(kernel, Gemm))
    small = [g for g in products if any(size < least for size, least in zip((g.m, g.n, g.k), MEASURED, strict=True))]
    if small:
        named = ", ".join(dict.fromkeys(f"{gemm.name} {gemm.m} x {gemm.n} x {gemm.k}" for gemm in small))
        least = " x ".join(map(str, MEASURED))
        yield f"Matrix products smaller than the fitted sizes ({least}); their efficiency is extrapolated: {named}."


def _positions(plan: Plan) -> Iterator[str]:
    """A warning if a sequence has more tokens than the model has learned positions."""
    positions, tokens = plan.workload.model.learned_positions, plan.workload.seq_len
    if 0 < positions < tokens:
        yield (
            f"The model has {positions} learned positions, and a sequence {tokens} tokens: Megatron-LM and FlagScale refuse "
            f"this, so plans may be limited to other frameworks. Set learned_positions to {tokens}, or to 0 for rotary ones."
        )
