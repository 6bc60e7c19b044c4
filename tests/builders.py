"""Builders of small fleets and plans for tests; every property that a test does not give is ideal.

An ideal device computes at its peak rate and launches kernels in no time. An ideal wire delivers its whole bandwidth and has no
latency, no overhead and no interference. A test gives only the properties that it examines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from sim import collectives
from sim.errors import NotDefined
from sim.hardware.cluster import Cluster, Device, Fabric, Fleet, Nic, Node, Trunk
from sim.hardware.device_spec import AttentionRates, DeviceSpec, GemmCurve
from sim.hardware.link_spec import OPERATIONS, LinkSpec, Protocol
from sim.hardware.memory_facts import KEPT, MemoryFacts
from sim.hardware.topology import Topology
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import groups_of
from sim.plan.parallel_config import RECOMPUTE, ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.plan.recomputation import kind_and_modules
from sim.plan.stage_options import OFFLOADS, words_of
from sim.workload.model import Model
from sim.workload.workload import Workload

PROTOCOLS = (
    Protocol("quick", 1e-6, 2e-6, 0.1),
    Protocol("wide", 2e-5, 5e-6, 1.0),
    Protocol("switched", 4e-5, 0.0, 0.8, in_switch=True),
)
"""A library's choice: which one is quickest turns between 2e5 and 6e5 bytes on a wire of 1e11 bytes a second."""
OVER_NICS = (
    PROTOCOLS[0],
    Protocol("in trees", 4e-6, 3e-6, 0.4, in_trees=True),
    replace(PROTOCOLS[1], chunk=1e5),
    Protocol("switched", 1e-5, 5e-6, 1.0, chunk=1e5, in_trees=True),
)
"""What NICs offer beside them: protocols of trees, one of them with switches that reduce inside the nodes, and chunks."""

MESSAGES = ("none", "none", "int8", "top-k=10%", "adaptive-top-k=10%")
"""How messages between clusters are written."""

EAGER = MemoryFacts(tuple(KEPT), workspace=1e6, fragmentation=0.25, launches=(30, 40))
"""Software that keeps whatever software is known to keep."""


def device(name: str = "ideal", speed: float = 1e14, memory_bandwidth: float = 1e12, **facts: object) -> DeviceSpec:
    """A device that reaches `speed` FLOP/s in every product and its memory bandwidth in every pass."""
    ideal = {
        "vendor": "acme",
        "compute_units": 1,
        "peak": (("bf16", speed), ("fp16", speed), ("fp32", speed / 4)),
        "memory": 80e9,
        "host_bandwidth": 1e11,
        "gemm": GemmCurve(0.0, 1.0, 1.0),
        "attention": AttentionRates(1.0, 1.0),
        "elementwise_efficiency": 1.0,
    }
    return DeviceSpec(name=name, memory_bandwidth=memory_bandwidth, **(ideal | facts))


def wire(
    name: str = "wire",
    bandwidth: float = 1e11,
    latency: float = 0.0,
    overhead: float = 0.0,
    efficiency: float = 1.0,
    interference: float = 0.0,
    rdma: bool = True,
    pair_bandwidth: float = 0.0,
    **facts: object,
) -> LinkSpec:
    """An interconnect, or a NIC type, that carries every operation alike."""
    shares = tuple((operation, efficiency) for operation in OPERATIONS)
    return LinkSpec(name, latency, overhead, shares, interference, rdma, bandwidth, pair_bandwidth, **facts)


def nic(kind: str = "infiniband", bandwidth: float = 1e10, count: int = 1, **facts: object) -> Nic:
    """NICs of a type; `ethernet` alone is not RDMA."""
    return Nic(wire(kind, bandwidth=0.0, rdma=kind != "ethernet", **facts), bandwidth, count)


def cluster(
    name: str = "c",
    nodes: int = 1,
    devices: int = 1,
    nics: tuple[Nic, ...] | None = None,
    spec: DeviceSpec | None = None,
    intra_node: LinkSpec | None = None,
    fabric: Fabric | None = None,
) -> Cluster:
    """Alike nodes of ideal devices on an ideal interconnect, with one ideal InfiniBand NIC a node unless given otherwise."""
    node = Node(spec or device(), devices, intra_node or wire(), (nic(),) if nics is None else nics)
    return Cluster(name, nodes, node, fabric)


