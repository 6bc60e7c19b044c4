"""Holmes: the fork of Megatron-LM of zhejianglab/Holmes (arXiv 2312.03549), whose pipeline stages may have different sizes on
each cluster.

Flags and files are those of its only published commit (dadcc08, 2024-08-13): megatron/training/arguments.py, hetero_context.py,
megatron/core/hetnet.py, tools/config.py. The code differs from its README as follows:

- The parser does not know `--overlapped-distributed-optimizer`; the export writes --overlap-grad-reduce and
  --overlap-param-gather.
- Only its legacy models support stages with different numbers of layers (megatron/legacy/model/transformer.py,
  _get_layer_info); with --use-mcore-models stages silently have equal numbers. The legacy models do not support
  --overlap-param-gather.
- It sorts ranks by device type and then by rank, so the types are listed in the order of the stages.
- config.json contains no NCCL_NET: the fork would set that variable for the groups that it switches and leave the last value
  for all other groups, including dp_cp of the gradients. The shim sets the network of every group.
- The local rank must be the rank modulo the number of devices per host (megatron/training/initialize.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from holmes_sim.launching import (
    adapters,
    device_types,
    environment,
    hosts,
    megatron_flags,
    megatron_fsdp,
    megatron_precision,
    model_facts,
    model_keys,
    offload,
    torch_launch,
    unlike_stages,
)
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from holmes_sim.launching.megatron_options import HOLMES
from planner.target import PipelineLimits, Vendors
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.model import NARROW
from sim.workload.workload import Workload

TITLE = "Holmes (zhejianglab)"
READERS = "its own code (dadcc08)"
ORDER = 90
KIND = "framework"
VENDORS: Vendors = "joined"
EXCLUDED_VENDORS: tuple[str, ...] = ("amd", "huawei")
unsupported_pipelines: PipelineLimits = device_types.of_pipelines
ARGS, CONFIG = "holmes.args", "config.json"
TYPE = "HETERO_DEVICE_TYPE"
LISTS = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")
"""Variables whose value is a list of names after `=`. config.json has the union over all hosts of a type; the environment of
each host has its own names."""
HOW = """\
On every host, from the folder of zhejianglab/Holmes, with this folder on all of them under one path:

```
cp FOLDER/config.json .
bash FOLDER/launch/HOST.sh --train-iters 1000 --lr 3e-4 --data-path DATA --tokenizer-type TOKENIZER ...
```

