"""Random plans of all kinds, for `benchmarks.parsers`: degrees, schedules, models, precisions and options.

Every plan stands on all devices of alike nodes under one InfiniBand fabric. Most properties of a plan have the
target's usual values and a few have drawn ones, so that a refused plan is mostly refused for one reason.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from sim import __version__
from sim.errors import HolmesError
from sim.formats import documents, topology
from sim.hardware.cluster import Device
from sim.plan.context_parallelism import CP_ALGORITHMS
from sim.plan.groups import groups_of
from sim.plan.parallel_config import USUAL_GRADIENTS, ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage

Facts = dict[str, Any]

PER_NODE = 8
"""Most devices of a node; nodes are whole ones."""
MOST_RANKS = 32
LAYERS = 12
TOPOLOGY = """\
format: holmes-sim/topology/1
name: drawn
source: drawn at random
clusters:
  a:
    nodes: {nodes}
    node:
      devices: {{type: {device}, count: {per_node}}}
      intra_node: {link}
      nics: [{{type: infiniband, bandwidth: 400 Gbit/s, count: 8}}, {{type: ethernet, bandwidth: 25 Gbit/s}}]
workload:
  model: {model}
  global_batch_size: {batch}
  seq_len: {seq_len}
  precision: {precision}
  optimizer: {optimizer}
