"""Experts of torchtitan's models: degrees, dispatchers and precisions.

Read in torchtitan 0.3.0 (models/common/moe.py, moe_sharding.py, token_dispatcher.py, components/quantization,
distributed/parallel_dims.py, trainer.py):

- The ranks of an ep group are consecutive ones of dp_shard x cp x tp, each with whole experts (etp 1). With ep 1 tensor
  parallelism divides experts (etp is tp). None drops tokens. CUDA graphs do not take exchanges that wait for the host.
- Their grouped products are in bf16 whatever the precision of the model, or in fp8 or mxfp8 where a converter replaces them,
  which pads the rows of each expert. Routers multiply in fp32.
- DeepEP's and HybridEP's buffers are of all sequences of a rank in a step, as a pipeline has them, and need ep above 1. DeepEP
  does not pad rows.
- Routed and shared experts follow one another in one stream."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torchtitan_family
from holmes_sim.launching.torchtitan_family import DISPATCHERS
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

ROUTER = "router"
"""Name of a router's product (`sim.workload.kernels`)."""
PADDED = {"fp8": 16, "mxfp8": 128}
"""Precision -> rows of an expert are padded to a multiple (Float8GroupedExpertsConverter.PAD_MULTIPLE; mx.py: what kernels on
compute capability 10 require)."""


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts and precisions of experts that torchtitan does not take."""
    model = workload.model
    if not model.experts:
        return
    if model.n_group > 1 and model.experts // model.n_group < 2:
        yield f"n_group {model.n_group} of {model.experts} experts: its groups have at least 2; fewer groups"
    if workload.precision == "fp32":
        yield "precision fp32 with experts: their grouped products are in bf16; bf16"
    if workload.adapter is not None:
        yield "adapter with experts: LoRA on experts was not tried; a dense model"
    if config.capacity_factor is not None:
        yield f"capacity_factor {config.capacity_factor:g}: experts take all their tokens; none"
    if config.overlap_expert_communication:
        yield "overlap_expert_communication: tokens travel between computations; a stack without it"
    if config.overlap_shared_experts:
        yield "overlap_shared_experts: shared experts follow routed ones in one stream; a stack without it"
    whole = 1 if config.ep > 1 else config.tp
    if config.expert_tp != whole:
        yield f"etp {config.expert_tp} with ep {config.ep}: ranks of an ep group hold whole experts, others 1/tp; etp {whole}"
    ranks = (config.shards if config.zero_stage else config.cp) * config.tp
    if ranks % config.ep:
        yield f"ep {config.ep}: it divides the {ranks} ranks of a shard group and tp; a divisor of {ranks}"
    yield from _unsupported_dispatcher(config, workload)


def _unsupported_dispatcher(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    name = config.dispatcher
    if name not in DISPATCHERS:
        yield f"dispatcher {name}: it does not gather tokens on every rank; {', '.join(DISPATCHERS)}"
    if name not in DISPATCHERS or name == "alltoall" or config.ep == 1:
        return
    if config.pp > 1:
        yield f"dispatcher {name} with pp {config.pp}: its buffers are of all microbatches at once; alltoall, or pp 1"
    if name == "deepep" and workload.precision in PADDED:
        yield f"dispatcher deepep with precision {workload.precision}: it does not pad rows of experts; alltoall or hybridep"
    if workload.seq_len % (config.cp * config.tp):
        ranks = config.cp * config.tp
        yield f"seq_len {workload.seq_len} with dispatcher {name}: it is split in {ranks} by tp and cp; a multiple of {ranks}"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices on which DeepEP and HybridEP do not run."""
    name = plan.config.dispatcher
    if not plan.workload.model.experts or plan.config.ep == 1 or name == "alltoall":
        return
    if {plan.fleet.spec(device).vendor for device in plan.placement} - {"nvidia"}:
        yield f"dispatcher {name}: DeepEP is for devices of nvidia; alltoall"


def backend(config: ParallelConfig) -> str:
    """moe_comm_backend; with ep 1 no token travels."""
    return DISPATCHERS[config.dispatcher] if config.ep > 1 else DISPATCHERS["alltoall"]


def assumed(plan: Plan) -> Iterator[str]:
    """What of experts differs from the plan's step."""
    config, precision = plan.config, plan.workload.precision
    if not plan.workload.model.experts:
        return
    found = torchtitan_family.products(config, plan.workload)
    yield (
        f"Routers multiply in fp32, which takes longer than the plan counts: {found[ROUTER] / found.total():.1%} of the FLOPs "
        "in products of layers."
    )
    if precision in PADDED:
        yield f"Rows of each expert are padded to a multiple of {PADDED[precision]}; the plan's step counts none of them."
    if config.ep > 1 and config.dispatcher != "alltoall":
        yield f"DeepEP 2 is installed (github.com/deepseek-ai/DeepEP) for moe_comm_backend {config.dispatcher}."