def fleet(*clusters: Cluster, trunks: tuple[Trunk, ...] = (), communicator: str = "vendor") -> Fleet:
    """The machines of a topology."""
    return Fleet("tiny", clusters, trunks, communicator)


def every_device(machines: Fleet) -> tuple[Device, ...]:
    """All devices, cluster by cluster and node by node."""
    return tuple(
        Device(c.name, node, index) for c in machines.clusters for node in range(c.nodes) for index in range(c.node.count)
    )


def model(layers: int = 2, hidden: int = 96, **facts: object) -> Model:
    """A GPT that 1, 2, 3, 4, 6 and 8 tensor-parallel ranks can share."""
    shape = {"heads": 24, "kv_heads": 24, "ffn_hidden": 4 * hidden, "vocab": 768, "tied_embeddings": False}
    return Model("tiny", layers, hidden, **(shape | facts))


def plan(
    machines: Fleet,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    vpp: int = 1,
    microbatches: int | tuple[int, ...] = 1,
    layers: tuple[int, ...] = (),
    placement: tuple[Device, ...] = (),
    collective: dict[str, str] | None = None,
    shape: dict[str, object] | None = None,
    seq_len: int = 64,
    precision: str = "bf16",
    microbatch_size: int = 1,
    head: int = -1,
    **config: object,
) -> Plan:
    """A plan: ranks on the devices in order, two layers a stage and one microbatch a replica, unless given otherwise.

    `head`: index of the stage that says that it has the head (-1: none says so)."""
    numbers = microbatches if isinstance(microbatches, tuple) else (microbatches,) * dp
    layers = layers or (2,) * (pp * vpp)
    degrees = ParallelConfig(
        tp=tp, pp=pp, dp=dp, vpp=vpp, num_microbatches=numbers, microbatch_size=microbatch_size, **config
    )  # fmt: skip
    workload = Workload(model(sum(layers), **(shape or {})), sum(numbers) * microbatch_size, seq_len, precision)
    cuts = [sum(layers[:index]) for index in range(len(layers) + 1)]
    stages = tuple(Stage(*cut, index == head) for index, cut in enumerate(pairwise(cuts)))
    placement = (placement or every_device(machines))[: degrees.world_size]
    groups = groups_of(machines, degrees, placement)
    groups = tuple(replace(group, collective=(collective or {}).get(group.kind, "ring")) for group in groups)
    topology = Topology(machines.name, "", machines, workload, json.dumps({"name": machines.name}))
    return Plan(topology, workload, degrees, stages, placement, groups, MadeBy("by hand", "1"))


def _fits(candidate: Plan) -> bool:
    """Whether the collectives of a plan can run on its hosts."""
    try:
        for group in candidate.groups:
            collectives.rounds(group.collective, "all_gather", candidate.hosts(group.ranks))
        for group in gradient_groups(candidate):
            collectives.rounds(group.collective, "all_gather", candidate.hosts(group.ranks))
    except NotDefined:
        return False
    return True


