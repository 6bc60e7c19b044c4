"""Plans that differ from a plain one in one property each: what a launch target can express, property by property.

The plain plan: a gated transformer of 24 layers and 1.8 B parameters without learned positions, tp 2, pp 2, dp 2 on two hosts
of four A100 under one InfiniBand fabric, 1F1B with eight microbatches of one sequence for each replica, ZeRO 1, bf16. For
DeepSpeed, which plays a 1F1B of its own, it has that one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from holmes_sim import exporters
from planner.pipelines.columns import of_samples
from sim import __version__
from sim.formats import documents, topology
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage

PLAIN = """\
format: holmes-sim/topology/1
name: {name}
source: written for the table of targets and properties
clusters:
  a:
    nodes: 3
    node:
      devices: {{type: {first}, count: 4}}
      intra_node: {first_link}
      nics: [{{type: infiniband, bandwidth: 200 Gbit/s, count: 2}}, {{type: ethernet, bandwidth: 25 Gbit/s}}]
  b:
    nodes: 3
    node:
      devices: {{type: {second}, count: 4}}
      intra_node: {second_link}
      nics: [{{type: roce, bandwidth: 200 Gbit/s, count: 2}}, {{type: ethernet, bandwidth: 25 Gbit/s}}]
links: [{{between: [a, b], type: ethernet, bandwidth: 100 Gbit/s, latency: 50 us}}]
workload:
  model: {model}
  global_batch_size: 16
  seq_len: 2048
  precision: {precision}
