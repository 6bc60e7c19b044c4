"""Islands as replica groups of torchft, in torchtitan's FaultTolerantTrainer: settings, lighthouse and scripts.

Names and rules are those of torchtitan 0.3.0 (experiments/torchft: config/job_config.py, manager.py, trainer.py, optimizer.py,
checkpoint.py, diloco/utils.py; the keys are the same at pytorch/torchtitan b5bcd76c) and of torchft-nightly 2026.10.26
(local_sgd.py, manager.py, collectives.py, quantization.py; src/lighthouse.rs read at pytorch/torchft 73dafea4):

- Every island is a launch of its own. Rank r exchanges with rank r of the other islands, through one manager for each island
  and one lighthouse for all. The mean is not weighted.
- `semi_sync_method` "diloco" is streaming DiLoCo: SGD of learning rate 0.7 and Nesterov momentum 0.9; one of `num_fragments`
  is exchanged after every sync_steps / num_fragments steps, beside `fragment_sync_delay` steps, fewer than these. "local_sgd"
  takes the mean of the weights. Both change the first model part of a rank only. Without a method, a hook of FSDP exchanges
  gradients whenever FSDP reduces them.
- `should_quantize` sends a byte a value, by all_to_all, which needs NCCL: int8, on devices of capability 9 and later float8.
  torchft gives its NCCL groups no network (process_group.py, `ProcessGroupNCCL._create_pg`, which the exported module wraps),
  and NCCL would take the RDMA devices that islands use inside.
- data_parallel_replicate_degree must be 1 (manager.py). global_batch_size is that of all islands (trainer.py, get_dp_info).
- FaultTolerantTrainer of 0.3.0 does not call set_spmd_backend, and gives ChunkedLossWrapper no head.
- torchft recovers islands through the checkpoint manager, which must be on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holmes_sim.launching import alike_islands, hosts, torch_launch, torchft_module, torchtitan_models
from holmes_sim.launching.environment import Environments
from holmes_sim.launching.folder import File, Launch
from sim.hardware.transport import common_transport
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.sync import Sync

METHODS = {"every-step": None, "local-sgd": "local_sgd", "diloco": "diloco", "streaming-diloco": "diloco"}
"""Our sync strategy -> semi_sync_method."""
MODULE, LIGHTHOUSE = "holmes_island.py", "lighthouse.sh"
PORT = 29510
"""Default port of the lighthouse (torchft, src/lighthouse.rs)."""
FIRST_MASTER = 29600
"""Master port of the first island; island i has the i-th port after it, so that islands may share a host. A guess."""
ALPHA = 0.5
"""fragment_update_alpha with overlap: share of the island's own weights in the mixture (arXiv 2501.18512, section 2.2)."""
PATIENCE, UNKNOWN = 600, 3600
"""Seconds that an exchange may take at least before torchft gives it up, and where it was not predicted. Guesses: more waits
longer for an island that is lost."""
HOW = """\
`pip install torchtitan==0.3.0 torchft-nightly` on all hosts, and this folder on all of them under one path. First, on {host}:

```
bash FOLDER/lighthouse.sh
```

Then on every host of island I, from the folder with the tokenizer:

```
bash FOLDER/islandI/launch/HOST.sh --training.steps {steps}
```

with the host's own script. All hosts reach the lighthouse at `TORCHFT_LIGHTHOUSE` (http://{host}:{port} unless set). The first
host of an island is its master, by its name unless `MASTER_ADDR` says another; `MASTER_PORT` ({master} + I unless set) must be
free on it. torchft waits for all {count} islands: to go on without one that is lost, lower `--min_replicas` of the lighthouse
and `--fault_tolerance.min_replica_size` of every island. In containers set `HOLMES_HOST` to the host's name in the plan."""


def unsupported(plan: IslandsPlan) -> Iterator[str]:
    """What torchft cannot express of a plan of islands."""
    yield from (*_unsupported_sync(plan.sync), *alike_islands.unlike(plan))
    if plan.sync.strategy in METHODS:
        yield from _unsupported_layout(plan.sync, plan.islands[0])


