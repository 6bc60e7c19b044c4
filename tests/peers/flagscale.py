"""FlagScale: read by its own code, a checkout of flagos-ai/FlagScale at the path in FLAGSCALE_CHECKOUT, with the Megatron-LM
that its installation patches in third_party/Megatron-LM (NVIDIA/Megatron-LM at the submodule's commit, and all patches of
flagscale/backends/Megatron-LM).

Hydra composes the files as run.py does; SSHTrainRunner and run_node, in a dry run, write the script of every host, whose
torchrun line torch's own parser reads; the shim says each process's rank. RankMapper sorts ranks by the types of the hostfile,
pre_validate_args checks meshes and layers, ParallelContext asks for the groups with megatron-core's RankGenerator. Where there
are no meshes, its Megatron-LM parses and checks the arguments, and decides as in megatron.py; where there are, it parses them.
With meshes, both check the arguments of a rank of
each mesh. Under DualPipeV, its Megatron-LM says the layers of both stages of a rank.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import os
import re
import shlex
import sys
import tempfile
import unittest.mock
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from hydra import compose, initialize_config_dir
from torch.distributed.run import get_args_parser
from torch.testing._internal.distributed.fake_pg import FakeStore

if "FLAGSCALE_CHECKOUT" not in os.environ:
    sys.exit("FLAGSCALE_CHECKOUT is to name a checkout of flagos-ai/FlagScale")
sys.path.append(str(Path(__file__).parent))
import launching

sys.path.pop()  # this folder has files of the programs' own names

sys.path.insert(0, os.environ["FLAGSCALE_CHECKOUT"])
sys.path.insert(0, os.environ["FLAGSCALE_CHECKOUT"] + "/third_party/Megatron-LM")
import megatron.core
from flagscale.runner import runner_train
from flagscale.train import arguments
from flagscale.train.hetero import parallel_context
from megatron.training import arguments as megatron_arguments

reading = launching.load(Path(__file__).parent / "megatron.py")
logging.disable(logging.CRITICAL)
DEFAULTS = {
    "distributed_backend": "nccl", "distributed_timeout_minutes": 10, "enable_gloo_process_groups": True,
    "expert_tensor_parallel_size_per_process_mesh": None, "mtp_num_layers": None, "nccl_communicator_config_path": None,
    "num_distributed_optimizer_instances": 1, "num_layers_per_virtual_pipeline_stage": None, "sequence_parallel": False,
    "standalone_embedding_stage": False, "untie_embeddings_and_output_weights": False, "use_distributed_optimizer": False,
    "use_partial_reduce_for_shared_embedding": False, "use_tp_pp_dp_mapping": False, "expert_tensor_parallel_size": None,
    "expert_model_parallel_size": 1, "context_parallel_size": 1,
}  # fmt: skip
"""What its parser has where nothing is said (Megatron-LM's defaults)."""
LISTS = (
    "hetero_process_meshes", "hetero_pipeline_layer_split", "hetero_device_types",
    "expert_tensor_parallel_size_per_process_mesh", "recompute_modules",
)  # fmt: skip
THEIRS = ("--save-interval", "1000")
"""What the user says beside what `megatron.THEIRS` has."""
KINDS = {"tp": "tp", "pp": "pp", "dp": "dp", "exp_ep": "ep"}


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    named = {name: importlib.metadata.version(name) for name in ("hydra-core", "torch")}
    its_own = {"flagos-ai/FlagScale": os.environ.get("FLAGSCALE_COMMIT", "16a2dd5"), "megatron-core": megatron.core.__version__}
    return its_own | named


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Everything that FlagScale decides by the Hydra files and the hostfile."""
    folder = folder.resolve()
    with initialize_config_dir(str(folder / "conf"), version_base=None), tempfile.TemporaryDirectory() as name:
        said = [f"experiment.runner.hostfile={folder}/hostfile", f"experiment.task.entrypoint={folder}/entry.py"]
        config = compose("plan", [*said, f"experiment.exp_dir={name}"])
        hosts, types, words = run(config, folder)
    args = namespace(words)
    meant, fused = plan["config"].get("recompute_modules", []), plan["config"].get("attention", "flash") == "flash"
    assert getattr(args, "recompute_modules", []) == [name for name in meant if not (fused and name == "core_attn")]
    if "--enable-hetero" not in words:
        own = reading.parse([*words, *THEIRS], len(hosts), "8" if "--use-megatron-fsdp" in words else "1")
        flags = launching.by_name(words)
        if "--use-dualpipev" not in words:
            return reading.decided(folder, plan, hosts, flags)
        layers, first_layers = halves(own)
        stages = "|".join("t" * number for number in layers)
        found = reading.decided(folder, plan, hosts, flags | {"pipeline-model-parallel-layout": f"E{stages}L"})
        return found | {"layers": layers, "first_layers": first_layers}
    with unittest.mock.patch.object(sys, "argv", ["train_gpt.py", *words, *THEIRS, *reading.THEIRS.split()]):
        megatron_arguments.parse_args()
    infos = [{"rank": rank, "device_type": types[hosts[str(rank)]]} for rank in range(len(hosts))]
    validate([*words, *THEIRS, *reading.THEIRS.split()], infos, args.hetero_pipeline_layer_split)
    micro, whole = args.micro_batch_size, args.global_batch_size
    groups, layers, replicas = groups_of(args, infos)
    check_networks(folder)
    return {
        "world_size": len(hosts),
        "hosts": hosts,
        "groups": groups,
        "layers": layers,
        "microbatches": whole // (micro * replicas),
        "microbatch_size": micro,
        "global_batch_size": whole,
    }


def halves(config: Any) -> tuple[list[int], list[int]]:
    """Layers and first layer of every stage of DualPipeV: two stages a rank, along a V."""
    from megatron.core.transformer.transformer_block import get_num_layers_to_build
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    assert config.use_dualpipev and config.moe_fb_overlap and config.delay_wgrad_compute
    pp = config.pipeline_model_parallel_size
    where = [(pp_rank, True) for pp_rank in range(pp)] + [(pp_rank, False) for pp_rank in reversed(range(pp))]
    layers = [get_num_layers_to_build(config, None, pp_rank, first) for pp_rank, first in where]
    return layers, [get_transformer_layer_offset(config, None, pp_rank, first) for pp_rank, first in where]


def run(config: Any, folder: Path) -> tuple[dict[str, str], dict[str, str | None], list[str]]:
    """Host of every rank, type of every host (None without meshes), and the arguments, from the scripts that FlagScale writes
    for hosts."""
    with unittest.mock.patch.object(sys, "stdout", sys.stderr):
        runner = runner_train.SSHTrainRunner(config)
        options, count = config.experiment.runner, len(runner.resources)
        for node, (host, resources) in enumerate(runner.resources.items()):
            runner_train.run_node(
                runner._run_each, node, host, resources, runner.user_envs, options, count, "first", 1, False, True, False
            )  # fmt: skip
    shim, table = launching.load(folder / "holmes_launch.py"), json.loads((folder / "ranks.json").read_text())
    hosts: dict[str, str] = {}
    for node, host in enumerate(runner.resources):
        script = Path(config.train.system.logging.scripts_dir) / f"host_{node}_{host}_run.sh"
        found = re.search(r'^cmd="(.*)"$', script.read_text(), re.MULTILINE)
        assert found is not None
        command = shlex.split(found.group(1))
        start = command.index("torchrun")
        variables = dict(word.split("=", 1) for word in command[:start])
        torchrun = get_args_parser().parse_args(command[start + 1 :])
        assert torchrun.rdzv_backend == "static"
        assert torchrun.rdzv_endpoint == f"{next(iter(runner.resources))}:29500"
        assert torchrun.node_rank == node
        assert int(torchrun.nnodes) == len(runner.resources)
        assert torchrun.training_script == str(folder / "entry.py")
        sharded = "--use-megatron-fsdp" in torchrun.training_script_args  # validate_args of its Megatron-LM: any but 1
        assert variables["CUDA_DEVICE_MAX_CONNECTIONS"] == ("8" if sharded else "1")
        devices = next(value for name, value in variables.items() if name.endswith("_VISIBLE_DEVICES"))
        assert len(devices.split(",")) == int(torchrun.nproc_per_node)
        for local in range(int(torchrun.nproc_per_node)):
            rank = launching.rank_of(shim, table, host, local, int(torchrun.nproc_per_node), table["world_size"])
            hosts[rank] = host
        own = torchrun.training_script_args
        if "--enable-hetero" in own:
            assert own[own.index("--hetero-current-device-type") + 1] == runner.resources[host]["type"]
        else:
            assert "--hetero-current-device-type" not in own
    return hosts, {host: resources["type"] for host, resources in runner.resources.items()}, own


def namespace(words: list[str]) -> argparse.Namespace:
    """The arguments by name, numbers as numbers."""
    found: dict[str, Any] = dict(DEFAULTS)
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = [] if name in LISTS else True
        elif name in LISTS:
            found[name].append(int(word) if word.isdigit() else word)
        else:
            found[name] = int(word) if word.isdigit() else word
    return argparse.Namespace(**found)


def validate(words: list[str], infos: list[dict[str, Any]], split: list[int]) -> None:
    """The checks of FlagScale and of its Megatron-LM on the first rank of each mesh. Where layers differ, raises where a stage
    begins with another layer than the plan's."""
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    megatron_arguments.get_device_arch_version = lambda: 9
    torch.cuda.get_device_properties = lambda _: type("Properties", (), {"major": 9, "minor": 0})()
    firsts = {info["device_type"]: info["rank"] for info in reversed(infos)}
    begun = 0
    for device_type, rank in reversed(firsts.items()):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(infos)), "LOCAL_RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=len(infos))
        try:
            with (
                unittest.mock.patch.object(sys, "argv", ["train_gpt.py", *words]),
                unittest.mock.patch.object(dist, "all_gather_object", lambda found, own: found.__setitem__(slice(None), infos)),
            ):
                args = megatron_arguments.parse_args()
                args.hetero_current_device_type = device_type
                arguments.FSTrainArguments(args, parallel_context.RankMapper(args)).pre_validate_args()
                config = megatron_arguments.core_transformer_config_from_args(megatron_arguments.validate_args(args))
        finally:
            dist.destroy_process_group()
        assert config.mtp_num_layers is None
        for pp_rank in range(begun, begun + config.pipeline_model_parallel_size):
            offset = get_transformer_layer_offset(config, None, pp_rank)
            alike = isinstance(config.moe_layer_freq, int) and config.window_attn_skip_freq is None
            assert alike or offset == sum(split[:pp_rank]), f"stage {pp_rank} begins with layer {offset}"
        begun += config.pipeline_model_parallel_size


