"""torchtitan: read by torchtitan and torch themselves, on a machine without a GPU.

- The configuration: the words behind `-m torchtitan.train` of a host's script, through torchtitan's ConfigManager.
- `world_size`: ranks of all torchrun lines; ParallelDims rejects degrees whose product is another.
- `groups`: those of every rank in the meshes of ParallelDims.build_mesh on torch's fake process group (dp is its axis `batch`).
- `layers`, `first_layers`: what the model's pipelining_fn leaves of it in every stage: it splits the model, built on the meta
  device, divides it by tensor and context parallelism, recomputes, and shards it by FSDP.
- `microbatches`, `microbatch_size`, `global_batch_size`: as Trainer.__init__ divides them.

Seen, not returned: parameters of the model and ranks that share weights are the plan's; every module of the model is in one
stage; the schedule that pipelining_fn builds loads the CSV, validates it, and torch's simulator runs it to its end.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {name: version(name) for name in ("torch", "torchao", "torchtitan")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What the configuration of a folder makes of torchtitan."""
    import torch

    _on_any_device()
    lines = [_words(script) for script in sorted((folder / "launch").glob("*.sh"))]
    world = sum(int(_option(line, "--nproc-per-node")) for line in lines)
    config = _config(folder, lines[0][lines[0].index("torchtitan.train") + 1 :])
    config.model_spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = config.model_spec.model.build()
    shape = plan["workload"]["model"]
    assert sum(weight.numel() for weight in model.parameters()) == _parameters(shape), shape
    _precision(config, model, plan["workload"]["precision"])
    found: dict[str, Any] = {"world_size": world, "groups": _groups(config, world, plan["config"].get("zero_shard_size"))}
    training, parallelism = config.training, config.parallelism
    pipelined = parallelism.pipeline_parallel_degree > 1
    size = parallelism.pipeline_parallel_microbatch_size if pipelined else training.local_batch_size
    batch = parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree
    assert training.local_batch_size % size == 0 and training.global_batch_size % (training.local_batch_size * batch) == 0
    found["microbatch_size"], found["global_batch_size"] = size, training.global_batch_size
    found["microbatches"] = training.global_batch_size // batch // size
    if pipelined:
        return found | _pipeline(config, model, world)
    with _Fake(0, world):
        divided = config.model_spec.parallelize_fn(model, **_how(config, world))
    return found | {"layers": [len(divided.layers)], "first_layers": [0]}


def _on_any_device() -> None:
    """Have converters of precisions believe that they are on their devices."""
    from torchtitan.components.quantization import float8, mx

    float8.has_cuda_capability = mx.has_cuda_capability = lambda *_: True


def _precision(config: Any, model: Any, precision: str) -> None:
    """See that the products of all layers, and no others, are in the precision, in layers that are compiled then."""
    from torchtitan.components.quantization import Float8Linear, MXFP8Linear
    from torchtitan.models.common.linear import Linear

    kinds = {"fp8": Float8Linear, "mxfp8": MXFP8Linear}
    products = {
        name: kind
        for name, kind in ((name, type(one)) for name, one in model.named_modules())
        if issubclass(kind, (Linear, *kinds.values()))
    }
    in_layers = {name for name in products if name.startswith("layers.")}
    assert {name for name, kind in products.items() if kind in kinds.values()} == (in_layers if precision in kinds else set())
    assert {products[name] for name in in_layers} == {kinds.get(precision, Linear)}, products
    assert config.compile.enable or precision not in kinds
    assert config.training.mixed_precision_param == ("float32" if precision == "fp32" else "bfloat16")


def _words(script: Path) -> list[str]:
    return shlex.split(script.read_text().splitlines()[-1])


def _option(words: list[str], name: str) -> str:
    return next(word.split("=", 1)[1] for word in words if word.startswith(f"{name}="))


def _config(folder: Path, words: list[str]) -> Any:
    from torchtitan.config import ConfigManager

    sys.path.insert(0, str(folder))
    sys.modules.pop("holmes_plan", None)
    try:
        return ConfigManager().parse_args([word for word in words if word != "$@"])
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("holmes_plan", None)


