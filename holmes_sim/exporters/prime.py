"""prime: islands of one host each, kept together by DiLoCo, as INTELLECT-1 was trained.

Names and rules are those of PrimeIntellect-ai/prime d57965b0 (2025-02, src/zeroband: config.py, train.py, comms.py, diloco.py,
utils/world_info.py, utils/activation_ckpt.py; scripts/simulate_multi_node_diloco.sh), which has torch 2.5.1. The repository of
that name holds another program today: they were read in CloudEngineHub/prime, a fork whose last commit, de5b9317, changes only
the README.

- An island is one launch of torchrun on one host: fully_shard shards over its local ranks, and nothing else divides the model.
- Rank r exchanges with local rank r of the other islands, by a store at GLOBAL_ADDR:GLOBAL_PORT + r. The mean is not weighted.
- The outer optimizer is SGD of learning rate `outer_lr` and Nesterov momentum 0.9, in the memory of the host.
- Weights are gathered for each microbatch, twice with reshard_after_forward; gradients are kept whole and reduced once a step
  (set_requires_gradient_sync). With one microbatch that is ZeRO 3, or ZeRO 1 and 2 without resharding; with more it is ZeRO 3
  with the memory of whole gradients and fewer messages.
- resolve_env_vars rejects variables ZERO_BAND_* that are no keys of the configuration, also those of comms.py: the leader waits
  600 s for the others, and no setting changes it.
- Without [diloco] it trains on one host alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holmes_sim.launching import (
    adapters,
    alike_islands,
    context,
    environment,
    head,
    hosts,
    model_facts,
    model_keys,
    offload,
    prime_models,
    replicas,
)
from holmes_sim.launching.environment import Environments
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from planner.target import Vendors
from sim.kernels import memory
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.sync import diloco
from sim.units import size_text
from sim.workload.workload import Workload

TITLE = "prime d57965b0"
READERS = "no program: its keys are those of prime's Config, checked by hand"
ISLANDS_TITLE = TITLE
ISLANDS_READERS = "prime's Config (config.py, by pydantic) has read the files of other plans; none was run"
ORDER = 70
KIND = "islands"
VENDORS: Vendors = "one"
EXCLUDED_VENDORS: tuple[str, ...] = ("huawei",)
STORE, RENDEZVOUS = 5565, 10001
"""GLOBAL_PORT, and the port of the first island's torchrun: defaults of simulate_multi_node_diloco.sh."""
LONGEST_WAIT = 600.0
"""Seconds that the leader waits for the other islands before it goes on without them (comms.py, GLOBAL_PG_TIMEOUT)."""
COMPRESSIONS = {"none": "no", "int8": "uint8"}
HOW = """\
On every host, from a checkout of prime with this folder on all of them under one path (the training framework, `git checkout
d57965b0`; PrimeIntellect-ai/prime holds another program today, and forks such as CloudEngineHub/prime have it; then as its
README says: `uv sync --extra all`, `iperf`, the data):

```
uv run bash FOLDER/launch/{script}.sh --optim.total_steps 88000
```
{islands}"""
ISLANDS = """
with the host's own script, {host} first: it holds the store of all islands at `GLOBAL_ADDR` (its name unless set), on
`GLOBAL_PORT` ({store} unless set) and a port more for every further rank of a host. `BASE_PORT` ({port} and the number of the
island) must be free on each host, and iperf's port 10101 be open between them."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts of an island that prime cannot express."""
    if prime_models.shape_of(workload.model) is None:
        names = ", ".join(dict.fromkeys(f"{one.kind} {one.name}" for one in prime_models.SHAPES))
        yield f"model {workload.model.name}: it has models by name, with their tokenizer's vocabulary; {names}"
    yield from (
        *model_keys.special(workload),
        *adapters.refused(workload),
        *replicas.unequal(config),
        *offload.refused(config, "its inner optimizer keeps its state on devices"),
        *context.ulysses(config, "it has no context parallelism"),
    )
    for key in ("tp", "pp", "cp", "ep", "vpp"):
        if getattr(config, key) > 1:
            yield f"{key} {getattr(config, key)}: it shards over the devices of a host and divides nothing else; {key} 1"
    if workload.precision != "bf16":
        yield f"precision {workload.precision}: param_dtype is bfloat16; bf16"
    if config.gradient_precision not in ("fp32", "bf16"):
        yield f"gradient_precision {config.gradient_precision}: reduce_fp32 is fp32 or the precision of weights; fp32 or bf16"
    if config.attention != "flash":
        yield f"attention {config.attention}: it has fused attention only (flex); flash"
    if config.recompute_layers or config.modules or config.recompute == "selective":
        yield "recompute of some layers or modules: ac_ckpt is for whole layers, all alike; none, or full for all layers"
    yield from _unsupported_shards(config)


