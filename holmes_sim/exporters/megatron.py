"""Megatron-LM: its flags, the layout of its stages, and the network of each group; and overrides for Megatron-Bridge.

Flags are those of megatron-core 0.19.2 (megatron/training/arguments.py). In the default order tp-cp-ep-dp-pp its groups have
the same ranks as the plan's (RankGenerator in megatron/core/parallel_state.py). The shim gives every process its rank, so that
placement needs no flag. Overrides are fields of Megatron-Bridge's ConfigContainer (src/megatron/bridge/training/config.py at
067f987, 2026-08-22), for scripts/training/run_recipe.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import (
    adapters,
    megatron_bridge,
    megatron_flags,
    megatron_fsdp,
    megatron_groups,
    megatron_precision,
    model_facts,
    offload,
    torch_launch,
    unlike_stages,
)
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.megatron_options import MEGATRON
from planner.target import Vendors
from sim import collectives
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "Megatron-LM"
READERS = "megatron-core 0.16.1 and 0.19.2"
ORDER = 10
KIND = "framework"
VENDORS: Vendors = "joined"
EXCLUDED_VENDORS: tuple[str, ...] = ("huawei",)
PASSES_ON = True
"""Its TransformerBlock copies its input where it is empty, for pipelines (d98e8a64, megatron/core/transformer/
transformer_block.py, line 764), and ranks without parameters have an optimizer (megatron/core/optimizer/__init__.py, 500)."""
ARGS, NCCL, BRIDGE = "megatron.args", "nccl.yaml", "bridge-overrides.txt"
NCCL_ABOUT = "NCCL's network by the names of Megatron-LM's groups"
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""validate_args requires it with tp or cp on devices before Blackwell: it keeps compute and communication in order."""
GATHERS = "Megatron-Bridge gathers weights in {precision} (training/mixed_precision.py); the plan's step assumes bf16."
HOW = """\
On every host, from Megatron-LM's folder, with this folder on all of them under one path:

```
bash FOLDER/launch/HOST.sh --train-iters 1000 --lr 3e-4 --data-path DATA --tokenizer-type TOKENIZER ...
```

with the host's own script. It loads the host's `env/*.env` and starts torchrun with static rendezvous on `pretrain_gpt.py`,
with `megatron.args` and then the arguments given here: data, tokenizer, learning rate, checkpoints. `holmes_launch.py`
checks the host against the plan, and sets the rank and the network of every process group. The first host is the master;
`MASTER_PORT` (29500 unless set) must be free on it. In containers set `HOLMES_HOST` to the host's name in the plan."""
HOW_BRIDGE = """

With Megatron-Bridge, from its folder, say a recipe of this model in place of arguments:

```
bash FOLDER/bridge/HOST.sh --recipe RECIPE --mode pretrain --dataset DATASET
```"""
HOW_ADAPTERS = """\
Megatron-LM trains all weights; Megatron-Bridge trains adapters. On every host, from Megatron-Bridge's folder, with this folder
on all of them under one path, with a recipe of this model for LoRA:

```
bash FOLDER/bridge/HOST.sh --recipe RECIPE --mode lora --dataset DATASET --pretrained_checkpoint CHECKPOINT
```

with the host's own script. It loads the host's `env/*.env` and starts torchrun with static rendezvous on `run_recipe.py`, with
the arguments given here and then `bridge-overrides.txt`. `holmes_launch.py` checks the host against the plan, and sets the rank
and the network of every process group. The first host is the master; `MASTER_PORT` (29500 unless set) must be free on it. In
containers set `HOLMES_HOST` to the host's name in the plan."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What Megatron-LM cannot express: unequal replicas, ZeRO 2 and 3 in a pipeline, other schedules, and an overlap of tensor
    parallelism in fp16 or fp32."""
    yield from (*megatron_flags.unsupported_layout(config, workload), *megatron_fsdp.unsupported(config))
    yield from (*unlike_stages.unlike_degrees(config), *unlike_stages.unlike_recomputation(config))
    yield from unlike_stages.unlike_experts(config)
    yield from megatron_precision.without_buffers(config, workload)
    yield from megatron_flags.unsupported_optimizer(config, workload)
    yield from (*offload.with_megatron(config, workload), *offload.whole_layers(config, workload))
    if config.vpp > 1 and config.pp == 1:
        yield f"vpp {config.vpp}: virtual stages need a pipeline; pp 2 or more, or vpp 1"
    yield from _unsupported_adapter(config, workload)


