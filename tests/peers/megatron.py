"""Megatron-LM: read by megatron-core, and by torchrun's own parser.

- hosts: torch.distributed.run parses the line of every host's script; the shim of the folder says each process's rank.
- groups: parallel_state.initialize_model_parallel, as Megatron-LM calls it, in a fake process group of the launch's size; what
  it asks torch for is written down with the options that it made of nccl.yaml, and the network of every group is held against
  the plan's own groups: those over TCP must use Socket (by nccl.yaml or by the shim), those over RDMA must not.
- layers: TransformerConfig and PipelineParallelLayerLayout, stage by stage.
- microbatches: num_microbatches_calculator.

- overrides of Megatron-Bridge: Hydra's parser, which Megatron-Bridge uses, reads them; ddp, optimizer and model are fields of
  megatron-core's configurations, which Megatron-Bridge's inherit, and say what megatron.args says. A recipe is not built.

- ZeRO 2 and 3: the mesh that Megatron-FSDP makes of its groups (mcore_fsdp_adapter.py), on every rank; a pipeline ends there.

Where megatron.training is there (megatron-core[training] 0.19.2 on Python 3.12), the arguments go through its parse_args,
validate_args and core_transformer_config_from_args first; two questions that it has for a GPU (its generation) are answered.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import re
import sys
import unittest.mock
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from hydra.core.override_parser.overrides_parser import OverridesParser
from megatron.core import num_microbatches_calculator, parallel_state
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import TransformerConfig, transformer_config
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.append(str(Path(__file__).parent))
import launching

sys.path.pop()  # this folder has files of the programs' own names

KINDS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
}
OWN_OF_THE_PROVIDER = (
    "vocab_size", "should_pad_vocab", "share_embeddings_and_output_weights", "virtual_pipeline_model_parallel_size",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "tp_comm_overlap_cfg",
)  # fmt: skip
"""Fields of Megatron-Bridge's GPTModelProvider (src/megatron/bridge/models/gpt_provider.py)."""
THEIRS = "--train-iters 10 --lr 1e-4 --mock-data --tokenizer-type NullTokenizer --vocab-size 1000 --no-rope-fusion"


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"hydra-core": version("hydra-core"), "megatron-core": version("megatron-core"), "torch": version("torch")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Everything that Megatron-LM decides by its arguments."""
    hosts = launching.hosts(folder, "pretrain_gpt.py")
    words = (folder / "megatron.args").read_text().split()
    flags = launching.by_name(words)
    if importlib.util.find_spec("megatron.training"):
        parse(words, len(hosts), connections(folder))
    if (folder / "bridge-overrides.txt").exists():
        read_overrides((folder / "bridge-overrides.txt").read_text().split(), flags)
    return decided(folder, plan, hosts, flags)


def decided(folder: Path, plan: dict[str, Any], hosts: dict[str, str], flags: dict[str, str]) -> dict[str, Any]:
    """Everything that megatron-core decides by these flags, for ranks on these hosts."""
    tp, pp, cp = (int(flags[f"{name}-parallel-size"]) for name in ("tensor-model", "pipeline-model", "context"))
    further = flags.get("mtp-num-layers")
    alone = "E" + "t" * int(flags["num-layers"]) + "m" * int(further or 0) + "L"
    layout = flags.get("pipeline-model-parallel-layout", alone)
    stages = PipelineParallelLayerLayout.get_num_stages_from_str(layout)
    parallel_state.destroy_model_parallel()
    groups = read_groups(folder, plan, flags, len(hosts), (tp, pp, cp, stages // pp))
    config(flags, layout if stages > 1 else None)
    found = PipelineParallelLayerLayout(layout, pp)
    found.validate_layer_layout(int(flags["num-layers"]), int(further) if further else None)
    where = [{"pp_rank": index % pp, "vp_stage": index // pp} for index in range(stages)]
    layers = [found.get_layer_id_list(**stage) for stage in where]
    micro, whole = int(flags["micro-batch-size"]), int(flags["global-batch-size"])
    num_microbatches_calculator.init_num_microbatches_calculator(0, None, whole, micro, len(hosts) // (tp * pp * cp))
    microbatches = num_microbatches_calculator.get_num_microbatches()
    num_microbatches_calculator.destroy_num_microbatches_calculator()
    return {
        "world_size": len(hosts),
        "hosts": hosts,
        "groups": groups,
        "layers": [len(ids) for ids in layers],
        "first_layers": [found.get_layer_offset(**stage) for stage in where],
        "microbatches": microbatches,
        "microbatch_size": micro,
        "global_batch_size": whole,
    }


def connections(folder: Path) -> str:
    """CUDA_DEVICE_MAX_CONNECTIONS of all hosts."""
    found = {re.findall(r"CUDA_DEVICE_MAX_CONNECTIONS='(\d+)'", file.read_text())[0] for file in (folder / "env").iterdir()}
    assert len(found) == 1
    return found.pop()


def parse(words: list[str], world: int, connections: str) -> Any:
    """The configuration that Megatron-LM's own parser and checks make, on rank 0. 8 and 4 bits ask for the version of
    Transformer Engine, which needs a GPU."""
    from megatron.training import arguments

    arguments.get_device_arch_version = lambda: 9
    torch.cuda.get_device_properties = lambda _: type("Properties", (), {"major": 9, "minor": 0})()
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": connections}
    engine = {"is_te_min_version": lambda *_: True} if {"--fp4-format", "--fp8-format"} & set(words) else {}
    with (
        unittest.mock.patch.object(sys, "argv", ["pretrain_gpt.py", *words, *THEIRS.split()]),
        unittest.mock.patch.multiple(arguments, **engine) if engine else contextlib.nullcontext(),
        unittest.mock.patch.multiple(transformer_config, **engine) if engine else contextlib.nullcontext(),
    ):
        parsed = arguments.validate_args(arguments.parse_args())
        found = arguments.core_transformer_config_from_args(parsed)
    assert parsed.use_distributed_optimizer == ("--use-distributed-optimizer" in words)
    assert parsed.overlap_grad_reduce == ("--overlap-grad-reduce" in words)
    assert parsed.overlap_param_gather == ("--overlap-param-gather" in words)
    assert parsed.sequence_parallel == ("--sequence-parallel" in words)
    assert parsed.use_megatron_fsdp == ("--use-megatron-fsdp" in words)
    for name in ("fp8", "fp4"):
        after = [later for word, later in itertools.pairwise(words) if word == f"--{name}-format"]
        assert [getattr(parsed, name)] == (after or [None])
    return found


def config(flags: dict[str, str], layout: str | None) -> TransformerConfig:
    """The checks of TransformerConfig on degrees, heads, layers and recomputation."""
    fields = {
        "num_layers": "num-layers", "hidden_size": "hidden-size", "ffn_hidden_size": "ffn-hidden-size",
        "kv_channels": "kv-channels", "num_attention_heads": "num-attention-heads", "num_query_groups": "num-query-groups",
        "num_moe_experts": "num-experts",
        "tensor_model_parallel_size": "tensor-model-parallel-size", "context_parallel_size": "context-parallel-size",
        "pipeline_model_parallel_size": "pipeline-model-parallel-size", "recompute_num_layers": "recompute-num-layers",
        "expert_model_parallel_size": "expert-model-parallel-size", "moe_router_topk": "moe-router-topk",
        "expert_tensor_parallel_size": "expert-tensor-parallel-size", "moe_ffn_hidden_size": "moe-ffn-hidden-size",
        "mtp_num_layers": "mtp-num-layers",
    }  # fmt: skip
    facts: dict[str, Any] = {field: int(flags[name]) for field, name in fields.items() if name in flags}
    named = {"recompute_granularity": "recompute-granularity", "recompute_method": "recompute-method"}
    facts |= {field: flags[name] for field, name in named.items() if name in flags}
    facts |= {name: name in flags for name in ("bf16", "fp16")} | {"sequence_parallel": "sequence-parallel" in flags}
    facts |= {"gated_linear_unit": "swiglu" in flags, "add_bias_linear": "disable-bias-linear" not in flags}
    facts |= {"moe_router_pre_softmax": True} if "moe-router-pre-softmax" in flags else {}
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    facts["pipeline_dtype"] = next((types[name] for name in types if name in flags), torch.float32)
    return TransformerConfig(**facts, pipeline_model_parallel_layout=layout)


def read_overrides(words: list[str], flags: dict[str, str]) -> None:
    """Raises where an override is no field of its configuration, or says another value than the flag of its name."""
    found = {override.key_or_group: override.value() for override in OverridesParser.create().parse_overrides(words)}
    assert len(found) == len(words)
    known = {"model": TransformerConfig, "ddp": DistributedDataParallelConfig, "optimizer": OptimizerConfig}
    for key, value in found.items():
        section, _, name = key.partition(".")
        if section in known:
            assert name in (*known[section].__dataclass_fields__, *OWN_OF_THE_PROVIDER), f"{section} has no {name}"
        flag = name.replace("_", "-")
        if flag in flags:
            assert str(value) == (flags[flag] or "True"), f"{key} is {value}, --{flag} {flags[flag]}"
        elif isinstance(value, bool) and name not in OWN_OF_THE_PROVIDER:
            assert not value, f"{key} is true, and there is no --{flag}"


def read_mesh(flags: dict[str, str], rank: int, world: int) -> None:
    """Raises where Megatron-FSDP finds other ranks in its groups than in the mesh of all ranks by tp, ep and dp x cp."""
    from megatron.core.distributed.fsdp import mcore_fsdp_adapter as adapter

    tp, cp, ep = (int(flags.get(f"{name}-parallel-size", 1)) for name in ("tensor-model", "context", "expert-model"))
    copies = int(flags.get("num-distributed-optimizer-instances", 1))
    parallel_state.destroy_model_parallel()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        parallel_state.initialize_model_parallel(
            tp, int(flags["pipeline-model-parallel-size"]), context_parallel_size=cp, expert_model_parallel_size=ep,
            expert_tensor_parallel_size=int(flags.get("expert-tensor-parallel-size", tp)),
            num_distributed_optimizer_instances=copies, create_gloo_process_groups=False,
        )  # fmt: skip
        tp_group, partly = parallel_state.get_tensor_model_parallel_group(), copies > 1
        shards = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=partly)
        if partly:
            outer = parallel_state.get_inter_distributed_optimizer_instance_group()
            adapter._get_hsdp_tp_mesh(outer, shards, tp_group)
        else:
            adapter._get_dp_tp_mesh(shards, tp_group)
        if "num-experts" in flags:
            own = parallel_state.get_expert_data_parallel_group(partial_expert_data_parallel=partly)
            etp_group = parallel_state.get_expert_tensor_parallel_group()
            if partly:
                adapter._get_hsdp_tp_mesh(outer, own, etp_group, **({"ep_size": ep} if ep > 1 else {}))
            else:
                adapter._get_dp_tp_mesh(own, etp_group, **({"ep_size": ep} if ep > 1 else {}))
    finally:
        dist.destroy_process_group()
        parallel_state.destroy_model_parallel()


def read_groups(
    folder: Path, plan: dict[str, Any], flags: dict[str, str], world: int, sizes: tuple[int, int, int, int]
) -> dict[str, list[list[int]]]:
    """Groups by kind, as initialize_model_parallel asks for them; raises where one has another network than the plan's."""
    requested: list[tuple[str, tuple[int, ...], str | None]] = []

    def new_group(ranks: Any = None, backend: Any = None, pg_options: Any = None, group_desc: Any = None, **_: Any) -> object:
        if backend is None:
            requested.append((group_desc, tuple(ranks), pg_options and pg_options.config.net_name))
        return object()

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    true, dist.new_group = dist.new_group, new_group
    tp, pp, cp, vpp = sizes
    nccl = folder / "nccl.yaml"
    scripts = [script.read_text() for script in (folder / "launch").glob("*.sh")]
    assert all(('--nccl-communicator-config-path "$here"/nccl.yaml' in script) == nccl.exists() for script in scripts)
    try:
        parallel_state.initialize_model_parallel(
            tp, pp, vpp if vpp > 1 else None, context_parallel_size=cp,
            expert_model_parallel_size=int(flags.get("expert-model-parallel-size", 1)),
            expert_tensor_parallel_size=int(flags.get("expert-tensor-parallel-size", tp)),
            num_distributed_optimizer_instances=int(flags.get("num-distributed-optimizer-instances", 1)),
            nccl_communicator_config_path=str(nccl) if nccl.exists() else None,
        )  # fmt: skip
    finally:
        dist.new_group = true
        dist.destroy_process_group()
    if "use-megatron-fsdp" in flags:
        for rank in range(world):
            read_mesh(flags, rank, world)
    shim, table = launching.load(folder / "holmes_launch.py"), json.loads((folder / "ranks.json").read_text())
    network_of = {ranks: name or shim.network(table, list(ranks)) for _, ranks, name in requested}
    meant = {"tcp": ("Socket",), "rdma": ("IB", None)}
    for group in plan["groups"]:
        network = network_of[tuple(sorted(group["ranks"]))]
        assert network in meant.get(group["transport"], (network,)), f"{group} has network {network}"
    for description, ranks, name in requested:
        network = shim.network(table, list(ranks))
        assert name in (None, network) or network is None, f"{description} {ranks}: nccl.yaml {name}, fabrics {network}"
    instances = [ranks for description, ranks, _ in requested if description == "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP"]
    size = plan["config"].get("zero_shard_size")
    assert all(len(ranks) == size for ranks in instances)
    assert bool(instances) == (size is not None and size < world // (tp * pp))
    known = set(re.findall(r"get_nccl_options\(\s*['\"](\w+)['\"]", Path(parallel_state.__file__).read_text()))
    named = {line.split(":")[0] for line in nccl.read_text().splitlines() if line[0] != "#"} if nccl.exists() else set()
    assert named <= known, f"nccl.yaml names {named - known}, which parallel_state does not ask for"
    found: dict[str, list[list[int]]] = {kind: [] for kind in KINDS.values()}
    for description, ranks, _ in requested:
        if description in KINDS and len(ranks) > 1:
            found[KINDS[description]].append(list(ranks))
    return {kind: sorted(groups) for kind, groups in found.items()}