@st.composite
def expert_degrees(
    draw: st.DrawFn, tp: int, rows: int, cp: int, numbers: tuple[int, ...], sequence_parallel: bool
) -> tuple[int, int]:
    """(ep, etp) of twelve experts on tp x rows ranks; etp is tp where tensor-parallel ranks hold whole sequences."""
    found = [
        (ep, etp)
        for ep in (1, 2, 3, 4, 6, 12)
        for etp in ((1, 2, 3, 4) if sequence_parallel or tp == 1 else (tp,))
        if tp * rows % (ep * etp) == 0
        and max(tp, ep * etp) % min(tp, ep * etp) == 0
        and _alike(numbers, cp, max(1, ep * etp // tp))
    ]
    return draw(st.sampled_from(found))


def _alike(numbers: tuple[int, ...], cp: int, ep: int) -> bool:
    """Whether the ranks of every expert-parallel group would play equally many microbatches."""
    of_rank = [number for number in numbers for _ in range(cp)]
    return all(len(set(of_rank[i : i + ep])) == 1 for i in range(0, len(of_rank), ep))


@st.composite
def any_fleet(draw: st.DrawFn, ranks: int = 64, interference: bool = True) -> Fleet:
    """One to three clusters of different devices, NICs, fabrics and sizes, in a chain joined by Ethernet, some by RDMA too."""
    slow = st.sampled_from([0.0, 0.0, 0.15]) if interference else st.just(0.0)
    found: list[Cluster] = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        rdma = draw(st.sampled_from(["infiniband", "roce"]))
        devices, late = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([0.0, 0.0, 1e-4]))
        left = max(1, ranks - sum(c.devices for c in found)) // devices
        if left == 0:
            break
        delay = {"latency": draw(st.sampled_from([0.0, 5e-6])), "overhead": draw(st.sampled_from([0.0, 1e-5]))}
        offered = draw(
            st.sampled_from(
                [{}, {"protocols": PROTOCOLS[:2]}, {"protocols": OVER_NICS, "gap": 1e-6, "host_limit": 4e9, "delay": 2e-4}]
            )
        )
        inside = draw(st.sampled_from([{}, {"protocols": PROTOCOLS, "own_piece": 0.4}]))
        fast = nic(
            rdma,
            draw(st.sampled_from([2.5e9, 1e10])),
            draw(st.sampled_from([1, 2, 4])),
            interference=draw(slow),
            **delay,
            **offered,
        )
        found.append(
            cluster(
                name,
                nodes=draw(st.integers(1, min(4, left))),
                devices=devices,
                nics=(fast, nic("ethernet", 3e9, draw(st.sampled_from([1, 2])), interference=draw(slow), efficiency=0.8)),
                spec=replace(
                    draw(st.sampled_from([device("chip", 1e13), device(f"chip-{name}", 1.7e13)])), launch_per_rank=late
                ),
                intra_node=wire(
                    interference=draw(slow), pair_bandwidth=draw(st.sampled_from([0.0, 0.0, 2e10])), **delay, **inside
                ),
                fabric=draw(st.sampled_from([None, Fabric(1, 1.0), Fabric(1, 4.0), Fabric(2, 3.0), Fabric(2, 1.0, 0.8)])),
            )
        )
    kinds = draw(st.sampled_from([("ethernet",), ("ethernet", "infiniband")]))
    windows = {0.0: (0.0,), 1e-4: (0.0, 1e5)}  # 1e5 bytes in a round trip of 2e-4 s are 5e8 bytes/s
    trunks = tuple(
        Trunk(
            (a.name, b.name),
            kind,
            draw(st.sampled_from([1e9, 2e10])),
            late := draw(st.sampled_from([0.0, 1e-4])),
            window=draw(st.sampled_from(windows[late])) if kind == "ethernet" else 0.0,
        )
        for a, b in pairwise(found)
        for kind in kinds
        if kind == "ethernet" or (a.node.nic(kind) and b.node.nic(kind))
    )
    return fleet(*found, trunks=trunks)


@st.composite
def unlike_degrees(draw: st.DrawFn, tp: int, pp: int, equal_ends: bool) -> tuple[int, ...]:
    """Tensor-parallel degrees of the pipeline ranks, some of them below tp; empty where there are none."""
    found = [draw(st.sampled_from([degree for degree in (1, 2, 4, 3, 8) if tp % degree == 0])) for _ in range(pp)]
    found[draw(st.integers(0, pp - 1))] = tp
    if equal_ends:
        found[-1] = found[0]
    return tuple(found) if max(found) == tp > min(found) else ()


@st.composite
def unlike_splits(draw: st.DrawFn, pp: int, room: int, equal_ends: bool) -> tuple[int, ...]:
    """Numbers of ranks, at most `room`, among which pipeline ranks divide the samples of a microbatch; one of them is 1, or all
    where the ends have to be equal."""
    found = [draw(st.sampled_from([split for split in (1, 2, 4) if split <= room])) for _ in range(pp)]
    found[draw(st.integers(0, pp - 1))] = 1
    if equal_ends:
        found[-1] = found[0]
    return tuple(found) if min(found) == 1 else (1,) * pp


@st.composite
def unlike_cp(draw: st.DrawFn, cp: int, pp: int, room: int, equal_ends: bool) -> tuple[int, ...]:
    """Context-parallel degrees of the pipeline ranks, some of them up to `room` times cp; empty where there are none."""
    found = tuple(cp * split for split in draw(unlike_splits(pp, room, equal_ends)))
    return found if max(found) > cp else ()


@st.composite
def unlike_stages(
    draw: st.DrawFn, degrees: tuple[int, int, int], pp: int, room: int, tied: bool, sharded: bool
) -> dict[str, tuple[int, ...]]:
    """`stage_tp`, `stage_cp` and `stage_dp` beside these tp, dp and cp; `room`: most ranks in place of one of a stage.
    Stages that share a `tied` weight have equal ones, but for tp where its gradient is not `sharded`."""
    tp, dp, cp = degrees
    stage_cp = draw(unlike_cp(cp, pp, room, tied)) if tp in (1, 2, 4, 8) and draw(st.booleans()) else ()
    splits = draw(unlike_splits(pp, room * cp // max(stage_cp, default=cp), tied))
    equal_ends = tied and sharded and dp * cp * splits[0] > 1
    return {
        "stage_cp": stage_cp,
        "stage_tp": draw(unlike_degrees(tp, pp, equal_ends)),
        "stage_dp": tuple(dp * split for split in splits) if max(splits) > 1 else (),
    }


def _degrees_of_stages(
    degrees: tuple[int, int, int], pp: int, numbers: tuple[int, ...], switches: dict[str, object]
) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
    """(tp, dp x cp, cp, microbatches of each replica or part of one) of each stage."""
    named = zip(("stage_tp", "stage_dp", "stage_cp"), degrees, strict=True)
    every = [switches.get(key) or (degree,) * pp for key, degree in named]
    for tp, dp, cp in zip(*every, strict=True):
        yield tp, dp * cp, cp, tuple(number for number in numbers for _ in range(dp // degrees[1]))


@st.composite
def unlike_options(draw: st.DrawFn, pp: int, most: int, head: int | None) -> dict[str, object]:
    """ZeRO stages, up to `most`, and offload of the pipeline ranks, with what the plan has of both; of those that are equal
    nothing. The first rank and the one with the `head` of tied weights both shard their gradients, or none."""
    zero = [draw(st.integers(0, most)) for _ in range(pp)]
    if head is not None and (zero[0] > 0) != (zero[head] > 0):
        zero[head] = zero[0]
    found: dict[str, object] = {}
    if len(set(zero)) > 1:
        found |= {"stage_zero": tuple(zero), "zero_stage": max(zero), "zero_shard_size": None}
        found |= {"tied_shards": False} if 0 in zero else {}
    away = tuple(draw(st.sampled_from(OFFLOADS)) for _ in range(pp))
    return found | ({"stage_offload": away, "offload": words_of(away)} if len(set(away)) > 1 else {})


@st.composite
def unlike_recomputation(draw: st.DrawFn, pp: int) -> dict[str, object]:
    """Kinds of recomputation of the pipeline ranks, with what the plan has of them; nothing where they are equal."""
    kinds = tuple(draw(st.sampled_from(["none", "selective", "layernorm+mlp", "full"])) for _ in range(pp))
    most = max((kind_and_modules(kind)[0] for kind in kinds), key=RECOMPUTE.index)
    whole = {"recompute": most, "recompute_layers": (), "recompute_modules": ()}
    return {"stage_recompute": kinds} | whole if len(set(kinds)) > 1 else {}


@st.composite
def any_plan(
    draw: st.DrawFn, ranks: int = 64, machines: Fleet | None = None, interference: bool = True, unlike: bool = True
) -> Plan:
    """A plan on any fleet: even or uneven, in order or shuffled, with every switch on or off. `unlike`: stages may have unlike
    tp, dp, cp, ep, etp, ZeRO stages, offload and recomputation."""
    machines = machines or draw(any_fleet(ranks, interference))
    room = min(ranks, machines.devices)
    even_room = (
        max(room // draw(st.sampled_from([1, 2, 4])), 1) if unlike else room
    )  # what is left is for larger dp and cp of stages
    tp = draw(st.sampled_from([t for t in (1, 2, 4, 3, 8) if t <= even_room]))
    pp = draw(st.sampled_from([p for p in (2, 1, 4, 3) if p <= even_room // tp]))
    dp = draw(st.sampled_from([d for d in (2, 1, 4, 8, 3, 5) if d <= even_room // (tp * pp)]))
    schedule = draw(st.sampled_from(["1f1b", "1f1b-deepspeed", "gpipe", "interleaved", "zb-h1", "zb-h2"]))
    vpp = draw(st.integers(1, 2)) if schedule == "interleaved" else 1
    unit = pp if schedule == "interleaved" else 1
    even = draw(st.booleans())
    numbers = (
        (unit * draw(st.integers(1, 6 // unit + 1)),) * dp
        if even
        else tuple(unit * n for n in draw(st.lists(st.integers(1, 3), min_size=dp, max_size=dp)))
    )
    layers = tuple(draw(st.lists(st.integers(1, 3), min_size=pp * vpp, max_size=pp * vpp)))
    if len(layers) > 1 and draw(st.booleans()):  # a stage with the embedding or the head alone
        layers = draw(st.sampled_from([(0, *layers[1:]), (*layers[:-1], 0)]))
    shuffled = draw(st.booleans())
    devices = every_device(machines)
    devices = tuple(draw(st.permutations(devices))) if shuffled else devices
    chosen = {kind: draw(st.sampled_from(["ring", "ring", "tree", "hierarchical"])) for kind in ("tp", "dp")}
    cp = draw(st.sampled_from([c for c in (1, 2, 4) if tp * pp * dp * c <= even_room]))
    ep = draw(st.sampled_from([e for e in (1, 2, 3, 4, 6, 12) if dp * cp % e == 0 and _alike(numbers, cp, e)]))
    experts = {"experts": 12, "experts_per_token": 2, "shared_ffn_hidden": 96} if ep > 1 or draw(st.booleans()) else {}

    def made(collective: dict[str, str]) -> Plan:
        return plan(
            machines, tp, pp, dp, vpp, numbers, layers, devices, collective,
            shape={"hidden": hidden, "tied_embeddings": tied} | experts, schedule=schedule,
            microbatch_size=microbatch_size, cp=cp, ep=ep, **switches,
        )  # fmt: skip

    hidden, tied, microbatch_size = draw(st.sampled_from([96, 3072])), draw(st.booleans()), draw(st.integers(1, 2))
    switches = {
        "zero_stage": draw(st.integers(0, 3 if len(set(numbers)) == 1 else 1)),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "sequence_parallel": tp > 1 and draw(st.booleans()),
        "overlap_grad_reduce": draw(st.booleans()),
        "overlap_param_gather": draw(st.booleans()),
        "all_reduces": draw(st.booleans()),
        "overlap_shared_experts": bool(experts) and draw(st.booleans()),
    }
    switches["zero_shard_size"] = None
    switches["tied_shards"] = switches["zero_stage"] > 0 and draw(st.booleans())
    if ep == 1 and switches["zero_stage"]:
        sizes = [size for size in range(2, dp * cp) if dp * cp % size == 0]
        switches["zero_shard_size"] = draw(st.sampled_from([None, *sizes]))
    if unlike and switches["zero_shard_size"] is None and draw(st.booleans()):
        switches |= draw(unlike_options(pp, 3 if even else 1, pp - 1 if tied else None))
        switches |= draw(unlike_stages((tp, dp, cp), pp, room // (tp * pp * dp * cp), tied, switches["zero_stage"] > 0))
        microbatch_size *= max(switches["stage_dp"], default=dp) // dp
    if experts and switches["zero_shard_size"] is None and draw(st.booleans()):
        degrees = [
            draw(expert_degrees(*own, switches["sequence_parallel"] and own[0] > 1))
            for own in _degrees_of_stages((tp, dp, cp), pp, numbers, switches)
        ]
        every = zip(("stage_ep", "stage_etp"), zip(*degrees, strict=True), strict=True)
        unlike_experts = unlike and draw(st.booleans())
        switches |= {key: of for key, of in every if len(set(of)) > 1} if unlike_experts else {}
        if unlike_experts or len(set(degrees)) == 1:
            ep, switches["etp"] = degrees[0]
    if unlike and not experts and draw(st.booleans()):
        switches |= draw(unlike_recomputation(pp))
    if pp > 1 and len(machines.clusters) > 1:
        switches["message_compression"] = draw(st.sampled_from(MESSAGES))
    wanted = made(chosen)
    return wanted if _fits(wanted) else made({})