def _unsupported_adapter(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What Megatron-Bridge, which alone trains adapters, cannot express."""
    if workload.adapter is None:
        return
    yield from adapters.unsupported(workload, adapters.MEGATRON)
    if workload.adapter.r % config.tp:
        yield f"adapter.r {workload.adapter.r}: tp {config.tp} must divide it; a multiple of {config.tp}"
    if missing := megatron_bridge.without_overrides(config, workload):
        yield f"adapter: {missing.removesuffix('.')}; all weights trained"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Vendors that NCCL does not join, hosts whose groups need networks that NCCL does not distinguish, and devices without
    memory for what Megatron-FSDP keeps."""
    yield from (*megatron_flags.unsupported_placement(plan), *megatron_fsdp.unsupported_placement(plan))


def launch(plan: Plan) -> Launch:
    """Arguments, NCCL networks by group, overrides for Megatron-Bridge, and launches of both by torchrun."""
    nccl = megatron_groups.nccl_yaml(plan)
    if plan.workload.adapter is not None:
        files = {NCCL: File(nccl, NCCL_ABOUT)} if nccl else {}
        assumed = (*megatron_flags.assumed(plan), *megatron_fsdp.assumed(plan), *_bridge_assumed(plan))
        return Launch(files | _bridge(plan, bool(nccl)), HOW_ADAPTERS, assumed)
    option = f' --nccl-communicator-config-path "$here"/{NCCL}' if nccl else ""
    entry = f'pretrain_gpt.py "${{arguments[@]}}"{option} "$@"'
    found = {ARGS: File(megatron_flags.text(flags(plan)), "arguments of Megatron-LM, one a line")}
    if nccl:
        found[NCCL] = File(nccl, NCCL_ABOUT)
    found |= torch_launch.files(plan, entry, _environment(plan), setup=_read(ARGS))
    missing = megatron_bridge.missing(plan)
    if missing:
        return Launch(found, HOW, (*_assumed(plan), missing))
    return Launch(found | _bridge(plan, bool(nccl)), HOW + HOW_BRIDGE, (*_assumed(plan), *_bridge_assumed(plan)))


def _bridge(plan: Plan, has_nccl: bool) -> dict[str, File]:
    """Overrides for Megatron-Bridge, and their launch."""
    option = f' dist.nccl_communicator_config_path="$here"/{NCCL}' if has_nccl else ""
    entry = f'scripts/training/run_recipe.py "$@" "${{arguments[@]}}"{option}'
    found = {BRIDGE: File(megatron_bridge.overrides(plan), "overrides of a recipe of Megatron-Bridge, one a line")}
    return found | torch_launch.files(plan, entry, _environment(plan), setup=_read(BRIDGE), folder="bridge")


def _environment(plan: Plan) -> dict[str, str]:
    return megatron_fsdp.ENVIRONMENT if megatron_fsdp.is_used(plan.config) else ENVIRONMENT


def flags(plan: Plan) -> megatron_flags.Flags:
    """All flags that follow from the plan."""
    found = megatron_flags.degrees(plan)
    if tensor_overlap.is_whole(plan.config):
        found["tp-comm-overlap"] = True
    if any(group.kind == "dp" and collectives.get(group.collective).IN_NETWORK for group in plan.groups):
        found["use-sharp"] = True
    if plan.config.pp > 1:
        found[megatron_flags.LAYOUT] = megatron_flags.layout(plan)
    found |= megatron_flags.batches(plan) | megatron_flags.shape(plan)
    found |= model_facts.written(plan.workload.model, MEGATRON)
    found["padded-vocab-size"] = plan.workload.model.vocab
    found |= megatron_precision.flags(plan) | megatron_flags.optimizer(plan) | megatron_flags.recomputation(plan)
    found |= megatron_fsdp.flags(plan.config, plan.workload)
    found["attention-backend"] = plan.config.attention
    return found


def _read(name: str) -> str:
    """Shell lines that read the words of a file into `arguments`. Globbing is off, because a layout contains `*`."""
    return f'set -f\narguments=($(<"$here"/{name}))\n'


def _bridge_assumed(plan: Plan) -> Iterator[str]:
    if plan.workload.adapter is not None:
        yield (
            "The recipe is one for LoRA, and has the adapters' alpha. Queries, keys and values share one A, gate and up "
            "projection another one; the plan counts one for each of them."
        )
        if plan.config.tp > 1:
            yield "Megatron-Bridge divides both matrices of an adapter by tp, with collectives of its own; the plan has none."
    yield "The recipe of Megatron-Bridge has the model's activation, norms, biases and positions: those have no override here."
    if plan.workload.precision == "fp8" and plan.config.zero_stage and not plan.config.fp8_param_gather:
        yield GATHERS.format(precision="fp8")
    if plan.workload.precision == "nvfp4" and plan.config.zero_stage:
        yield GATHERS.format(precision="nvfp4")
    if megatron_precision.scales_by_current_values(plan):
        yield (
            f"{megatron_bridge.CURRENT_SCALING} of Megatron-Bridge keeps the first and the last layer in bf16 "
            "(first_last_layers_bf16); the plan's step assumes fp8."
        )


def _assumed(plan: Plan) -> Iterator[str]:
    yield from megatron_flags.assumed(plan)
    yield from model_facts.assumed(plan.workload.model, MEGATRON, "Megatron-LM")
    if plan.config.offloads_optimizer:
        yield "Copies and the host's optimizer follow one another, as in the plan: without --overlap-cpu-optimizer-d2h-h2d."
    if plan.config.offloads_activations:
        yield "The last layer stays on the device (--cpu-offloading-num-layers); the plan counts copies of all layers."
    yield from megatron_fsdp.assumed(plan)
    if not megatron_fsdp.is_used(plan.config):
        yield "Megatron-LM is that of megatron-core 0.16 or later, with Transformer Engine."
