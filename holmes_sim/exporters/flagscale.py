"""FlagScale: Hydra files and a hostfile; where stages are unlike, a process mesh per device type, and the type of each host.

Plans whose stages are alike are launched without meshes, as by its Megatron-LM (`enable_hetero` is false by default: training/
arguments.py.patch, training/initialize.py.patch), which also has virtual stages, context parallelism, stages without layers
(core/transformer/transformer_block.py.patch) and any number of stages on a host.

Keys and rules are those of flagos-ai/FlagScale at 16a2dd5 (2025-11-27): flagscale/train/arguments.py (pre_validate_args),
train/hetero/parallel_context.py (RankMapper, ProcessMesh), runner/runner_train.py and runner/utils.py; flags are those of its
Megatron-LM, 8479eb35 (2025-09-19). The export works around these properties:

- A mesh has five numbers, tp cp ep dp pp (the help text says four), and an etp of its own. ep is to be 1 on all meshes or on
  none, as the message of an assertion says that never fails (pre_validate_args). With unlike dp, micro_batch_size is that of
  the first mesh, and its dp x micro_batch_size samples are divided among the ranks of every mesh.
- There is one mesh per device type, and a host has one type.
  RankMapper sorts ranks by device type and then by rank. So a type here is one pipeline rank, or the pipeline ranks that share
  hosts, in pipeline order; the shim handles fabrics.
- Between meshes it takes the ranks of the last pipeline rank without their replicas (logical_coords_to_physical_ranks omits the
  wrong axis): a mesh of several pipeline ranks, except the last mesh, joins the wrong replicas unless dp is 1. Such plans are
  refused.
- ZeRO 2 and 3 are Megatron-FSDP, without meshes: the mesh of its version has dp x cp and tp (core/distributed/fsdp/
  mcore_fsdp_adapter.py, lines 187 and 202), and so neither pipelines nor ep.
- The runner starts torchrun with the c10d rendezvous, which sorts hosts by name, unless rdzv_backend is static.
- It needs a *_VISIBLE_DEVICES variable for every host, and fails with an UnboundLocalError otherwise.
- Its entry point is a single word of the command line, so `entry.py` inserts FlagScale's own script after the shim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holmes_sim.exporters import megatron
from holmes_sim.launching import (
    adapters,
    device_meshes,
    environment,
    flagscale_dualpipev,
    hosts,
    megatron_flags,
    megatron_fsdp,
    megatron_precision,
    model_facts,
    offload,
    torch_launch,
)
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from holmes_sim.launching.megatron_options import MEGATRON
from planner.target import Vendors
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "FlagScale"
READERS = "its own code (16a2dd5) with its Megatron-LM (8479eb35)"
ORDER = 80
KIND = "framework"
VENDORS: Vendors = "joined"
EXCLUDED_VENDORS: tuple[str, ...] = ("huawei",)
OVERLAPS_PAIRS = True
PASSES_ON = True
"""As Megatron-LM (8479eb35, transformer_block.py, line 675); meshes take no stage without layers."""
HOW = """\
On one host that reaches the others by ssh, from FlagScale's folder, with this folder on all of them under one path:

```
bash FOLDER/run.sh +train.system.checkpoint.save_interval=1000 +train.model.train_iters=1000 +train.data.data_path=DATA ...
```