class _Fake:
    """torch.distributed as one rank of many sees it, without any other."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def __enter__(self) -> None:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self.hook = sys.excepthook  # every new group would wrap it once more
        dist.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=self.world)

    def __exit__(self, *_: object) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()
        sys.excepthook = self.hook


def _dims(config: Any, world: int) -> Any:
    from torchtitan.distributed import ParallelDims, parallel_dims, utils

    parallel_dims.device_type = "cpu"
    utils.set_spmd_backend(config.parallelism.spmd_backend)
    dims = ParallelDims.from_config(config.parallelism, world)
    dims.build_mesh()
    return dims


def _how(config: Any, world: int) -> dict[str, Any]:
    """What Trainer.__init__ gives to parallelize_fn."""
    return {
        "parallel_dims": _dims(config, world), "training": config.training, "parallelism": config.parallelism,
        "compile_config": config.compile, "ac_config": config.activation_checkpoint, "dump_folder": config.dump_folder,
    }  # fmt: skip


def _groups(config: Any, world: int, shared_by: int | None) -> dict[str, list[list[int]]]:
    import torch.distributed as dist

    axes = {"tp": "tp", "pp": "pp", "dp": "batch", "cp": "cp", "ep": "ep"}
    seen: dict[str, set[tuple[int, ...]]] = {kind: set() for kind in axes}
    for rank in range(world):
        with _Fake(rank, world):
            dims = _dims(config, world)
            for kind, axis in axes.items():
                mesh = dims._single_axis_meshes[axis]
                if mesh.size() > 1:
                    seen[kind].add(tuple(sorted(dist.get_process_group_ranks(mesh.get_group()))))
            if shared_by is not None:
                shards = sorted(dist.get_process_group_ranks(dims.get_mesh("fsdp").get_group()))
                assert len(shards) == shared_by and shards == list(range(shards[0], shards[-1] + 1, dims.tp)), shards
    return {kind: sorted(map(list, ranks)) for kind, ranks in seen.items()}


def _pipeline(config: Any, model: Any, world: int) -> dict[str, Any]:
    """Stages and schedule of every pipeline rank: pipeline rank r is that of rank r x (world / pp)."""
    import torch

    pp = config.parallelism.pipeline_parallel_degree
    layers: dict[int, list[int]] = {}
    kept: list[str] = []
    for pp_rank in range(pp):
        with _Fake(pp_rank * world // pp, world):
            schedule, *_ = config.model_spec.pipelining_fn(
                model, device=torch.device("meta"), model_config=config.model_spec.model, loss_fn=print,
                parallelize_fn=config.model_spec.parallelize_fn, **_how(config, world),
            )  # fmt: skip
            assert "arg_mbs" in inspect.signature(schedule.step).parameters, "the trainer steps a pipeline by arg_mbs"
            for stage in getattr(schedule, "_stages", None) or [schedule._stage]:
                chunk = stage.submod
                layers[stage.stage_index] = sorted(map(int, chunk.layers))
                kept += [name for name in ("tok_embeddings", "norm", "lm_head") if getattr(chunk, name) is not None]
                assert stage.is_first == (chunk.tok_embeddings is not None) and stage.is_last == (chunk.lm_head is not None)
            _simulate(schedule)
    order = [layers[stage] for stage in sorted(layers)]
    assert sorted(kept) == ["lm_head", "norm", "tok_embeddings"], kept
    assert [layer for stage in order for layer in stage] == list(range(len(model.layers))), order
    return {"layers": [len(stage) for stage in order], "first_layers": [stage[0] for stage in order]}


def _simulate(schedule: Any) -> None:
    """Simulate what torch keeps as data of a schedule: computation and messages. It raises where they would wait for ever."""
    from torch.distributed.pipelining import schedules

    by_rank = getattr(schedule, "pipeline_order_with_comms", None)
    if by_rank is not None:
        sharding = (schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD)
        kept = {pp_rank: [act for act in row if act.computation_type not in sharding] for pp_rank, row in by_rank.items()}
        schedules._simulate_comms_compute(kept, lambda stage: schedule.stage_index_to_group_rank[stage], schedule._num_stages)


def _parameters(model: dict[str, Any]) -> int:
    """Of a Llama or a Qwen3: attention, gated MLP or experts with a router, and norms of a layer; embedding, norm, head."""
    hidden, heads = model["hidden"], model["heads"]
    width = model.get("head_dim") or hidden // heads
    attention = hidden * (2 * heads + 2 * model["kv_heads"]) * width
    experts = model.get("experts", 0)
    qwen = experts or model.get("qk_norm") or width * heads != hidden
    norms = 2 * hidden + (2 * width if qwen and model.get("qk_norm", True) else 0)
    layer = attention + 3 * hidden * model["ffn_hidden"] * max(experts, 1) + hidden * experts + norms
    ends = 1 if model["tied_embeddings"] else 2
    return int(model["layers"] * layer + ends * model["vocab"] * hidden + hidden)
