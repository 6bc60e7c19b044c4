"""DeepSpeed: configuration, topology and stages of a plan, for the user's own model.

Names and rules are those of DeepSpeed 0.19.8 (runtime/config.py, runtime/engine.py, runtime/pipe, launcher):

- PipeModelDataParallelTopology numbers ranks along the axes pipe, data, model, the last one fastest, as plans without cp do.
- PipelineModule divides its layers evenly by count, parameters or type. Explicit stages need an override of
  `_partition_layers`.
- TrainSchedule sends a forward's message after it has received the next gradient (`sim.plan.schedules.deepspeed_1f1b`). The
  step of this 1F1B differs from Megatron-LM's, so plans with Megatron-LM's 1F1B are refused. Messages use the group of all
  ranks (runtime/pipe/p2p.py).
- Pipelines support ZeRO stages 0 and 1. bf16 with fp32 gradients uses BF16_Optimizer, which shards the optimizer state as ZeRO
  1 does and reduces full gradients. Without a pipeline the engine supports all ZeRO stages.
- Its launcher numbers ranks in the order of the hostfile and uses one environment for all hosts, so `holmes_rank.py` loads the
  environment of each host.
- The generated pipeline uses private names of PipelineModule (`_partition_layers`, `_set_bounds`, `_topo`), because its public
  arguments cannot express explicit stages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from holmes_sim.launching import environment, head, model_facts, model_keys, nets, replicas, tied, torch_launch, unlike_stages
from holmes_sim.launching.adapters import peft, peft_assumed
from holmes_sim.launching.experts import of_own_layers
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import of_plan
from holmes_sim.launching.offload import kept, limited
from planner.target import PipelineLimits, Vendors
from sim.formats import planfile
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "DeepSpeed 0.19"
READERS = "DeepSpeed 0.19.8 on torch 2.13"
ORDER = 50
KIND = "framework"
VENDORS: Vendors = "one"
EXCLUDED_VENDORS: tuple[str, ...] = ()
unsupported_pipelines: PipelineLimits = nets.other_networks
MODULE, CONFIG, HOSTFILE, SCRIPT = "holmes_plan.py", "ds_config.json", "hostfile", "holmes_rank.py"
HOW = """\
On the first host, which reaches all others by ssh (pdsh), with this folder on all of them under one path:

```
deepspeed --hostfile FOLDER/hostfile --no_local_rank FOLDER/holmes_rank.py train.py ARGUMENTS
```

`train.py` is your script; the head of `holmes_plan.py` shows what it calls. `holmes_rank.py` loads its host's `env/*.env`;
`holmes_launch.py` checks the host against the plan, sets the rank and the network of every process group, and runs the script.
In containers set `HOLMES_HOST` to the host's name in the plan."""
RANK = '''\
"""One rank, as DeepSpeed's launcher starts it: holmes_rank.py train.py ARGUMENTS. Loads the environment of its host."""

import os
import runpy
import shlex
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = os.environ.get("HOLMES_HOST") or socket.gethostname()
NAMES = [file.name.removesuffix(".env") for file in sorted((HERE / "env").glob("*.env"))]
FOUND = [name for name in NAMES if name == HOST] or [name for name in NAMES if name.split(".")[0] == HOST.split(".")[0]]
if len(FOUND) != 1:
    sys.exit(f"holmes_rank: {HOST} is {'more than one' if FOUND else 'none'} of {', '.join(NAMES)}; HOLMES_HOST may name it")
for line in (HERE / "env" / f"{FOUND[0]}.env").read_text(encoding="utf-8").splitlines():
    name, value = shlex.split(line)[1].split("=", 1)  # export NAME='value'
    os.environ[name] = value
sys.path.append(str(HERE))  # for train.py to import holmes_plan
runpy.run_path(str(HERE / "holmes_launch.py"), run_name="__main__")
'''
TEMPLATE = '''\
"""{name} on {topology} for DeepSpeed 0.19: plan {digest}, written by holmes-sim.

    import deepspeed
    import holmes_plan

    holmes_plan.start()
{usage}
"""

import os
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
{imports}

CONFIG = str(Path(__file__).with_name("{config}"))


def start() -> None:
    """Join all ranks before DeepSpeed does: it would bind the device, and torch then split all groups off one communicator."""
    get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group(get_accelerator().communication_backend_name())
    deepspeed.init_distributed()


def topology() -> PipeModelDataParallelTopology:
    return PipeModelDataParallelTopology(num_pp={pp}, num_mp={tp}, num_dp={dp})

{body}'''
GRID = '''
def grid() -> PipelineParallelGrid:
    """The groups of the plan, as deepspeed.initialize's mpu."""
    return PipelineParallelGrid(topology=topology())
'''
GRID_USAGE = """\
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), optimizer=..., mpu=holmes_plan.grid(), config=holmes_plan.CONFIG
    )
    for batch in batches:  # {microbatches} a step
        engine.backward(engine(batch))
        engine.step()"""