def _unsupported_shards(config: ParallelConfig) -> Iterator[str]:
    many = max(config.num_microbatches) > 1
    if many and config.pp == 1 and config.schedule == "gpipe":
        yield "schedule gpipe with pp 1: each microbatch's backward follows its forward; 1f1b"
    if config.dp_cp == 1:
        return
    if config.zero_stage == 0:
        yield f"zero_stage 0 with dp {config.dp}: fully_shard shards over all devices; --zero-stage 3"
    elif config.shards != config.dp_cp:
        yield f"zero_shard_size {config.shards}: fully_shard shards over all devices; {config.dp_cp}"
    elif config.zero_stage < 3 and many:
        yield f"zero_stage {config.zero_stage}: it gathers weights for each microbatch; --zero-stage 3, or one microbatch"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Several hosts, devices without CUDA or ROCm, and devices without memory for whole gradients."""
    yield from (*environment.unsupported(plan), *head.unsupported(plan))
    names = [host.name for host in hosts.of_plan(plan)]
    if len(names) > 1:
        yield f"hosts {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}: an island is one host; islands of one host each"
    vendors = sorted({plan.fleet.spec(device).vendor for device in plan.placement})
    if len(vendors) > 1 or vendors == ["huawei"]:
        yield f"vendors {', '.join(vendors)}: it runs on CUDA devices of one kind; devices of nvidia or amd"
    needed, limit = memory.peak_memory(plan)[0] + _whole_gradients(plan), memory.limits(plan)[0]
    if _whole_gradients(plan) and needed > limit:
        yield (
            f"num_microbatches {plan.config.num_microbatches[0]} with zero_stage 3: it keeps whole gradients, "
            f"{size_text(needed)} of {size_text(limit)} in all; one microbatch"
        )


def _whole_gradients(plan: Plan) -> float:
    """Bytes of the gradients that prime keeps beyond the shard that ZeRO 3 keeps."""
    config = plan.config
    if config.zero_stage < 3 or config.dp_cp == 1 or max(config.num_microbatches) == 1:
        return 0.0
    value = 4 if config.gradient_precision == "fp32" else 2
    return value * plan.workload.model.parameters * (1 - 1 / config.shards)


def unsupported_islands(plan: IslandsPlan) -> Iterator[str]:
    """Sync strategies, islands that differ, and islands of so unlike speed that the leader would not wait."""
    sync = plan.sync
    if sync.strategy != diloco.NAME:
        yield f"strategy {sync.strategy}: its outer optimizer is that of DiLoCo; {diloco.NAME}"
    if sync.compression not in COMPRESSIONS:
        yield f"compression {sync.compression}: it has uint8; none or int8"
    if sync.aggregation != "mean":
        yield f"aggregation {sync.aggregation}: it takes the mean of the islands; mean"
    yield from alike_islands.unlike(plan)
    waits = max(plan.prediction.waiting_s) if plan.prediction else 0.0
    if waits > LONGEST_WAIT:
        yield (
            f"waiting of {waits:.4g} s: the first island goes on without the others after {LONGEST_WAIT:g} s; islands of like "
            "speed, or fewer inner_steps"
        )


def launch(plan: Plan) -> Launch:
    """The configuration and the script of one host, which trains alone."""
    (host,) = hosts.of_plan(plan)
    found = {"prime.toml": File(_toml(_config(plan)), "prime's configuration")} | _files(
        plan, host, "prime.toml", {}, RENDEZVOUS
    )
    return Launch(found, HOW.format(script=host.name, islands=""), tuple(_assumed(plan)))


def islands_launch(plan: IslandsPlan) -> Launch:
    """A configuration, an environment and a script for the host of each island."""
    found: dict[str, File] = {}
    first = hosts.of_plan(plan.islands[0])[0].name
    for index, island in enumerate(plan.islands):
        (host,) = hosts.of_plan(island)
        name = f"island{index}.toml"
        config = _config(island)
        config["data"] |= {"data_rank": index, "data_world_size": len(plan.islands)}
        config["diloco"] = {
            "outer_lr": diloco.LEARNING_RATE, "inner_steps": plan.sync.inner_steps,
            "compression": COMPRESSIONS[plan.sync.compression],
        }  # fmt: skip
        shared = {"GLOBAL_ADDR": first, "GLOBAL_PORT": str(STORE), "GLOBAL_WORLD_SIZE": str(len(plan.islands))}
        own = {"GLOBAL_RANK": str(index), "GLOBAL_UNIQUE_ID": str(index)}
        found[name] = File(_toml(config), "prime's configuration for an island")
        found |= _files(island, host, name, shared | own, RENDEZVOUS + index)
    how = HOW.format(script="HOST", islands=ISLANDS.format(host=first, store=STORE, port=RENDEZVOUS))
    lines = (line for island in plan.islands for line in _assumed(island))
    return Launch(found, how, tuple(dict.fromkeys((*lines, *_assumed_of_islands(plan)))))


def _files(plan: Plan, host: Host, config: str, variables: dict[str, str], port: int) -> dict[str, File]:
    """Environment and script of a host; `variables` yield to those that are set."""
    exports = "".join(f'export {name}="${{{name}:-{value}}}"\n' for name, value in variables.items())
    script = (
        "#!/usr/bin/env bash\n"
        f"# {host.node}: {len(host.ranks)} ranks\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
        f'source "$here"/env/{host.name}.env\n'
        f"{exports}"
        f"exec torchrun --nnodes=1 --node-rank=0 --nproc-per-node={len(host.ranks)} "
        f'--rdzv-endpoint="localhost:${{BASE_PORT:-{port}}}" src/zeroband/train.py @"$here"/{config} "$@"\n'
    )
    text = environment.text(Environments(plan).of_host(host))
    return {
        f"env/{host.name}.env": File(text, "environment of one host"),
        f"launch/{host.name}.sh": File(script, "starts the ranks of one host", executable=True),
    }


def _config(plan: Plan) -> dict[str, Any]:
    """Keys of prime's Config for a plan; the rest has prime's defaults."""
    config, shape = plan.config, prime_models.shape_of(plan.workload.model)
    assert shape is not None
    train = {
        "micro_bs": config.microbatch_size, "ac_ckpt": config.recompute == "full",
        "reshard_after_forward": config.zero_stage == 3, "reduce_fp32": config.gradient_precision == "fp32",
        "attn_fn": "flex",
    }  # fmt: skip
    return {
        "name_model": shape.name, "type_model": shape.kind, "project": plan.topology.name, "train": train,
        "optim": {"batch_size": plan.workload.global_batch_size}, "data": {"seq_length": plan.workload.seq_len},
    }  # fmt: skip


def _toml(data: dict[str, Any]) -> str:
    """Text of a TOML file of values and tables of values; JSON writes these values as TOML does."""
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in data.items() if key not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _assumed(plan: Plan) -> Iterator[str]:
    shape = prime_models.shape_of(plan.workload.model)
    assert shape is not None
    yield "Data, optimizer, learning rate and steps are prime's defaults: set [optim] and [data] (AdamW, 4e-4, fineweb-edu)."
    yield from model_facts.assumed(plan.workload.model, prime_models.options(shape.kind), "prime")
    if more := _whole_gradients(plan):
        yield (
            f"prime keeps whole gradients and reduces them once a step: {size_text(more)} a device more, and fewer messages, "
            "than the plan's ZeRO 3."
        )


def _assumed_of_islands(plan: IslandsPlan) -> Iterator[str]:
    yield "The outer step runs in the memory of the hosts: 12 bytes a parameter there, none on the devices."
    yield "Exchanges go over gloo (TCP on GLOO_SOCKET_IFNAME), with a connection for each rank of a host."
    if plan.sync.compression == "int8":
        yield "uint8 cuts 6 standard deviations of a part of a layer into 256 steps; the plan's int8 cuts the range of a block."
