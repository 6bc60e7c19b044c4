"""Holmes: read by its own code, a checkout of zhejianglab/Holmes at the path in HOLMES_CHECKOUT.

Its parser and checks (megatron/training/arguments.py) read the arguments of every device type; HeteroContext sorts the ranks by
types and hosts; initialize_model_parallel asks for the groups through hetnet.py, which reads config.json;
_get_layer_info of the legacy models, or get_num_layers_to_build of the others, says the layers of every pipeline rank; its
calculator the microbatches. No group is built and nothing goes to a device; Transformer Engine and Apex are not needed and
stand empty.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
import types
import unittest.mock
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

if "HOLMES_CHECKOUT" not in os.environ:
    sys.exit("HOLMES_CHECKOUT is to name a checkout of zhejianglab/Holmes")
sys.path.append(str(Path(__file__).parent))
import launching

sys.path.pop()  # this folder has files of the programs' own names

CHECKOUT = Path(os.environ["HOLMES_CHECKOUT"]).resolve()
THEIRS = "--train-iters 10 --lr 1e-4 --mock-data --tokenizer-type NullTokenizer --vocab-size 1000"
KINDS = {"tp": "tp", "pp": "pp", "dp": "dp"}

os.environ |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
sys.path.insert(0, str(CHECKOUT))
launching.WithoutThem("transformer_engine", "apex", "amp_C")
known = importlib.metadata.version
with unittest.mock.patch("importlib.metadata.version", lambda name: "1.0" if name == "transformer-engine" else known(name)):
    os.chdir(CHECKOUT)
    importlib.import_module("megatron.training")  # first: its legacy models import it while it imports them
    from megatron.core import hetnet, parallel_state
    from megatron.core.transformer import transformer_block
    from megatron.legacy.model import transformer
    from megatron.training import arguments, global_vars, hetero_context, microbatches


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"zhejianglab/Holmes": os.environ.get("HOLMES_COMMIT", "dadcc08"), "torch": known("torch")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Everything that Holmes decides by its arguments and by config.json."""
    folder = folder.resolve()
    hosts = launching.hosts(folder, "pretrain_gpt.py")
    world, types_of = len(hosts), {host: of_host(folder / "env" / f"{host}.env") for host in set(hosts.values())}
    for host in types_of:
        own = sorted(int(rank) for rank in hosts if hosts[rank] == host)
        assert [rank % len(own) for rank in own] == list(range(len(own))), "the local rank is the rank modulo devices"
    words = (folder / "holmes.args").read_text().split()
    for _, options in launching.scripts(folder):
        assert options.training_script_args[1:] == [
            "${arguments[@]}",
            "--hetero-current-device-type",
            "$HETERO_DEVICE_TYPE",
            "$@",
        ]
    parsed = [parse(words, device_type, world) for device_type in sorted(set(types_of.values()))]
    args = parsed[0]
    infos = [{"rank": rank, "device_type": types_of[hosts[str(rank)]]} for rank in range(world)]
    groups = groups_of(folder, args, infos)
    return {
        "world_size": world,
        "hosts": hosts,
        "groups": groups,
        "layers": [layers_of(args, pp_rank) for pp_rank in range(args.pipeline_model_parallel_size)],
        "microbatches": microbatches.build_num_microbatches_calculator(args).get(),
        "microbatch_size": args.micro_batch_size,
        "global_batch_size": args.global_batch_size,
    }


def of_host(path: Path) -> str:
    """The device type of a host, as a shell has it."""
    command = f'source "{path}" && test -n "$NCCL_SOCKET_IFNAME" && printf %s "$HETERO_DEVICE_TYPE"'
    return subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True).stdout


def parse(words: list[str], device_type: str, world: int) -> Any:
    os.environ["WORLD_SIZE"] = str(world)
    with unittest.mock.patch.object(sys, "argv", ["x", *words, "--hetero-current-device-type", device_type, *THEIRS.split()]):
        return arguments.validate_args(arguments.parse_args())