PIPELINE = '''
# where each stage begins in [embedding, layer 0, ..., layer {last}, head], and the end
PARTS = {parts}


class Pipeline(PipelineModule):
    """A PipelineModule with the stages of the plan; `layers` is [embedding, layer 0, ..., layer {last}, head]."""

    def __init__(self, layers, **given):
        layers = list(layers)
        if len(layers) != PARTS[-1]:
            raise ValueError(f"{{len(layers)}} layers, head and embedding included; the plan has {{PARTS[-1]}}")
{recompute}        super().__init__(layers, topology=topology(), **given)

    def _partition_layers(self, method="uniform"):
        self.parts = PARTS
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''
RECOMPUTE = """\
        types = {layer.typename if isinstance(layer, LayerSpec) else type(layer) for layer in layers[1:-1]}
        given |= {"activation_checkpoint_interval": 1, "checkpointable_layers": [kind.__name__ for kind in types]}
"""
PIPELINE_USAGE = """\
    model = holmes_plan.Pipeline([embedding, *layers, head], loss_fn=loss)  # LayerSpec, TiedLayerSpec
    engine, *_ = deepspeed.initialize(model=model, optimizer=..., config=holmes_plan.CONFIG)
    engine.train_batch(batches)  # {microbatches} of them"""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts that DeepSpeed cannot express, or executes differently."""
    yield from (*replicas.unequal(config, "gradient_accumulation_steps is one number"), *unlike_stages.unlike_experts(config))
    yield from (*tied.shards(config, workload), *unlike_stages.unlike_degrees(config), *model_keys.other_optimizer(workload))
    if config.cp > 1:
        yield f"cp {config.cp}: its topology has the axes pipe, data and model; --cp 1"
    if config.ep > 1:
        yield f"ep {config.ep}: its topology has the axes pipe, data and model; --ep 1"
    if config.zero_shard_size is not None and config.zero_shard_size < config.dp:
        yield f"zero_shard_size {config.zero_shard_size}: ZeRO shards over all of dp; {config.dp}"
    yield from (*limited(config, workload), *kept(config))
    yield from _unsupported_pipeline(config)
    yield from _unsupported_precision(config, workload.precision)


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices of several vendors, and pipelines over several fabrics."""
    config = plan.config
    yield from environment.unsupported(plan)
    yield from head.unsupported(plan)
    if not nets.one_vendor(plan, range(config.world_size)):
        vendors = ", ".join(sorted({plan.fleet.spec(device).vendor for device in plan.placement}))
        yield f"vendors {vendors}: it has one accelerator for all ranks; a plan on devices of one vendor"
    groups = (group.ranks for group in plan.groups if group.kind == "pp")
    yield from unsupported_pipelines(
        plan.fleet, (tuple(map(plan.placement.__getitem__, one)) for one in groups), plan.placement
    )


def _unsupported_pipeline(config: ParallelConfig) -> Iterator[str]:
    if config.vpp > 1:
        yield f"vpp {config.vpp}: a pipeline rank has one stage; --vpp 1"
    if config.pp == 1:
        if config.schedule == "gpipe" and max(config.num_microbatches) > 1:
            yield "schedule gpipe with pp 1: each microbatch's backward follows its forward; 1f1b"
        return
    if config.schedule == "1f1b":
        yield "schedule 1f1b: it sends a forward's message after the next gradient's receive; --schedule 1f1b-deepspeed"
    elif config.schedule != "1f1b-deepspeed":
        yield f"schedule {config.schedule}: TrainSchedule is 1F1B; --schedule 1f1b-deepspeed"
    if config.offloads_optimizer:
        yield f"offload optimizer with pp {config.pp}: offload_optimizer was not tried in its pipelines; --pp 1"
    if config.zero_stage > 1:
        yield f"zero_stage {config.zero_stage} with pp {config.pp}: its pipelines support ZeRO 0 and 1; --zero-stage 1"
    if config.recompute_layers:
        yield "recompute_layers: its activation_checkpoint_interval is one for all layers; none, to recompute all layers"
    if config.modules:
        yield "recompute selective: a pipeline recomputes whole layers; none or full"


def _unsupported_precision(config: ParallelConfig, precision: str) -> Iterator[str]:
    gradients = config.gradient_precision
    if precision not in ("bf16", "fp16", "fp32"):
        yield f"precision {precision}: its models are bf16, fp16 or fp32; one of them"
    elif gradients not in ("fp32", precision):
        yield f"gradient_precision {gradients} with {precision}: gradients have the same or fp32; {precision} or fp32"
    elif config.zero_stage == 0 and gradients != precision:
        yield f"gradient_precision {gradients} with {precision}: without ZeRO both are equal; --zero-stage 1"
    elif config.zero_stage == 0 and precision == "bf16" and config.pp > 1:
        yield f"zero_stage 0 with bf16 and pp {config.pp}: BF16_Optimizer shards its state; --zero-stage 1"


def launch(plan: Plan) -> Launch:
    """ds_config.json, holmes_plan.py, hostfile, holmes_rank.py, and the files that holmes_rank.py loads and starts."""
    found = {
        CONFIG: File(_config(plan), "DeepSpeed's configuration"),
        MODULE: File(_module(plan), "topology and stages of the plan, for your `train.py` to import"),
        HOSTFILE: File(
            "".join(f"{host.name} slots={len(host.ranks)}\n" for host in of_plan(plan)), "hosts in the plan's order"
        ),
        SCRIPT: File(RANK, "loads the environment of its host, for one rank"),
    }
    shared = {name: file for name, file in torch_launch.files(plan).items() if not name.startswith("launch/")}
    return Launch(found | shared, HOW, _assumed(plan))


def _config(plan: Plan) -> str:
    config, precision = plan.config, plan.workload.precision
    said: dict[str, object] = {
        "train_batch_size": plan.workload.global_batch_size,
        "train_micro_batch_size_per_gpu": config.microbatch_size,
        "gradient_accumulation_steps": config.num_microbatches[0],
    }
    if precision != "fp32":
        said[precision] = {"enabled": True}
    said["data_types"] = {"grad_accum_dtype": config.gradient_precision}
    said["communication_data_type"] = config.gradient_precision
    if config.zero_stage:
        overlap = config.pp == 1 and config.overlap_grad_reduce
        kept = {"offload_optimizer": {"device": "cpu", "pin_memory": True}} if config.offloads_optimizer else {}
        said["zero_optimization"] = {"stage": config.zero_stage, "overlap_comm": overlap, **kept}
    return json.dumps(said, indent=2) + "\n"


def _module(plan: Plan) -> str:
    config, model = plan.config, plan.workload.model
    name, topology = (re.sub(r'["\\]', "", text) for text in (model.name, plan.topology.name))
    if config.pp == 1:
        grid, body, usage = "PipelineParallelGrid, PipeModelDataParallelTopology", GRID, GRID_USAGE
        imports = f"from deepspeed.runtime.pipe.topology import {grid}"
    else:
        specs = "LayerSpec, " if (full := config.recompute == "full") else ""
        imports = f"from deepspeed.pipe import {specs}PipelineModule\n"
        imports += "from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology"
        parts = [0, *(stage.past_last + 1 for stage in plan.stages[:-1]), model.layers + 2]
        body, usage = PIPELINE.format(last=model.layers - 1, parts=parts, recompute=RECOMPUTE if full else ""), PIPELINE_USAGE
    return TEMPLATE.format(
        name=name, topology=topology, digest=planfile.digest(plan), imports=imports, config=CONFIG,
        body=body + peft(plan.workload),
        usage=usage.format(microbatches=config.num_microbatches[0]), pp=config.pp, tp=config.tp, dp=config.dp,
    )  # fmt: skip


def _assumed(plan: Plan) -> tuple[str, ...]:
    config, model = plan.config, plan.workload.model
    heads, tied = f"{model.heads} heads, {model.kv_heads} of keys and values", "tied" if model.tied_embeddings else "not tied"
    lines = [
        f"You provide the layers: {model.layers} of hidden size {model.hidden} with {heads}, {model.mlp} MLPs of "
        f"{model.ffn_hidden}; vocabulary {model.vocab}, sequences of {plan.workload.seq_len}, embeddings {tied}, attention "
        f"{config.attention}."
    ]
    lines += [f"They have {facts}."] if (facts := model_facts.listed(model)) else []
    lines += of_own_layers(config, model)
    lines += peft_assumed(plan.workload)
    if config.tp > 1:
        parallel = f"{'with' if config.sequence_parallel else 'without'} sequence parallelism"
        parallel += " beside products (tp_overlap)" if tensor_overlap.is_whole(config) else ""
        lines.append(f"They are sharded along the topology's axis model (tp {config.tp}), {parallel}.")
    if config.pp == 1 and config.recompute != "none":
        some = f" ({config.recompute_layers[0]} of {model.layers} layers)" if config.recompute_layers else ""
        lines.append(f"recompute {config.recompute}{some} must be done by the layers (deepspeed.checkpointing.checkpoint).")
    elif config.recompute == "selective":
        lines.append("recompute selective is written as none: fused attention recomputes its scores by itself.")
    return (*lines, *_overlap(plan))


def _overlap(plan: Plan) -> Iterator[str]:
    """Differences between DeepSpeed's overlap of communication and the overlap that the plan's step assumes."""
    config = plan.config
    if config.offloads_optimizer:
        yield "The optimizer is DeepSpeedCPUAdam. Gradients go to the host in the backward; in the plan they do so after it."
    if config.dp == 1:
        return
    mixed = plan.workload.precision == "bf16" and config.gradient_precision == "fp32"
    if whole := mixed and config.zero_stage == 1 and not config.offloads_optimizer:
        yield "BF16_Optimizer all-reduces full gradients, then shards the optimizer; the plan reduce-scatters them."
    if config.overlap_grad_reduce and (config.pp > 1 or whole or not config.zero_stage):
        yield "Gradients are reduced after the last backward; the plan's step assumes overlap_grad_reduce."
    if config.overlap_param_gather and config.zero_stage in (1, 2):
        yield "Weights are gathered after the optimizer; the plan's step assumes overlap_param_gather."