"""
PLAIN: Facts = {
    "name": "drawn", "layers": LAYERS, "hidden": 2048, "heads": 16, "ffn_hidden": 4096, "vocab": 51200, "mlp": "swiglu",
    "tied_embeddings": False,
}  # fmt: skip
EXPERTS: Facts = {"experts": 8, "experts_per_token": 2}
MLA: Facts = {
    "attention": "mla", "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
    "v_head_dim": 64,
}  # fmt: skip
MODELS: tuple[Facts, ...] = (
    {},
    {"kv_heads": 2},
    {"mlp": "gelu", "ffn_hidden": 8192, "learned_positions": 4096, "tied_embeddings": True},
    {"mlp": "relu2", "ffn_hidden": 8192},
    {"tied_embeddings": True, "qk_norm": True, "head_dim": 64},
    {"mtp_layers": 1},
    {"sliding_window": 128, "sliding_window_every": 2, "attention_sinks": True},
    EXPERTS,
    EXPERTS | {"shared_ffn_hidden": 2048, "n_group": 4, "topk_group": 2},
    EXPERTS | {"experts_per_token": 1, "shared_ffn_hidden": 4096},
    EXPERTS | {"mlp": "gelu"},
    EXPERTS | {"mlp": "relu2", "kv_heads": 4},
    EXPERTS | MLA | {"dense_layers": 1, "dense_ffn_hidden": 8192, "shared_ffn_hidden": 2048, "mtp_layers": 1},
    MLA,
)
"""What models have beyond `PLAIN`."""
DEVICES = {"h100-sxm5-80gb": "nvlink4", "b200-sxm-180gb": "nvlink5"}
MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj")
BLACKWELL = ("mxfp8", "nvfp4")
"""Precisions of the second device alone."""


def plans(seed: int, schedule: str = "1f1b", count: int | None = None) -> Iterator[Plan]:
    """Plans of a seed without end, or so many; `schedule` is the usual one of the target."""
    dice = random.Random(seed)
    made = 0
    while count is None or made < count:
        try:
            yield _plan(dice, schedule)
        except HolmesError:
            continue
        made += 1


def _plan(dice: random.Random, schedule: str) -> Plan:
    """A drawn plan. Raises HolmesError where the drawn properties are no plan."""
    given = PLAIN | dice.choice(MODELS)
    config = _degrees(dice) | {"schedule": schedule}
    workload: Facts = {"precision": "bf16", "optimizer": "adam", "seq_len": 4096}
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3))):
        for kind in dice.choices((config, workload), (5, 1)):
            kind |= dice.choice(_properties(dice, given, config) if kind is config else _workloads(dice))
    if workload["precision"] in USUAL_GRADIENTS:
        config.setdefault("gradient_precision", dice.choice(("fp16", "fp32")))
    return _built(given, config, workload, _layers(dice, config["pp"] * config.get("vpp", 1)))


def _degrees(dice: random.Random) -> Facts:
    """Parallel degrees and microbatches."""
    while True:
        tp, pp, cp = dice.choice((1, 1, 2, 4)), dice.choice((1, 2, 2, 3, 4)), dice.choice((1, 1, 1, 2, 4))
        dp = dice.choice((1, 2, 2, 4, 8))
        if tp * pp * cp * dp <= MOST_RANKS:
            break
    many = dice.choice((1, 2, pp, 2 * pp, 2 * pp + 1))
    found: Facts = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "num_microbatches": (many,) * dp, "sequence_parallel": tp > 1}
    if pp > 1 and dice.random() < 0.3:
        found |= {"schedule": "interleaved", "vpp": dice.choice((2, 3)), "num_microbatches": (pp * dice.choice((1, 2)),) * dp}
    return found


def _properties(dice: random.Random, model: Facts, config: Facts) -> tuple[Facts, ...]:
    """Fields of a configuration, of which one is drawn."""
    pp, dp = config["pp"], config["dp"]
    modules = tuple(dice.sample(MODULES, dice.choice((1, 1, 2))))
    counts = tuple(dice.randrange(3) for _ in range(pp * config.get("vpp", 1)))
    usual: tuple[Facts, ...] = (
        {"zero_stage": 0}, {"zero_stage": 2}, {"zero_stage": 3}, {"zero_stage": 3, "overlap_grad_reduce": False},
        {"zero_shard_size": 2}, {"microbatch_size": 2}, {"recompute": "full"}, {"recompute": "selective"},
        {"recompute": "selective", "recompute_modules": modules}, {"recompute": "selective", "attention": "unfused"},
        {"recompute": "full", "recompute_layers": (dice.choice((1, 2, 12)),)}, {"attention": "unfused"},
        {"recompute": "full", "recompute_layers": counts}, {"sequence_parallel": False}, {"overlap_grad_reduce": False},
        {"overlap_param_gather": False}, {"overlap_grad_reduce": False, "overlap_param_gather": False},
        {"gradient_precision": "bf16"}, {"tied_shards": True}, {"cuda_graphs": ("full_iteration",)}, {"schedule": "gpipe"},
        {"schedule": "1f1b"}, {"schedule": "zb-h1"}, {"schedule": "1f1b-deepspeed"}, {"schedule": "dualpipev", "vpp": 2},
        {"cp_algo": dice.choice(CP_ALGORITHMS)}, {"offload": ("optimizer",)}, {"offload": ("activations",)},
        {"tp_overlap": True}, {"num_microbatches": tuple(dice.choice((2, 3)) for _ in range(dp))},
        {"stage_tp": tuple(dice.choice((1, 2)) for _ in range(pp))}, {"fp8_param_gather": True}, {"current_scaling": True},
    )  # fmt: skip
    experts: tuple[Facts, ...] = (
        {"ep": 2}, {"ep": 4}, {"ep": 2, "etp": 1}, {"ep": 4, "etp": 1}, {"ep": 8, "etp": 1}, {"etp": 1},
        {"ep": 2, "dispatcher": "allgather"}, {"ep": 2, "etp": 1, "dispatcher": "deepep"}, {"dispatcher": "deepep"},
        {"ep": 2, "etp": 1, "dispatcher": "hybridep"}, {"capacity_factor": 1.5},
        {"capacity_factor": 1.5, "pad_to_capacity": True}, {"ep": 2, "overlap_expert_communication": True},
        {"overlap_expert_communication": True}, {"ep": 2, "overlap_shared_experts": True},
        {"ep": 2, "etp": 1, "dispatcher": "deepep", "capacity_factor": 1.5, "pad_to_capacity": True},
    )  # fmt: skip
    return usual if "experts" not in model or dice.random() < 0.5 else experts


def _workloads(dice: random.Random) -> tuple[Facts, ...]:
    """Keys of a workload, of which one is drawn."""
    return (
        *({"precision": name} for name in ("fp8", "mxfp8", "nvfp4", "fp16", "fp32", "tf32")),
        {"optimizer": "adam-bf16-moments"}, {"seq_len": dice.choice((2048, 8192, 4100, 1026))},
    )  # fmt: skip


def _layers(dice: random.Random, stages: int) -> tuple[int, ...]:
    """Layers of each stage: as equal as can be, or, in a quarter of the plans, drawn; some may be 0."""
    if dice.random() < 0.75:
        return tuple(LAYERS * (index + 1) // stages - LAYERS * index // stages for index in range(stages))
    cuts = sorted(dice.randrange(LAYERS + 1) for _ in range(stages - 1))
    return tuple(end - begin for begin, end in zip((0, *cuts), (*cuts, LAYERS), strict=True))


def _built(model: Facts, given: Facts, workload: Facts, layers: tuple[int, ...]) -> Plan:
    """The plan of drawn properties. Raises HolmesError where there is none."""
    config = ParallelConfig(**given)
    batch = sum(config.num_microbatches) * config.microbatch_size
    device = list(DEVICES)[workload["precision"] in BLACKWELL]
    words = "{" + ", ".join(f"{key}: {_word(value)}" for key, value in model.items()) + "}"
    each = math.gcd(config.world_size, PER_NODE)
    facts = workload | {"nodes": config.world_size // each, "per_node": each, "batch": batch}
    text = TOPOLOGY.format(device=device, link=DEVICES[device], model=words, **facts)
    where = topology.from_document(documents.parse("drawn.yaml", text))
    assert where.workload is not None
    placement = tuple(Device("a", rank // each, rank % each) for rank in range(config.world_size))
    stages = tuple(Stage(sum(layers[:index]), sum(layers[: index + 1])) for index in range(len(layers)))
    groups = groups_of(where.fleet, config, placement)
    return Plan(where, where.workload, config, stages, placement, groups, MadeBy("drawn", __version__))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