`action=dryrun` shows what would be run on each host, `action=stop` ends it. Arguments after the script override or (with
`+`) extend `conf/train/plan.yaml`: data, tokenizer, learning rate, checkpoints. `holmes_launch.py` checks the host against the
plan, and sets the rank and the network of every process group. The first host is the master; port 29500 must be free on it
(`experiment.runner.master_port=...`)."""
IMPLEMENTATION: dict[str, object] = {"use_mcore_models": True, "transformer_impl": "transformer_engine"}
UNKNOWN = ("padded_vocab_size", "megatron_fsdp_main_grads_dtype", "moe_flex_dispatcher_backend")
"""Arguments of newer versions of Megatron-LM. Gradients have the precision that `accumulate_allreduce_grads_in_fp32` says, and
the dispatcher flex is DeepEP's (`moe_enable_deepep`)."""
LISTS = frozenset({"recompute_modules", "hierarchical_context_parallel_sizes"})
"""Arguments of several words, which are a list in its files: its runner writes a string as one word."""
ASSUMED = (
    "FlagScale's Megatron-LM is made ready on every host, as its installation says (tools/patch/unpatch.py).",
    "The tokenizer has no more tokens than the plan's vocabulary: they are padded to exactly that.",
)
ENTRY = """\
\"\"\"Runs FlagScale's own script behind holmes_launch.py; started by FlagScale's runner, from FlagScale's folder.\"\"\"

import runpy
import sys
from pathlib import Path

sys.argv.insert(1, "flagscale/train/train_gpt.py")
runpy.run_path(str(Path(__file__).resolve().parent / "holmes_launch.py"), run_name="__main__")
"""
RUN = """\
#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec python run.py --config-path "$here"/conf --config-name plan experiment.runner.hostfile="$here"/hostfile \\
    experiment.task.entrypoint="$here"/entry.py "$@"
"""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What FlagScale cannot express, in addition to the limits of Megatron-LM."""
    yield from megatron_flags.unsupported_layout(config, workload, (*megatron_flags.SCHEDULES, flagscale_dualpipev.NAME))
    yield from megatron_flags.few_groups(config, workload)
    if workload.model.experts and workload.model.mlp == "gelu":
        yield "mlp gelu: its version of Megatron-LM has no experts with biases; mlp swiglu or relu2"
    yield from flagscale_dualpipev.unsupported(config, workload)
    yield from (*_unsupported_zero(config), *adapters.refused(workload), *megatron_precision.without_buffers(config, workload))
    if device_meshes.are_needed(config):
        yield from device_meshes.unsupported_layout(config, workload)
        return
    yield from (*offload.with_megatron(config, workload), *offload.kept(config))
    yield from megatron_flags.unsupported_optimizer(config, workload)
    if config.dispatcher == "hybridep":
        yield "dispatcher hybridep: its Megatron-LM has no flag for it; dispatcher alltoall or deepep"
    if config.vpp > 1 and config.pp == 1:
        yield f"vpp {config.vpp}: virtual stages need a pipeline; pp 2 or more, or vpp 1"


def _unsupported_zero(config: ParallelConfig) -> Iterator[str]:
    """Layouts of ZeRO 2 and 3 that its Megatron-FSDP cannot run."""
    if megatron_fsdp.is_used(config) and config.ep > 1:
        yield f"ep {config.ep} with zero_stage {config.zero_stage}: its Megatron-FSDP has no mesh of experts; --zero-stage 1"
    yield from megatron_fsdp.unsupported(config)


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """What Megatron-LM and, where stages are unlike, meshes of device types cannot express."""
    yield from (*megatron_flags.unsupported_placement(plan), *megatron_fsdp.unsupported_placement(plan))
    yield from flagscale_dualpipev.unsupported_placement(plan)
    if device_meshes.are_needed(plan.config):
        yield from device_meshes.unsupported_placement(plan)


def launch(plan: Plan) -> Launch:
    """Hydra's files, the hostfile, and the shim with its rank table."""
    labels = {name: f" type={label}" for name, label in device_meshes.types(plan).items()}
    hostfile = "".join(f"{host.name} slots={len(host.ranks)}{labels.get(host.name, '')}\n" for host in hosts.of_plan(plan))
    shared = {name: file for name, file in torch_launch.files(plan).items() if "/" not in name}
    found = {
        "run.sh": File(RUN, "starts FlagScale's runner", executable=True),
        "conf/plan.yaml": File(_yaml(experiment(plan)), "hosts, launcher and environments, for Hydra"),
        "conf/train/plan.yaml": File(_yaml(train(plan)), "FlagScale's arguments, for Hydra"),
        "hostfile": File(hostfile, "hosts in order, with their processes" + ", and their device types" * bool(labels)),
        "entry.py": File(ENTRY, "starts FlagScale's own script as the rank that the plan says"),
    }
    return Launch(found | shared, HOW, (*megatron_flags.assumed(plan), *_assumed(plan)))


def _assumed(plan: Plan) -> tuple[str, ...]:
    """What a run must have, beside the assumptions of Megatron-LM. Vocabularies are padded mesh by mesh."""
    config, vocab = plan.config, plan.workload.model.vocab
    every = (
        *model_facts.assumed(plan.workload.model, MEGATRON, "Megatron-LM"),
        *ASSUMED,
        *megatron_fsdp.assumed(plan, "that of its Megatron-LM"),
        *flagscale_dualpipev.assumed(plan),
    )
    if not config.stage_tp:
        return every
    fewest = vocab - vocab // config.tp * min(config.stage_tp)
    return (*every, f"The tokenizer has more than {fewest} tokens, or meshes of unlike tp would pad them unlike.")


