"""DeepSpeed: read by DeepSpeed itself, on a machine without a GPU.

- `hosts`: the hostfile, through fetch_hostfile; ranks as its launcher numbers them, and then as the folder's own
  holmes_launch.py takes their place. `world_size`: all of them.
- `groups`: lists of PipeModelDataParallelTopology for the axes of the generated module (model is tp, pipe pp, data dp).
- `layers`, `first_layers`: the bounds that the generated PipelineModule takes at every stage, on torch's fake process group,
  built of one little layer for each of the plan's.
- `microbatches`, `microbatch_size`, `global_batch_size`: DeepSpeedConfig, which sees that they fit the ranks of data.

Seen, not returned: the order of computation of TrainSchedule is 1F1B's, and the send of a forward follows the next receive of a
gradient; with recompute full every layer, and neither embedding nor head, is one that DeepSpeed recomputes.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"torch": version("torch"), "deepspeed": version("deepspeed")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What DeepSpeed makes of a folder."""
    from deepspeed.runtime.config import DeepSpeedConfig

    hosts = _hosts(folder)
    world = len(hosts)
    found: dict[str, Any] = {"world_size": world, "hosts": hosts}
    for rank in range(0, world, world // plan["config"]["pp"]):
        with _Fake(folder, rank, world) as module:
            if rank == 0:
                topology = module["topology"]()
                axes = {"tp": "model", "pp": "pipe", "dp": "data"}
                wide = {kind: axis for kind, axis in axes.items() if topology.get_dim(axis) > 1}
                found["groups"] = {kind: [] for kind in axes} | {
                    kind: sorted(map(sorted, topology.get_axis_comm_lists(axis))) for kind, axis in wide.items()
                }
                config = DeepSpeedConfig(module["CONFIG"], mpu=_Data(topology.get_dim("data")))
                found["microbatches"] = config.gradient_accumulation_steps
                found["microbatch_size"] = config.train_micro_batch_size_per_gpu
                found["global_batch_size"] = config.train_batch_size
                _schedule(config.gradient_accumulation_steps, plan["config"]["pp"])
            if "Pipeline" in module:
                first, past = _bounds(module, plan["config"].get("recompute", "none") == "full")
                found.setdefault("first_layers", []).append(first)
                found.setdefault("layers", []).append(past - first)
    return found


def _hosts(folder: Path) -> dict[str, str]:
    """Host of every rank: DeepSpeed's launcher counts through the hostfile, the shim gives each process its own rank."""
    from deepspeed.launcher.runner import fetch_hostfile

    pool = fetch_hostfile(str(folder / "hostfile"))
    shim = runpy.run_path(str(folder / "holmes_launch.py"))
    table = json.loads((folder / "ranks.json").read_text())
    found, counted = {}, 0
    for host, slots in pool.items():
        for rank in range(counted, counted + slots):
            given = {"RANK": str(rank), "LOCAL_RANK": str(rank % slots), "WORLD_SIZE": str(sum(pool.values()))}
            found[shim["seat_of"](table, shim["host_of"](table, given, host), given)["RANK"]] = host
        counted += slots
    return found


class _Data:
    """What DeepSpeedConfig asks of an mpu."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_data_parallel_world_size(self) -> int:
        return self.size


class _Fake:
    """torch.distributed as one rank of many sees it, without any other; gives the names of the generated module."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.folder, self.rank, self.world = folder, rank, world

    def __enter__(self) -> dict[str, Any]:
        import deepspeed
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # compiles what nothing here calls
        os.environ["LOCAL_RANK"] = "0"
        self.hook = sys.excepthook
        dist.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=self.world)
        deepspeed.init_distributed()
        return runpy.run_path(str(self.folder / "holmes_plan.py"))

    def __exit__(self, *_: object) -> None:
        import torch.distributed as dist
        from deepspeed import comm

        dist.destroy_process_group()
        comm.comm.cdb = None
        sys.excepthook = self.hook


def _bounds(module: dict[str, Any], recomputes: bool) -> tuple[int, int]:
    """[first, past last) of the transformer layers that this stage holds."""
    import torch
    from deepspeed.pipe import LayerSpec

    class Embedding(torch.nn.Linear):
        pass

    class Head(torch.nn.Linear):
        pass

    count = module["PARTS"][-1]
    specs = [LayerSpec(Embedding, 1, 1), *[LayerSpec(torch.nn.Linear, 1, 1) for _ in range(count - 2)], LayerSpec(Head, 1, 1)]
    made = module["Pipeline"](specs)
    made._precompute_checkpointable_values()
    linear = [type(layer) is torch.nn.Linear for layer in made.forward_funcs]
    assert made.is_checkpointable_results == (linear if recomputes else []), made.is_checkpointable_results
    assert made.partitions()[0] == 0 and made.partitions()[-1] == count and linear
    return max(made._local_start - 1, 0), min(made._local_stop - 1, count - 2)


def _schedule(microbatches: int, stages: int) -> None:
    """That TrainSchedule is 1F1B whose forward leaves behind the next gradient's receive."""
    from deepspeed.runtime.pipe import schedule

    for stage in range(stages if stages > 1 else 0):
        steps = list(schedule.TrainSchedule(micro_batches=microbatches, stages=stages, stage_id=stage).steps())
        kinds = {schedule.ForwardPass: "F", schedule.BackwardPass: "B"}
        sequence = "".join(kinds[type(word)] for step in steps for word in step if type(word) in kinds)
        ahead = min(stages - stage - 1, microbatches)
        assert sequence == "F" * ahead + "FB" * (microbatches - ahead) + "B" * ahead, sequence
        for names in ([type(word).__name__ for word in step] for step in steps):
            if "RecvGrad" in names and "SendActivation" in names:
                assert names.index("RecvGrad") < names.index("SendActivation"), names