def groups_of(args: argparse.Namespace, infos: list[dict[str, Any]]) -> tuple[dict[str, list[list[int]]], list[int], int]:
    """Groups by kind, layers by pipeline rank, replicas."""
    requested: dict[str, set[tuple[int, ...]]] = {}

    def create(ranks: Any = None, backend: Any = None, group_desc: str = "", **_: Any) -> object:
        if backend != "gloo":
            requested.setdefault(group_desc, set()).add(tuple(ranks))
        return object()

    def gather(found: list[Any], own: dict[str, Any]) -> None:
        found[:] = infos if "device_type" in own else [own | {"rank": rank} for rank in range(len(infos))]

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=len(infos))
    try:
        with (
            unittest.mock.patch.object(dist, "all_gather_object", gather),
            unittest.mock.patch.object(parallel_context, "create_group", create),
            unittest.mock.patch.object(parallel_context.ParallelContext, "build_config", lambda self: None),
        ):
            mapper = parallel_context.RankMapper(args)
            assert mapper.to_physical_ranks(list(range(len(infos)))) == list(range(len(infos))), "its ranks are the plan's"
            checked = arguments.FSTrainArguments(args, mapper)
            checked.pre_validate_args()
            context = parallel_context.ParallelContext(args)
    finally:
        dist.destroy_process_group()
    assert sum(mesh[4] for mesh in args.hetero_process_meshes) == len(args.hetero_pipeline_layer_split)
    whole = set(map(tuple, context.get_global_all_group_ranks("pp")))
    found = {kind: sorted(list(ranks) for ranks in requested.get(name, ()) if len(ranks) > 1) for name, kind in KINDS.items()}
    found["pp"] = sorted(list(ranks) for ranks in whole if len(ranks) > 1)
    return found, args.hetero_pipeline_layer_split, args.hetero_process_meshes[0][3]


def check_networks(folder: Path) -> None:
    """Raises where the shim tells a group of the plan another network than the plan."""
    shim, table = launching.load(folder / "holmes_launch.py"), json.loads((folder / "ranks.json").read_text())
    meant = {"tcp": ("Socket",), "rdma": ("IB", None)}
    for group in json.loads((folder / "plan.json").read_text())["groups"]:
        network = shim.network(table, group["ranks"])
        assert network in meant.get(group["transport"], (network,)), f"{group} has network {network}"