def groups_of(folder: Path, args: Any, infos: list[dict[str, Any]]) -> dict[str, list[list[int]]]:
    """Groups by kind; raises where a type's settings, or the shim, give one another network than the plan."""
    requested: list[tuple[str, tuple[int, ...], str | None]] = []
    switched: list[str] = []

    def new_group(ranks: Any, backend: Any = None, pg_options: Any = None, **_: Any) -> object:
        if backend != "gloo":
            requested.append((pg_options, tuple(ranks), switched.pop() if switched else None))
        return object()

    def gather(found: list[Any], _: Any) -> None:
        found[:] = infos

    for module in (parallel_state,):
        importlib.reload(module)
    os.chdir(folder)
    settings = runpy.run_path(str(CHECKOUT / "tools" / "config.py"))["nccl_config"]
    true = hetnet.set_nccl_envs
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=len(infos))
    os.environ["NCCL_SOCKET_IFNAME"] = "as the host's file has it"

    def switch(name: str) -> None:
        true(name)
        assert os.environ["NCCL_SOCKET_IFNAME"].startswith("=")
        assert "NCCL_NET" not in settings[name]
        switched.append(name)

    patches = [
        unittest.mock.patch.object(dist, "new_group", new_group),
        unittest.mock.patch.object(dist, "all_gather_object", gather),
        unittest.mock.patch.object(dist, "barrier", lambda *_, **__: None),
        unittest.mock.patch.object(dist, "get_rank", lambda group=None: 0),
        unittest.mock.patch.object(hetnet, "nccl_config", settings),
        unittest.mock.patch.object(hetnet, "set_nccl_envs", switch),
        unittest.mock.patch.object(hetnet, "init_nccl_net", lambda group: None),
        unittest.mock.patch.object(parallel_state, "get_nccl_options", lambda name, _: name),
    ]
    try:
        for patch in patches:
            patch.start()
        context = hetero_context.HeteroContext(args)
        global_vars._GLOBAL_HETERO_CONTEXT = context
        parallel_state.initialize_model_parallel(
            args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size,
            context_parallel_size=args.context_parallel_size, expert_model_parallel_size=args.expert_model_parallel_size,
            hetero_mode=args.hetero_mode, use_hetnex=args.use_hetnet,
        )  # fmt: skip
    finally:
        for patch in patches:
            patch.stop()
        dist.destroy_process_group()
    assert context.to_physical_ranks(range(len(infos))) == list(range(len(infos))), "its ranks are the plan's"
    shim, table = launching.load(folder / "holmes_launch.py"), json.loads((folder / "ranks.json").read_text())
    for kind, ranks, device_type in requested:
        if device_type is not None and len(ranks) > 1:
            network = shim.network(table, list(ranks))
            assert (device_type != "heter") or network in ("Socket", None), f"{kind} {ranks}: {network}"
            rdma = "NCCL_IB_HCA" in settings[device_type]
            assert device_type == "heter" or network is None or rdma == (network == "IB"), f"{kind} {ranks}: {network}"
    meant = {"tcp": ("Socket",), "rdma": ("IB", None)}
    found: dict[str, list[list[int]]] = {
        kind: sorted(list(ranks) for name, ranks, _ in requested if name == kind and len(ranks) > 1) for kind in KINDS
    }
    for group in plan_groups(folder):
        network = shim.network(table, group["ranks"])
        assert network in meant.get(group["transport"], (network,)), f"{group} has network {network}"
    return found


def plan_groups(folder: Path) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = json.loads((folder / "plan.json").read_text())["groups"]
    return groups


def layers_of(args: Any, pp_rank: int) -> int:
    """Layers of a pipeline rank: its legacy models follow the arguments, the others do not."""
    parallel_state = types.SimpleNamespace(
        get_pipeline_model_parallel_rank=lambda: pp_rank,
        get_pipeline_model_parallel_world_size=lambda: args.pipeline_model_parallel_size,
        get_virtual_pipeline_model_parallel_world_size=lambda: None,
    )
    if args.use_mcore_models:
        with unittest.mock.patch.object(transformer_block, "parallel_state", parallel_state):
            config = types.SimpleNamespace(
                num_layers=args.num_layers, pipeline_model_parallel_size=args.pipeline_model_parallel_size
            )
            return int(transformer_block.get_num_layers_to_build(config))
    with (
        unittest.mock.patch.object(transformer, "mpu", parallel_state),
        unittest.mock.patch.object(dist, "barrier", lambda: None),
        unittest.mock.patch.object(dist, "get_world_size", lambda: 0),
    ):
        return int(transformer._get_layer_info(args)[1])