def experiment(plan: Plan) -> dict[str, object]:
    """Configuration of the launch; run.sh sets the values `???`."""
    all_hosts = hosts.of_plan(plan)
    return {
        "defaults": [{"train": "plan"}, "_self_"],
        "experiment": {
            "exp_name": "plan",
            "exp_dir": "./outputs_plan",
            "task": {"type": "train", "backend": "megatron", "entrypoint": "???"},
            "runner": {
                "backend": "torchrun",
                "nnodes": len(all_hosts),
                "hostfile": "???",
                "rdzv_backend": "static",
                "master_addr": all_hosts[0].name,
                "master_port": torch_launch.PORT,
            },
            "envs": _environments(plan, all_hosts),
            **_before_start(plan.config, all_hosts),
        },
        "action": "run",
        "hydra": {"run": {"dir": "${experiment.exp_dir}/hydra"}},
    }


def _before_start(config: ParallelConfig, all_hosts: tuple[Host, ...]) -> dict[str, object]:
    """Shell lines that its runner writes before the start of a host's ranks. OmegaConf resolves `${` unless it is escaped."""
    threads = offload.threads(config, str(max(len(host.ranks) for host in all_hosts)))
    return {"cmds": {"before_start": threads.strip().replace("${", "\\${")}} if threads else {}


def train(plan: Plan) -> dict[str, object]:
    """FlagScale's arguments: names of Megatron-LM with underscores, in sections that FlagScale flattens again."""
    config, model = plan.config, plan.workload.model
    if not device_meshes.are_needed(config):
        return _alike(plan)
    system = megatron_flags.degrees(plan) | megatron_precision.flags(plan) | megatron_flags.optimizer(plan)
    system |= megatron_flags.recomputation(plan) | {"attention-backend": config.attention}
    shape = megatron_flags.batches(plan) | megatron_flags.shape(plan)
    shape |= model_facts.written(model, MEGATRON)
    return {
        "system": _keys(system) | device_meshes.recomputation(config) | device_meshes.expert_degrees(plan),
        "model": IMPLEMENTATION | _keys(shape) | {"hetero": device_meshes.hetero(plan)},
        "data": {"make_vocab_size_divisible_by": model.vocab // config.tp},
    }


def _alike(plan: Plan) -> dict[str, object]:
    """As `train`, of a plan whose stages are alike: the arguments of Megatron-LM; values of a list are words of their own."""
    config = plan.config
    flags = megatron.flags(plan)
    if flagscale_dualpipev.is_used(config):
        flags = {key: value for key, value in flags.items() if key != megatron_flags.LAYOUT} | flagscale_dualpipev.flags(plan)
    found = {key: value for key, value in _keys(flags).items() if key not in UNKNOWN}
    if config.dispatcher == "deepep" and plan.workload.model.experts:
        found["moe_enable_deepep"] = True
    for name in LISTS.intersection(found):
        found[name] = [int(word) if word.isdigit() else word for word in str(found[name]).split()]
    vocab = plan.workload.model.vocab // config.tp
    return {"system": found, "model": IMPLEMENTATION, "data": {"make_vocab_size_divisible_by": vocab}}


def _environments(plan: Plan, all_hosts: tuple[Host, ...]) -> dict[str, object]:
    """Variables by device type where all hosts of the type have the same, otherwise by host; of all hosts where stages are
    alike and hosts have the same."""
    environments = environment.Environments(plan)
    labels = device_meshes.types(plan) or dict.fromkeys((host.name for host in all_hosts), "")
    by_type: dict[str, dict[str, dict[str, str]]] = {}
    for host in all_hosts:
        visible = environment.VISIBLE.get(host.cluster.node.device.vendor, "CUDA_VISIBLE_DEVICES")
        variables = environments.of_host(host) | {visible: ",".join(map(str, host.devices))}
        by_type.setdefault(labels[host.name], {})[host.name] = variables
    found: dict[str, object] = {"CUDA_DEVICE_MAX_CONNECTIONS": 1}
    if megatron_fsdp.is_used(plan.config):
        found = {key: int(value) for key, value in megatron_fsdp.ENVIRONMENT.items()}
    shared_by_type = {
        label: next(iter(own.values())) for label, own in by_type.items() if len(set(map(str, own.values()))) == 1
    }
    by_host = {
        name: variables for label, own in by_type.items() if label not in shared_by_type for name, variables in own.items()
    }
    return (
        found
        | shared_by_type.pop("", {})
        | ({"device_type_specific": shared_by_type} if shared_by_type else {})
        | ({"node_specific": by_host} if by_host else {})
    )


def _keys(flags: megatron_flags.Flags) -> dict[str, object]:
    return {name.replace("-", "_"): value for name, value in flags.items()}


def _yaml(document: dict[str, object], indent: str = "") -> str:
    lines = []
    for key, value in document.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}\n")
    return "".join(lines)