with the host's own script. Holmes reads `config.json` from the folder where it runs; the script sees that it is this one,
loads its host's `env/*.env` and starts torchrun with static rendezvous on `pretrain_gpt.py`, with `holmes.args`, the host's
device type and then the arguments given here: data, tokenizer, learning rate, checkpoints. `holmes_launch.py` checks the
host against the plan, and sets the network of every process group. The first host is the master; `MASTER_PORT` (29500
unless set) must be free on it."""
ASSUMED = (
    "PyTorch is 2.4 or later, whose NCCL groups take a network by name; the fork was published for 2.1.",
    "The tokenizer has no more tokens than the plan's vocabulary: they are padded to exactly that.",
)


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What the fork cannot express, in addition to the limits of Megatron-LM."""
    yield from offload.refused(config, "the fork's optimizers keep their state on devices")
    yield from (*megatron_flags.unsupported_layout(config, workload), *megatron_flags.few_groups(config, workload))
    yield from model_keys.special(workload)
    yield from (*megatron_fsdp.refused(config), *adapters.refused(workload))
    yield from (*unlike_stages.unlike_degrees(config), *unlike_stages.unlike_recomputation(config))
    yield from unlike_stages.unlike_experts(config)
    if set(config.modules) - {"core_attn"}:
        names = ", ".join(config.modules)
        yield f"recompute_modules {names}: the fork has the attention core only; recompute none, full, or core_attn alone"
    if config.vpp > 1:
        yield f"vpp {config.vpp}: its pipeline of device types has no virtual stages; vpp 1 (--vpp 1)"
    if config.cp > 1:
        yield f"cp {config.cp}: its pipeline of device types has no context parallelism; cp 1"
    if workload.model.experts:
        yield f"experts {workload.model.experts}: its expert groups do not support device types; a dense model"
    if config.shards < config.dp_cp:
        yield f"zero_shard_size {config.shards}: all replicas shard the optimizer state; no zero_shard_size"
    if workload.precision in NARROW and workload.precision != "fp8":
        yield f"precision {workload.precision}: there is no flag for it; bf16, fp8, fp16 or fp32"
    if workload.precision == "fp8" and config.current_scaling:
        yield "precision fp8 with current_scaling: it has delayed scaling only; a stack without current_scaling, or bf16"
    if workload.precision == "fp8" and config.fp8_param_gather and config.zero_stage:
        yield "fp8_param_gather: there is no flag for it; a stack without it, or bf16"
    if config.own_tp_overlap and tensor_overlap.is_whole(config):
        yield "tp_overlap: user buffers were not tried with its pipeline of device types; tp_overlap false"
    if config.gradient_precision == "bf16":
        yield "gradient_precision bf16: there is no flag for it; fp32"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Unequal stages whose gathers overlap, devices that it is not built for, and hosts that are not whole or not equal."""
    yield from megatron_flags.unsupported_placement(plan)
    yield from megatron_flags.without_layers(plan)
    if plan.workload.precision == "fp8" and not _equal(plan):
        yield "precision fp8: only its legacy models support unequal stages, and they have none; equal stages, or bf16"
    if plan.config.gathers_ahead and not _equal(plan):
        yield (
            "overlap_param_gather true: only its legacy models support unequal stages, and they cannot overlap the gather; "
            "equal stages, or overlap_param_gather false (plan with --for holmes)"
        )
    if "amd" in {plan.fleet.spec(device).vendor for device in plan.placement}:
        yield "vendor amd: it is built for CUDA; devices of NVIDIA"
    all_hosts = hosts.of_plan(plan)
    odd = next((host for host in all_hosts if len(host.ranks) != host.cluster.node.host.count), None)
    if not hosts.in_order(all_hosts) or hosts.per_host(all_hosts) is None:
        yield "placement of ranks: its local rank is rank modulo devices of a host; equal hosts, each with consecutive ranks"
    elif odd is not None:
        yield (
            f"placement on {len(odd.ranks)} of {odd.cluster.node.host.count} devices of {odd.name}: its local rank is rank "
            "modulo devices of a host; whole hosts"
        )
    silent = next((host for host in all_hosts if all(nic.spec.rdma for nic in host.cluster.node.nics)), None)
    if silent is not None:
        yield (
            f"nics of {silent.cluster.name}: it requires a socket interface on every host (NCCL_SOCKET_IFNAME); "
            "an ethernet NIC in the topology"
        )
    yield from device_types.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """Arguments, the NCCL settings of every device type, and a launch by torchrun."""
    labels = device_types.of_clusters(plan)
    setup = (
        f'cmp "$here"/{CONFIG} {CONFIG} || {{ echo "copy {CONFIG} of the export to the folder of Holmes" >&2; exit 1; }}\n'
        f'set -f\narguments=($(<"$here"/{ARGS}))\n'
    )
    entry = f'pretrain_gpt.py "${{arguments[@]}}" --hetero-current-device-type "${TYPE}" "$@"'
    files = torch_launch.files(plan, entry, _environment(plan), setup=setup)
    for host in hosts.of_plan(plan):
        name = f"env/{host.name}.env"
        files[name] = replace(files[name], content=f"{files[name].content!s}export {TYPE}='{labels[host.cluster.name]}'\n")
    found = {
        ARGS: File(megatron_flags.text(flags(plan)), "arguments of Holmes, one a line"),
        CONFIG: File(config_json(plan), "NCCL's settings by device type; `heter` is what joins several"),
    }
    of_model = model_facts.assumed(plan.workload.model, HOLMES, "Holmes")
    return Launch(found | files, HOW, (*megatron_flags.assumed(plan), *of_model, *ASSUMED))


def flags(plan: Plan) -> megatron_flags.Flags:
    """All flags that follow from the plan, except the device type of a host."""
    model, flash = plan.workload.model, plan.config.attention == "flash"
    runs = device_types.runs(plan)
    layers = [str(stage.layers) for stage in plan.stages]
    stages: list[str] = []
    for _, count in runs:
        stages += [str(count), *layers[:count]]
        del layers[:count]
    found = megatron_flags.degrees(plan)
    found |= {
        "use-hetnet": True,
        "hetero-mode": "pp",
        "hetero-device-types": " ".join(label for label, _ in runs),
        "hetero-pipeline-stages": " ".join(stages),
    }
    found |= megatron_flags.batches(plan) | megatron_flags.shape(plan)
    found |= model_facts.written(model, HOLMES)
    found["make-vocab-size-divisible-by"] = model.vocab // plan.config.tp
    found |= megatron_precision.flags(plan) | megatron_flags.optimizer(plan) | megatron_flags.recomputation(plan)
    if _equal(plan):
        return found | {"use-mcore-models": True, "transformer-impl": "transformer_engine"}
    return found | {"transformer-impl": "local"} | ({"use-flash-attn": True} if flash else {})


def config_json(plan: Plan) -> str:
    """The variables of every device type, and of groups across types (`heter`)."""
    types: dict[str, list[Host]] = {}
    labels = device_types.of_clusters(plan)
    all_hosts = hosts.of_plan(plan)
    for host in all_hosts:
        types.setdefault(labels[host.cluster.name], []).append(host)
    entries = [{"CLUSTER_NAME": label} | _joined(plan, tuple(found)) for label, found in types.items()]
    everywhere = _joined(plan, all_hosts)
    sockets = {"NCCL_SOCKET_IFNAME": everywhere["NCCL_SOCKET_IFNAME"]} if "NCCL_SOCKET_IFNAME" in everywhere else {}
    entries.append({"CLUSTER_NAME": "heter"} | sockets)
    return json.dumps(entries, indent=4) + "\n"


def _joined(plan: Plan, some: tuple[Host, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    environments = environment.Environments(plan)
    for host in some:
        for name, value in environments.of_host(host).items():
            if name in LISTS and name in found:
                names = dict.fromkeys((found[name] + "," + value[1:]).removeprefix("=").split(","))
                found[name] = "=" + ",".join(names)
            elif name.startswith("NCCL_"):
                found[name] = value
    return found


def _environment(plan: Plan) -> dict[str, str]:
    found = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    if plan.config.attention == "unfused" and _equal(plan):
        found |= {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "0"}
    return found


def _equal(plan: Plan) -> bool:
    return len({stage.layers for stage in plan.stages}) == 1