def _unsupported_sync(sync: Sync) -> Iterator[str]:
    if sync.strategy not in METHODS:
        yield f"strategy {sync.strategy}: torchft has DiLoCo, Local SGD and an exchange of every step; {', '.join(METHODS)}"
    if sync.aggregation != "mean":
        yield f"aggregation {sync.aggregation}: torchft takes the mean of the islands; mean"
    if sync.compression not in (("none", "int8") if METHODS.get(sync.strategy) == "diloco" else ("none",)):
        yield f"compression {sync.compression}: should_quantize is int8, for DiLoCo alone; none, or int8 with diloco"
    steps = sync.inner_steps // sync.fragments
    if sync.inner_steps % sync.fragments:
        yield f"fragments {sync.fragments}: they are exchanged at equal intervals; a divisor of inner_steps {sync.inner_steps}"
    elif sync.strategy in METHODS and sync.overlap_steps >= max(steps, 1) and sync.overlap_steps:
        yield f"overlap_steps {sync.overlap_steps}: one exchange at a time, one every {steps} steps; at most {steps - 1}"


def _unsupported_layout(sync: Sync, island: Plan) -> Iterator[str]:
    """Properties of the layout of all islands; that of the first is told."""
    config, method, layers = island.config, METHODS[sync.strategy], island.workload.model.layers
    if island.workload.adapter is not None:
        yield f"adapter of rank {island.workload.adapter.r}: torchft was tried with whole models alone; all weights trained"
    if torchtitan_models.family(island.workload.model).name != "llama3":
        yield f"model {island.workload.model.name}: torchft was tried with llama3 alone; a dense model without qk_norm"
    if island.workload.precision not in ("bf16", "fp32"):
        yield f"precision {island.workload.precision}: torchft was not tried with products in 8 bits; bf16"
    if config.dp > _sharded(config):
        yield f"zero_stage {config.zero_stage} with dp {config.dp}: an island has no replicas; ZeRO 1 or 3 over all of dp"
    if method and config.vpp > 1:
        yield f"vpp {config.vpp}: local steps exchange the first model part of a rank only; vpp 1"
    if sync.fragments > 1 and config.pp > 1:
        yield f"fragments {sync.fragments} with pp {config.pp}: fragments are cut from a whole model; pp 1, or one fragment"
    if sync.fragments > layers + 2:
        yield f"fragments {sync.fragments}: each has a layer, the embedding or the head; at most {layers + 2}"
    if method is None and config.pp == 1 and config.num_microbatches[0] > 1:
        yield (
            f"strategy every-step with {config.num_microbatches[0]} microbatches and pp 1: gradients of each microbatch are "
            "exchanged; one microbatch, a pipeline, or diloco"
        )


def _sharded(config: ParallelConfig) -> int:
    """Data-parallel ranks that FSDP shards over."""
    return config.shards // config.cp if config.zero_stage else 1


def process_group(plan: IslandsPlan) -> str:
    """The library of the exchanges: NCCL for int8, and where it reaches the other islands by what it uses inside; else gloo."""
    return "nccl" if plan.sync.compression == "int8" or _is_reached(plan) else "gloo"


def _is_reached(plan: IslandsPlan) -> bool:
    """Whether NCCL reaches the other islands by the network that it uses inside an island."""
    kind, transport = common_transport(plan.fleet, tuple(device for island in plan.islands for device in island.placement))
    return transport == "intra_node" or (transport == "rdma" and all(kind in one for one in _opened(plan)))


def _needs_sockets(plan: IslandsPlan) -> bool:
    """Whether NCCL must be told to use sockets between islands, since it would take the devices that it uses inside."""
    return process_group(plan) == "nccl" and not _is_reached(plan) and any(_opened(plan))


def _opened(plan: IslandsPlan) -> Iterator[tuple[str, ...]]:
    """The RDMA types that NCCL may use on each host of the islands."""
    for island in plan.islands:
        found = Environments(island)
        yield from (found.open_kinds(host) for host in hosts.of_plan(island))