"""
SHAPE = {
    "name": "lean-1.8b", "layers": 24, "hidden": 2304, "heads": 24, "ffn_hidden": 6144, "vocab": 51200,
    "mlp": "swiglu", "tied_embeddings": False,
}  # fmt: skip
WHOLE = ("a/node0", "a/node1")
ACROSS = ("a/node0", "b/node0")


@dataclass(frozen=True, slots=True)
class Feature:
    """What of a plan is not plain: fields of its config, layers of its stages, nodes it stands on, what it trains."""

    name: str
    config: dict[str, Any]
    layers: tuple[int, ...] = ()
    nodes: tuple[str, ...] = WHOLE
    order: tuple[int, ...] = ()
    precision: str = "bf16"
    model: dict[str, Any] | None = None
    second: tuple[str, str] = ("a100-sxm4-80gb", "nvlink3")

    def __hash__(self) -> int:
        return hash(repr(self))


def _feature(name: str, **facts: Any) -> Feature:
    own = {key: facts.pop(key) for key in ("layers", "nodes", "order", "precision", "model", "second") if key in facts}
    return Feature(name, facts, **own)


EXPERTS = {"experts": 8, "experts_per_token": 2}
FEATURES = (
    _feature("plain"),
    _feature("stages of unlike layers", layers=(13, 11)),
    _feature("virtual stages", vpp=2, schedule="interleaved"),
    _feature("virtual stages of unlike layers", vpp=2, schedule="interleaved", layers=(6, 7, 6, 5)),
    _feature("schedule gpipe", schedule="gpipe"),
    _feature("schedule 1f1b-deepspeed", schedule="1f1b-deepspeed"),
    _feature("schedule zb-h1", schedule="zb-h1"),
    _feature("schedule zb-h2", schedule="zb-h2"),
    _feature("replicas of unlike microbatches", num_microbatches=(9, 7)),
    _feature("pipeline across fabrics (TCP)", nodes=ACROSS),
    _feature("data parallel across fabrics (TCP)", nodes=ACROSS, order=(0, 1, 4, 5, 2, 3, 6, 7)),
    _feature("ranks of a host not consecutive", order=(0, 1, 4, 5, 2, 3, 6, 7)),
    _feature("hosts of unlike numbers of ranks", nodes=(*WHOLE, "a/node2"), order=(0, 1, 2, 4, 5, 6, 7, 8),
             tp=1, dp=4, num_microbatches=(4, 4, 4, 4)),
    _feature("devices of two vendors", nodes=ACROSS, second=("mi250x", "infinity-fabric-3")),
    _feature("devices of AMD alone", nodes=("b/node0", "b/node1"), second=("mi250x", "infinity-fabric-3")),
    _feature("devices of Huawei alone", nodes=("b/node0", "b/node1"), second=("ascend-910b", "hccs")),
    _feature("context parallel", cp=2, dp=1, num_microbatches=(16,)),
    _feature("experts, ep 1", model=EXPERTS),
    _feature("experts, ep 2", model=EXPERTS, ep=2),
    _feature("ZeRO 0", zero_stage=0),
    _feature("ZeRO 2", zero_stage=2),
    _feature("ZeRO 3", zero_stage=3),
    _feature("ZeRO 1 shared by half of dp", tp=1, dp=4, num_microbatches=(4, 4, 4, 4), zero_shard_size=2),
    _feature("microbatches of 2", microbatch_size=2, num_microbatches=(4, 4)),
    _feature("recompute selective", recompute="selective", attention="unfused"),
    _feature("recompute full", recompute="full"),
    _feature("gradients not overlapped", overlap_grad_reduce=False, overlap_param_gather=False),
    _feature("no sequence parallelism", sequence_parallel=False),
    _feature("fp16", precision="fp16", gradient_precision="fp16"),
    _feature("fp32", precision="fp32"),
    _feature("gelu, not gated", model={"mlp": "gelu", "ffn_hidden": 9216}),
    _feature("learned positions", model={"learned_positions": 2048}),
    _feature("tied embeddings", model={"tied_embeddings": True}),
    _feature("grouped queries", model={"kv_heads": 8}),
)  # fmt: skip


DEEPSEEK = EXPERTS | {
    "attention": "mla", "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
    "v_head_dim": 64, "dense_layers": 3, "dense_ffn_hidden": 9216, "mtp_layers": 1, "shared_ffn_hidden": 6144,
    "n_group": 4, "topk_group": 2,
}  # fmt: skip
WINDOWS = {"sliding_window": 128, "sliding_window_every": 2, "attention_sinks": True}
LITE = {key: value for key, value in DEEPSEEK.items() if key not in ("q_lora_rank", "mtp_layers", "n_group", "topk_group")}
NO_EXPERTS = {"experts": 0, "experts_per_token": 0, "shared_ffn_hidden": 0, "dense_layers": 0, "dense_ffn_hidden": 0}
MIXED = EXPERTS | {"shared_ffn_hidden": 3072, "moe_layer_step": 2, "dense_ffn_hidden": 9216, "n_group": 4, "topk_group": 2}
OSS = EXPERTS | WINDOWS | {"kv_heads": 8, "head_dim": 64}
UNLIKE = {"nodes": ACROSS, "model": EXPERTS | {"tied_embeddings": False}, "tp": 2}
SHARDED = {"pp": 1, "tp": 1, "dp": 8, "num_microbatches": (2,) * 8, "zero_stage": 3, "ep": 8}
ALONE = {"pp": 1, "dp": 4, "num_microbatches": (4, 4, 4, 4)}
HOPPER, BLACKWELL = (
    {"nodes": ("b/node0", "b/node1"), "second": on} for on in (("h100-sxm5-80gb", "nvlink4"), ("b200-sxm-180gb", "nvlink5"))
)
EQUAL = {key: value for key, value in LITE.items() if not key.startswith("dense")}
TWO_STAGES = {"nodes": ACROSS, "tp": 4, "pp": 3, "dp": 1, "num_microbatches": (16,), "stage_tp": (4, 2, 2)}
MESHES = {"nodes": ACROSS, "tp": 2, "ep": 2, "stage_tp": (2, 1), "order": (0, 1, 2, 3, 4, 5)}
PAIRED = {
    "schedule": "dualpipev", "vpp": 2, "overlap_grad_reduce": False, "overlap_param_gather": False, "ep": 4, "etp": 1,
}  # fmt: skip
OVER_FOUR = PAIRED | {"pp": 4, "dp": 1, "num_microbatches": (16,), "ep": 2}
OWN = {
    "megatron": (
        _feature("ZeRO 2, pp 1", **ALONE, zero_stage=2),
        _feature("ZeRO 3, pp 1", **ALONE, zero_stage=3),
        _feature("ZeRO 3, pp 1, gradients in bf16", **ALONE, zero_stage=3, gradient_precision="bf16"),
        _feature("ZeRO 3 shared by half of dp, pp 1", **ALONE, zero_stage=3, zero_shard_size=2),
        _feature("ZeRO 3, pp 1, context parallel", pp=1, cp=2, num_microbatches=(8, 8), zero_stage=3),
        _feature("ZeRO 3, pp 1, experts, ep 2", **ALONE, model=EXPERTS, ep=2, zero_stage=3),
        _feature("ZeRO 3, pp 1, experts, etp 1", **ALONE, model=EXPERTS, ep=4, etp=1, zero_stage=3),
        _feature("mxfp8", precision="mxfp8", **BLACKWELL),
        _feature("nvfp4", precision="nvfp4", **BLACKWELL),
        _feature("a model like DeepSeek-V3", model=DEEPSEEK, ep=2),
        _feature("windows of some layers, and sinks", model=WINDOWS),
        _feature("experts, HybridEP", model=EXPERTS, ep=4, etp=1, dispatcher="hybridep"),
        _feature("nvfp4, experts, ep 2", model=EXPERTS, ep=2, precision="nvfp4", **BLACKWELL),
    ),
    "torchtitan": (
        _feature("fp8", precision="fp8", **HOPPER),
        _feature("fp8, ZeRO 3, pp 1", **ALONE, precision="fp8", zero_stage=3, **HOPPER),
        _feature("mxfp8", precision="mxfp8", **BLACKWELL),
        _feature("nvfp4", precision="nvfp4", model={"kv_heads": 8, "head_dim": 128}, **BLACKWELL),
        _feature(
            "nvfp4, ZeRO 3 shared by half of dp, cp 2",
            pp=1,
            cp=2,
            num_microbatches=(8, 8),
            zero_stage=3,
            zero_shard_size=2,
            precision="nvfp4",
            **BLACKWELL,
        ),
        _feature("asynchronous tp", tp_overlap=True),
        _feature("queries and keys with norms", model={"qk_norm": True, "head_dim": 128, "kv_heads": 8}),
        _feature("experts without norms of queries and keys", model=EXPERTS | {"qk_norm": False}),
        _feature("experts, ep 2, tp 1", model=EXPERTS, ep=2, tp=1, dp=4, num_microbatches=(4, 4, 4, 4)),
        _feature("experts, ep 4, etp 1", model=EXPERTS, ep=4, etp=1),
        _feature("experts, ep 8, etp 1, ZeRO 3, pp 1", **ALONE, model=EXPERTS, ep=8, etp=1, zero_stage=3),
        _feature("shared experts, groups of experts, dense layers", model=MIXED, ep=4, etp=1),
        _feature("a model like DeepSeek-V3", **SHARDED, model=DEEPSEEK),
        _feature("a model like DeepSeek-V3, tp 2, ep 8", **ALONE, model=DEEPSEEK, ep=8, etp=1, zero_stage=3),
        _feature("a model like DeepSeek-V3 in a pipeline", model=DEEPSEEK | {"mtp_layers": 0}, ep=4, etp=1),
        _feature("latent attention, queries from one product", model=LITE, tp=1, dp=4, num_microbatches=(4, 4, 4, 4), ep=2),
        _feature("latent attention, cp 2", model=LITE, cp=2, dp=1, num_microbatches=(16,), ep=2, etp=1),
        _feature("latent attention, dense", model=LITE | NO_EXPERTS),
        _feature("windows of some layers, and sinks", model=OSS, ep=4, etp=1),
        _feature("windows of some layers, and sinks, cp 2", model=OSS, cp=2, dp=1, num_microbatches=(16,)),
        _feature("windows of most layers", model={"sliding_window": 128, "full_attention_every": 6}),
        _feature("windows, experts", model=EXPERTS | {"sliding_window": 128}, tp=1, dp=4, num_microbatches=(4,) * 4, ep=4),
        _feature("a model like DeepSeek-V3, fp8", **SHARDED, model=DEEPSEEK, precision="fp8", **HOPPER),
        _feature("experts, fp8", model=EXPERTS, ep=4, etp=1, precision="fp8", **HOPPER),
        _feature("shared experts, dense layers, mxfp8", model=MIXED, ep=4, etp=1, precision="mxfp8", **BLACKWELL),
        _feature("experts, DeepEP", **ALONE, model=EXPERTS, ep=8, etp=1, zero_stage=3, dispatcher="deepep"),
        _feature("experts, HybridEP", **ALONE, model=EXPERTS, ep=8, etp=1, zero_stage=3, dispatcher="hybridep"),
        _feature("schedule dualpipev", schedule="dualpipev", vpp=2),
        _feature("schedule dualpipev, experts, unlike layers", **PAIRED, model=EXPERTS, layers=(5, 7, 8, 4)),
        _feature(
            "schedule dualpipev, recompute full, pp 4",
            schedule="dualpipev",
            vpp=2,
            pp=4,
            dp=1,
            num_microbatches=(16,),
            recompute="full",
        ),
    ),
    "flagscale": (
        _feature("a model like DeepSeek-V3", model=DEEPSEEK, ep=2),
        _feature("windows of some layers, and sinks", model=WINDOWS),
        _feature("optimizer on the hosts", offload=("optimizer",)),
        _feature("experts, DeepEP", model=EXPERTS, ep=4, etp=1, dispatcher="deepep"),
        _feature("mxfp8", precision="mxfp8", **BLACKWELL),
        _feature("nvfp4", precision="nvfp4", **BLACKWELL),
        _feature("ZeRO 2, pp 1", **ALONE, zero_stage=2),
        _feature("ZeRO 3, pp 1", **ALONE, zero_stage=3),
        _feature("ZeRO 3, pp 1, gradients in bf16", **ALONE, zero_stage=3, gradient_precision="bf16"),
        _feature("ZeRO 3 shared by half of dp, pp 1", **ALONE, zero_stage=3, zero_shard_size=2),
        _feature("ZeRO 3, pp 1, context parallel", pp=1, cp=2, num_microbatches=(8, 8), zero_stage=3),
        _feature("recompute layernorm and mlp", recompute="selective", recompute_modules=("layernorm", "mlp")),
        _feature("experts, etp 1", model=EXPERTS, ep=4, etp=1),
        _feature("experts, ep by stage", **UNLIKE, ep=4, stage_ep=(4, 2), etp=1),
        _feature("experts, etp by stage", **UNLIKE, ep=2, etp=2, stage_ep=(2, 4), stage_etp=(2, 1)),
        _feature("experts, unlike tp", **UNLIKE, ep=2, stage_tp=(2, 1), order=(0, 1, 2, 3, 4, 5)),
        _feature("latent attention, groups of experts, unlike tp", **MESHES, model=EQUAL | {"n_group": 4, "topk_group": 2}),
        _feature(
            "windows of all layers, and sinks, unlike tp",
            **MESHES,
            model=EXPERTS | {"sliding_window": 128, "attention_sinks": True},
        ),
        _feature("dense first layers, unlike tp, a last mesh of two stages", **TWO_STAGES, model=LITE),
        _feature("schedule dualpipev", **PAIRED, model=EXPERTS),
        _feature("schedule dualpipev, unlike layers", **PAIRED, model=EXPERTS, layers=(7, 5, 5, 7)),
        _feature("schedule dualpipev, unlike layers, pp 4", **OVER_FOUR, model=EXPERTS, layers=(2, 3, 3, 4, 4, 3, 3, 2)),
        _feature("schedule dualpipev, latent attention", **OVER_FOUR, model=LITE, layers=(3, 3, 3, 3, 3, 3, 3, 3)),
        _feature("schedule dualpipev, more layers at first, pp 4", **OVER_FOUR, model=EXPERTS, layers=(6, 2, 2, 2, 2, 2, 2, 6)),
    ),
}
"""Features that one framework expresses; launchers of any program start them as they start others."""


@functools.cache
def schedule(target: str) -> str:
    """The schedule of the plain plan of a target: 1F1B as DeepSpeed plays it where the target plays no other."""
    return "1f1b-deepspeed" if any(exporters.unsupported(target, plan_of(FEATURES[0]))) else "1f1b"


@functools.cache
def plan_of(feature: Feature, schedule: str = "1f1b") -> Plan:
    """The plan of a feature, which differs from a plain one of that schedule in nothing else."""
    model = SHAPE | (feature.model or {})
    text = PLAIN.format(
        name="two-fabrics", first="a100-sxm4-80gb", first_link="nvlink3", second=feature.second[0],
        second_link=feature.second[1], model=model, precision=feature.precision,
    )  # fmt: skip
    where = topology.from_document(documents.parse("features.yaml", text.replace("True", "true").replace("False", "false")))
    usual = {"tp": 2, "pp": 2, "dp": 2, "num_microbatches": (8, 8), "sequence_parallel": True, "schedule": schedule}
    config = ParallelConfig(**usual | feature.config)
    if config.tp == 1:
        config = replace(config, sequence_parallel=False)
    devices = [Device(node.split("/")[0], int(node[-1]), index) for node in feature.nodes for index in range(4)]
    placement = tuple(devices[index] for index in feature.order or range(config.world_size))
    layers = feature.layers or (24 // config.num_stages,) * config.num_stages
    stages = tuple(Stage(sum(layers[:index]), sum(layers[: index + 1])) for index in range(len(layers)))
    assert where.workload is not None
    groups = groups_of(where.fleet, config, placement)
    return Plan(where, where.workload, config, stages, placement, groups, MadeBy("by hand", __version__))


UNLIKE = "unlike pipelines"
"""The row of a plan that is none of alike replicas."""


@functools.cache
def unlike_pipelines(schedule: str = "1f1b") -> PipelinesPlan:
    """The plain plan with replicas that differ: each has a host of its own, and the second one other layers in its stages."""
    alone = {"dp": 1, "num_microbatches": (16,)}
    first = plan_of(Feature("first", alone, nodes=WHOLE[:1]), schedule)
    second = plan_of(Feature("second", alone, nodes=WHOLE[1:], layers=(13, 11)), schedule)
    return of_plans([of_samples(plan, (8,), 1) for plan in (first, second)], MadeBy("by hand", __version__))
