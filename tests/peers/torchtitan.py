"""torchtitan: read by torchtitan and torch themselves, on a machine without a GPU.

- The configuration: the words behind `-m torchtitan.train` of a host's script, through torchtitan's ConfigManager.
- `world_size`: ranks of all torchrun lines; ParallelDims rejects degrees whose product is another.
- `groups`: those of every rank in the meshes of ParallelDims.build_mesh on torch's fake process group (dp is its axis `batch`).
- `layers`, `first_layers`: what the model's pipelining_fn leaves of it in every stage: it splits the model, built on the meta
  device, divides it by tensor and context parallelism, recomputes, and shards it by FSDP.
- `microbatches`, `microbatch_size`, `global_batch_size`: as Trainer.__init__ divides them.

- `parameters`: those of the model, built on the meta device, without biases and norms that the plan's model does not have.

Seen, not returned: ranks that share weights, windows, groups of experts and chosen experts of every layer are the plan's; every
module of the model is in one stage; the schedule that pipelining_fn builds loads the CSV, validates it, and torch's simulator
runs it to its end. DeepEP is not there: an object that does nothing stands for it.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {name: version(name) for name in ("torch", "torchao", "torchtitan")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What the configuration of a folder makes of torchtitan."""
    import torch

    _on_any_device()
    sys.modules.setdefault("deep_ep", MagicMock(__version__="2.0.0"))
    lines = [_words(script) for script in sorted((folder / "launch").glob("*.sh"))]
    world = sum(int(_option(line, "--nproc-per-node")) for line in lines)
    config = _config(folder, lines[0][lines[0].index("torchtitan.train") + 1 :])
    config.model_spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = config.model_spec.model.build()
    shape = plan["workload"]["model"]
    _layers(config.model_spec.model, shape)
    _precision(config, model, plan["workload"]["precision"])
    groups = _groups(config, world, plan["config"].get("zero_shard_size"))
    found: dict[str, Any] = {"world_size": world, "parameters": _parameters(model, shape), "groups": groups}
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
    from torchtitan.components.quantization import float8, mx, nvfp4

    float8.has_cuda_capability = mx.has_cuda_capability = nvfp4.has_cuda_capability = lambda *_: True


def _precision(config: Any, model: Any, precision: str) -> None:
    """See that the products of all layers, and no others, are in the precision, in layers that are compiled then."""
    from torchtitan.components.quantization import Float8Linear, MXFP8Linear, NVFP4Linear
    from torchtitan.models.common.linear import Linear
    from torchtitan.models.common.moe import GroupedExperts

    kinds, left_out = {"fp8": Float8Linear, "mxfp8": MXFP8Linear, "nvfp4": NVFP4Linear}, ("router.gate", "eh_proj")
    products = {
        name: kind
        for name, kind in ((name, type(one)) for name, one in model.named_modules())
        if issubclass(kind, (Linear, *kinds.values()))
    }
    in_layers = {name for name in products if "layers." in name and not name.endswith(left_out)}
    assert {name for name, kind in products.items() if kind in kinds.values()} == (in_layers if precision in kinds else set())
    assert all(issubclass(products[name], kinds.get(precision, Linear)) for name in in_layers), products
    grouped = {type(one).__name__ for one in model.modules() if isinstance(one, GroupedExperts)}
    assert all(name.startswith({"fp8": "Float8", "mxfp8": "MXFP8"}.get(precision, "G")) for name in grouped), grouped
    assert (config.compile.enable and "model" in config.compile.components) or precision not in kinds
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
    """torch.distributed as one rank of many sees it, without any other, and without the meshes of a rank before it."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def __enter__(self) -> None:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self.hook = sys.excepthook  # every new group would wrap it once more
        dist.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=self.world)

    def __exit__(self, *_: object) -> None:
        import torch.distributed as dist
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        dist.destroy_process_group()
        _clear_sharding_prop_cache()
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
                types = config.parallelism.spmd_backend == "spmd_types"
                sharing = dims.get_activated_mesh(["dp_shard", "cp"]) if types else dims.get_mesh("fsdp")
                shards = sorted(sharing.mesh.flatten().tolist())
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
    counts = [len(stage) for stage in order]
    return {"layers": counts, "first_layers": [sum(counts[:at]) for at in range(len(counts))]}


def _simulate(schedule: Any) -> None:
    """Simulate what torch keeps as data of a schedule: computation and messages. It raises where they would wait for ever.

    Its simulator knows no pairs, whose passes its runtime runs one after the other."""
    from torch.distributed.pipelining import schedules

    by_rank = getattr(schedule, "pipeline_order_with_comms", None)
    if by_rank is not None:
        sharding = (schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD)
        each = {pp_rank: [act for one in row for act in one.sub_actions or (one,)] for pp_rank, row in by_rank.items()}
        kept = {pp_rank: [act for act in row if act.computation_type not in sharding] for pp_rank, row in each.items()}
        schedules._simulate_comms_compute(kept, lambda stage: schedule.stage_index_to_group_rank[stage], schedule._num_stages)


def _layers(config: Any, model: dict[str, Any]) -> None:
    """See that every layer has the window, the experts and the groups of experts that a layer of the plan has."""
    window, every, full = (model.get(key, usual) for key, usual in _WINDOWS.items())
    for at, layer in enumerate(config.layers):
        inside = window and at % every == 0 and (not full or (at + 1) % full)
        assert _window(layer.attention) == (window if inside else 0), (at, layer.attention)
        routed = model.get("experts", 0) and at >= model.get("dense_layers", 0)
        routed = routed and (at + 1) % model.get("moe_layer_step", 1) == 0
        assert bool(layer.moe) == bool(routed) and bool(layer.feed_forward) != bool(routed), at
        if routed:
            router, groups = layer.moe.router, (model.get("n_group", 1), model.get("topk_group", 1))
            assert (router.num_experts, router.top_k) == (model["experts"], model["experts_per_token"])
            assert (router.num_expert_groups or 1, router.num_limited_groups or 1) == groups
            assert layer.moe.routed_experts.token_dispatcher.num_experts == model["experts"]
    assert len(getattr(config, "mtp_layers", ())) == model.get("mtp_layers", 0)


_WINDOWS = {"sliding_window": 0, "sliding_window_every": 1, "full_attention_every": 0}


def _window(attention: Any) -> int:
    """Tokens that a layer's attention sees, itself included; 0: all."""
    if hasattr(attention, "sliding_window_size"):
        return attention.sliding_window_size or 0
    left, right = getattr(attention.inner_attention, "window_size", (-1, 0))
    assert right == 0
    return int(left) + 1


def _parameters(built: Any, model: dict[str, Any]) -> int:
    """Parameters of a model without what the plan's model does not have: biases, and norms of queries and keys of which it says
    nothing."""
    norms = ("q_norm.weight", "k_norm.weight") if model.get("attention") != "mla" and not model.get("qk_norm") else ()
    return sum(
        weight.numel()
        for name, weight in built.named_parameters()
        if not name.endswith((".bias", "bias_EG", "bias_ED", *norms))
    )