def launch(plan: IslandsPlan, files_of: Callable[[Plan], dict[str, File]]) -> Launch:
    """The lighthouse's script, and a folder for every island: `files_of` it (the config function of its plan), the config
    function of the island, and torchrun's files."""
    first = hosts.of_plan(plan.islands[0])[0].name
    found = {LIGHTHOUSE: File(_lighthouse(plan, first), f"starts the lighthouse, on {first}", executable=True)}
    for index, island in enumerate(plan.islands):
        setup = torch_launch.IMPORTABLE + (
            f'export TORCHFT_LIGHTHOUSE="${{TORCHFT_LIGHTHOUSE:-http://{first}:{PORT}}}"\n'
            f'export MASTER_PORT="${{MASTER_PORT:-{FIRST_MASTER + index}}}"\n'
        )
        seconds = str(patience(plan))
        waits = {"TORCHFT_TIMEOUT_SEC": seconds, "TORCHFT_QUORUM_TIMEOUT_SEC": seconds}
        entry = f'-m torchtitan.train --module {MODULE.removesuffix(".py")} --config island "$@"'
        text = torchft_module.text(plan, index, settings(plan, index), patience(plan), _needs_sockets(plan))
        own = files_of(island) | {MODULE: File(text, "the config function of the island")}
        own |= torch_launch.files(island, entry, waits, setup)
        found |= {f"island{index}/{name}": file for name, file in own.items()}
    how = HOW.format(
        host=first, port=PORT, master=FIRST_MASTER, count=len(plan.islands), steps=10 * max(plan.sync.inner_steps, 100)
    )
    return Launch(found, how, tuple(_assumed(plan)))


def patience(plan: IslandsPlan) -> int:
    """Seconds after which torchft gives up an exchange: ten times what exchanges and waiting are predicted to take."""
    if plan.prediction is None:
        return UNKNOWN
    return max(PATIENCE, round(10 * (plan.prediction.exchange_s + max(plan.prediction.waiting_s))))


def _lighthouse(plan: IslandsPlan, host: str) -> str:
    return (
        "#!/usr/bin/env bash\n"
        f"# on {host}, before the islands\n"
        "set -euo pipefail\n"
        f'exec torchft_lighthouse --bind "[::]:{PORT}" --min_replicas {len(plan.islands)} --quorum_tick_ms 100 '
        f'--join_timeout_ms {1000 * patience(plan)} "$@"\n'
    )


def settings(plan: IslandsPlan, index: int) -> dict[str, object]:
    """Fields of FaultTolerance for an island."""
    sync, count = plan.sync, len(plan.islands)
    found: dict[str, object] = {"enable": True, "replica_id": index, "group_size": count, "min_replica_size": count}
    found |= {"process_group": process_group(plan), "process_group_timeout_ms": 1000 * patience(plan)}
    method = METHODS[sync.strategy]
    if method is None:
        return found
    found |= {"semi_sync_method": method, "sync_steps": sync.inner_steps}
    if method == "local_sgd":
        return found
    found |= {"should_quantize": sync.compression == "int8", "num_fragments": sync.fragments}
    return found | {"fragment_sync_delay": sync.overlap_steps, "fragment_update_alpha": ALPHA if sync.overlap_steps else 0.0}


def _assumed(plan: IslandsPlan) -> Iterator[str]:
    sync = plan.sync
    yield "Tokenizer, data, optimizer, learning rate and steps are those of torchtitan's llama3_8b; islands read unlike data."
    yield "Hosts of all islands reach each other on any port by the names that `hostname` says on them (torchft's managers)."
    yield "Checkpoints are on, as torchft needs them to bring islands to one state; their time is not in the prediction."
    yield "The loss is not chunked, as FaultTolerantTrainer cannot: all logits of a microbatch are in memory."
    if METHODS[sync.strategy]:
        yield "At the first exchange torchft copies the state of one island to the others: their steps before it are lost."
    if METHODS[sync.strategy] == "diloco":
        yield "The weights of the last exchange are in pinned memory of the hosts, the outer momentum on the devices."
    if process_group(plan) == "gloo":
        yield "Exchanges between islands go over gloo: TCP on GLOO_SOCKET_IFNAME, through the memory of the hosts."
    if sync.compression == "int8":
        yield "Devices of compute capability 9 and later send float8 in place of int8: as many bytes, rounded otherwise."
