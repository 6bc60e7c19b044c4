"""Plans of small models, and the losses and weights of one process that trains the same model on the same data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from holmes_sim.torch_backend import local
from holmes_sim.torch_backend.adapters import AdaptedLayer, freeze
from holmes_sim.torch_backend.blocks import Embedding, Head, Layer
from holmes_sim.torch_backend.buckets import BETAS, LEARNING_RATE
from holmes_sim.torch_backend.experts import ExpertLayer
from holmes_sim.torch_backend.run_options import RunOptions
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from holmes_sim.torch_backend.training_worker import samples
from sim.formats import topology
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage

STEPS = 2
GRADIENTS_CLOSE = 1e-4
"""Largest difference of a mean of gradients, relative to the largest value in its tensor: weights differ by up to 1e-5."""
GPT = "{layers: 5, hidden: 32, heads: 4, kv_heads: 4, ffn_hidden: 96, vocab: 64, mlp: gelu, learned_positions: 16}"
LLAMA = "{layers: 5, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 48, vocab: 64, mlp: swiglu, tied_embeddings: false}"
TOPOLOGY = """
format: holmes-sim/topology/1
name: eight
clusters:
  a:
    nodes: 1
    node:
      devices: {{type: a100-sxm4-80gb, count: 8}}
      intra_node: nvlink3
      nics: [{{type: ethernet, bandwidth: 25 Gbit/s, count: 1}}]
workload: {{model: {model}, global_batch_size: {batch}, seq_len: 16, precision: {precision}}}
"""


def plan_of(
    folder: Path,
    layers: tuple[int, ...],
    microbatches: tuple[int, ...],
    model: str = GPT,
    precision: str = "fp32",
    **config: object,
) -> Plan:
    """A plan with these layers of its stages and microbatches of its replicas, its ranks in order on one node."""
    path = folder / "topology.yaml"
    size = int(config.get("microbatch_size", 1))  # type: ignore[call-overload]
    path.write_text(TOPOLOGY.format(model=model, batch=sum(microbatches) * size, precision=precision), encoding="utf-8")
    found = topology.load(path)
    assert found.workload is not None
    vpp = int(config.get("vpp", 1))  # type: ignore[call-overload]
    degrees = ParallelConfig(pp=len(layers) // vpp, dp=len(microbatches), num_microbatches=microbatches)
    chosen = dataclasses.replace(degrees, **config)  # type: ignore[arg-type]
    ends = [sum(layers[: index + 1]) for index in range(len(layers))]
    stages = tuple(Stage(end - count, end) for count, end in zip(layers, ends, strict=True))
    placement = tuple(Device("a", 0, index) for index in range(chosen.world_size))
    groups = groups_of(found.fleet, chosen, placement)
    return Plan(found, found.workload, chosen, stages, placement, groups, MadeBy("test", ""))


def alone(plan: Plan, steps: int) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(loss of each step, weights, Adam's first moments) of one process with torch's own autograd and Adam: no gradient is
    deferred or bucketed."""
    model, tensors = plan.workload.model, TensorParallel()
    kind = ExpertLayer if model.experts else Layer
    layers = [kind(model, tensors, 0, index, "none") for index in range(model.layers)]
    first, last = Embedding(model, tensors, 0), Head(model, tensors, 0, plan.workload.tokens)
    if adapter := plan.workload.adapter:
        layers = [AdaptedLayer(model, tensors, 0, index, "none", adapter) for index in range(model.layers)]
        freeze(first)
        freeze(last)
    if model.tied_embeddings:
        last.words = first.words
    blocks = [first, *layers, last]
    trained = {id(p): p for b in blocks for p in b.parameters() if p.requires_grad}
    adam = torch.optim.Adam(trained.values(), lr=LEARNING_RATE, betas=BETAS)
    losses = []
    for step in range(steps):
        total = 0.0
        for replica, count in enumerate(plan.config.num_microbatches):
            for microbatch in range(count):
                tokens = samples(plan, 0, step, replica, microbatch)
                x = first(tokens[:-1])
                for layer in layers:
                    x = layer(x)
                loss = last(x, tokens[1:])
                loss.backward()
                total += float(loss.detach())
        adam.step()
        adam.zero_grad()
        losses.append(total)
    named = {name: weight for block in blocks for name, weight in block.named()}
    moments = {
        name: adam.state[weight]["exp_avg"] if weight.requires_grad else weight for name, weight in named.items() if steps
    }
    return losses, {name: weight.detach() for name, weight in named.items()}, moments


def part(plan: Plan, name: str, whole: torch.Tensor, shape: torch.Size, rank: int) -> torch.Tensor:
    """What a rank holds of a weight: heads of queries, keys and values, of gate and up, side by side; its experts."""
    config, model, kind = plan.config, plan.workload.model, name.rsplit(".", 1)[-1]
    index, dp_cp, pp_rank = config.coordinates(rank)
    if kind.startswith("expert_"):
        stage = config.of_pp_rank(pp_rank)
        own = index + stage.tp * dp_cp
        whole = whole.chunk(stage.ep)[own // stage.expert_tp % stage.ep]
        index = own % stage.expert_tp
    if whole.shape == shape:
        return whole
    dim = next(at for at in range(whole.dim()) if whole.shape[at] != shape[at])
    sizes = [whole.shape[dim]]
    if kind.startswith("qkv"):
        sizes = [model.query_size, model.kv_size, model.kv_size]
    elif kind.endswith("up") and model.mlp == "swiglu":
        sizes = [whole.shape[dim] // 2] * 2
    degree = whole.shape[dim] // shape[dim]
    return torch.cat([piece.chunk(degree, dim)[index] for piece in whole.split(sizes, dim)], dim)


def check_equal(plan: Plan, here: local.Local, folder: Path) -> None:
    """Run a plan, and check that its losses, weights and means of gradients equal those of one process.

    The weights do not show the scale of gradients, to which Adam is blind. `folder` gets the run's timeline.json."""
    here.run(plan, RunOptions(steps=STEPS - 1, weights=str(folder), output=str(folder / "timeline.json")))
    losses, weights, moments = alone(plan, STEPS)
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(plan.config.world_size)]
    firsts = [result for rank, result in enumerate(ranks) if plan.config.coordinates(rank)[0] == 0]
    assert sum(result["losses"] for result in firsts).tolist() == pytest.approx(losses, rel=1e-5)
    seen = set()
    for rank, result in enumerate(ranks):
        for weight_name, weight in result["weights"].items():
            expected = part(plan, weight_name, weights[weight_name], weight.shape, rank)
            torch.testing.assert_close(weight, expected, rtol=0, atol=1e-5, msg=f"rank {rank}: {weight_name}")
            mean, expected = result["moments"][weight_name], part(plan, weight_name, moments[weight_name], weight.shape, rank)
            close = GRADIENTS_CLOSE * float(moments[weight_name].abs().max())
            torch.testing.assert_close(mean, expected, rtol=0, atol=close, msg=f"rank {rank}: gradient of {weight_name}")
            seen.add(weight_name)
    assert seen == set(weights)
