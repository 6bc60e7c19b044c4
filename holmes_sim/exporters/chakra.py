"""Chakra: the programs of all ranks as execution traces, which ASTRA-sim simulates.

Format and semantics are those of ASTRA-sim at 518bd51 (2026-03) and c459ab6 (2025-08): astra-sim/workload/Workload.cc,
astra-sim/system/CommunicatorGroup.cc, astra-sim/system/astraccl/native_collectives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holmes_sim.chakra import network
from holmes_sim.chakra.groups import Groups
from holmes_sim.chakra.nodes import Traces
from holmes_sim.launching import context, unlike_stages
from holmes_sim.launching.folder import File, Launch
from planner.target import Vendors
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "ASTRA-sim (MLCommons Chakra traces)"
READERS = "protobuf; ASTRA-sim c459ab6"
ORDER = 100
KIND = "data"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
NAME = "traces/trace"
ALGORITHMS = {"all-reduce": "ring", "all-gather": "ring", "reduce-scatter": "ring", "all-to-all": "direct"}
"""Algorithms for groups of all ranks. ASTRA-sim always runs groups of some ranks as rings."""
MOST_GROUPS = 2147
"""Maximum number of groups: ASTRA-sim numbers the streams of group n from n x 1,000,000 in an int
(CommunicatorGroup::set_id)."""
SYSTEM = {
    "scheduling-policy": "FIFO",
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1000,
    "boost-mode": 0,
    "roofline-enabled": 0,
}
HOW = """\
From this folder, with ASTRA-sim's analytical backend built (`build/astra_analytical/build.sh`; its congestion-aware version
supports one dimension only):

```
AstraSim_Analytical_Congestion_Unaware --workload-configuration=traces/trace --comm-group-configuration=comm_groups.json \\
  --system-configuration=system.json --remote-memory-configuration=remote_memory.json --network-configuration={network}
```

NPU numbers are ranks. A cycle is a nanosecond; the step is the largest `finished` of all `sys`."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Messages between stages of unlike tensor-parallel degrees, and gathers among experts."""
    yield from unlike_stages.unlike_degrees(
        config, "its messages go to one rank each; the same {name} for each stage (--{name})"
    )
    if config.stage_cp:
        yield f"stage_cp {', '.join(map(str, config.stage_cp))}: its messages go to one rank each; the same cp (--cp)"
    yield from context.ulysses(config, "its traces have a ring of cp ranks only")
    if config.etp is not None or config.dispatcher == "allgather":
        own = f"etp {config.etp}" if config.etp else "dispatcher allgather"
        yield f"{own}: its traces have all_to_alls of experts only; etp as tp, and a dispatcher that is not allgather"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Collectives other than rings, because a trace cannot name the algorithm of a group and ASTRA-sim has one for all; and too
    many groups."""
    for kind in dict.fromkeys(group.kind for group in plan.groups):
        others = {group.collective for group in plan.groups if group.kind == kind} - {"ring", "all_to_all"}
        if others:
            yield (
                f"collective {', '.join(sorted(others))} of {kind} groups: ASTRA-sim runs every group as one ring "
                "(CommunicatorGroup.cc); ring"
            )
    groups = len(Groups(plan).ranks)
    if groups > MOST_GROUPS:
        yield f"groups {groups}: ASTRA-sim's stream numbers overflow; at most {MOST_GROUPS}"


def launch(plan: Plan) -> Launch:
    """A trace for every rank, the groups, and ASTRA-sim's other inputs as far as they can express the plan."""
    traces = Traces(plan)
    files = {
        f"{NAME}.{rank}.et": File(traces.trace(rank), "the execution trace of one rank")
        for rank in range(plan.config.world_size)
    }
    files["comm_groups.json"] = File(
        _groups(traces.groups), "ranks of every group, in ring order, by the numbers that traces use"
    )
    unlike = tuple(network.unsupported(plan))
    dimensions = () if unlike else network.dimensions(plan)
    files["system.json"] = File(_system(max(1, len(dimensions))), "how ASTRA-sim runs collectives, dimension by dimension")
    files["remote_memory.json"] = File('{ "memory-type": "NO_MEMORY_EXPANSION" }\n', "no remote memory")
    if dimensions:
        files["network.yml"] = File(network.text(dimensions), "the network, one bandwidth and latency per dimension")
    return Launch(files, HOW.format(network="YOURS" if unlike else "network.yml"), (*_assumed(plan), *_missing(unlike)))


def _system(dimensions: int) -> str:
    algorithms = {f"{name}-implementation": [algorithm] * dimensions for name, algorithm in ALGORITHMS.items()}
    return json.dumps(SYSTEM | algorithms, indent=2) + "\n"


def _groups(groups: Groups) -> str:
    lines = ",\n".join(f'  "{number}": {json.dumps(list(ranks))}' for number, ranks in groups.ranks.items())
    return f"{{\n{lines}\n}}\n" if lines else "{}\n"


def _assumed(plan: Plan) -> Iterator[str]:
    yield "Compute has undisturbed durations, in whole microseconds: overlapped communication does not slow it."
    yield (
        "Collectives of a stage follow its compute, all layers together, as holmes-sim simulates them; a fractional number is "
        "rounded and the total bytes are kept."
    )
    yield (
        "ASTRA-sim runs one collective or send of an NPU at a time (HardwareResource.cc); holmes-sim lets those of different "
        "groups share the links."
    )
    if plan.config.cp > 1:
        yield "The ring exchange of keys and values among cp ranks is an all_gather: the same messages over the same ring."
    if max((plan.config.ep, *plan.config.stage_ep)) > 1:
        yield "ASTRA-sim forwards an all_to_all of some of the ranks around their ring (Ring.cc), not directly between pairs."
    if plan.fleet.spec(plan.placement[0]).profile is not None:
        yield "Where compute was measured with its collectives, its seconds include them and traces have no nodes for them."


def _missing(unlike: tuple[str, ...]) -> Iterator[str]:
    if unlike:
        yield (
            f"No network.yml is written: {'; '.join(unlike)}; ASTRA-sim's analytical network has one bandwidth per dimension. "
            "Provide one (system.json names an algorithm for each of its dimensions); traces do not name the NIC of a group."
        )
