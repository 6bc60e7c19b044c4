"""Sums of input gradients of products that share an input, where each product has its own.

Without sequence parallelism tensor-parallel ranks all-reduce the gradient of what a column-parallel product multiplies.
Megatron-LM joins the weights of queries, keys and values, and those of gate and up, so that a layer has two such sums (Shoeybi
et al., arXiv 1909.08053, section 3). Where weights are separate and each product has the operator f of its own, autograd calls
one all_reduce for each: Aleph Alpha's Scaling (Aleph-Alpha/scaling 737f855, copy_to_tensor_model_parallel_region in forward of
src/scaling/core/nn/linear/column_parallel_linear.py; dense_in and siglu_weight of mlp.py; queries, keys and values are joined)
and ATorch (intelligent-machine-learning/atorch 7fb7da8, copy_to_group in forward of ColumnParallelLinear of
atorch/modules/distributed_modules/layers.py; q_proj, k_proj, v_proj, gate_proj and up_proj of examples/llama2/ds_3d_llama2.py).

With sequence parallelism ranks gather an input once, before all of its products, and scatter the sum of the gradients of all.
With `separate_scatters` they scatter the gradient of each product by itself: torch's DTensor where each projection is
ColwiseParallel with input_layouts Shard(1) and a layer is compiled. Then common subexpressions are joined, which the three and
two gathers of a forward are (pytorch/pytorch torch/_functorch/compile_utils.py, fx_graph_cse), but not the scatters of a
backward, which have inputs of their own: with torch 2.13 and KempnerForge's plan for tp, the compiled forward of a layer has
two gathers and two scatters, its backward two gathers and five scatters. Without torch.compile a forward has five gathers, as
in KempnerForge's profile (12.1 gathers and 8 scatters a layer and pass, recomputation included); no stack here has that. Layers
with routed experts have those of attention.
"""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def further_sums(workload: Workload, config: ParallelConfig) -> int:
    """All_reduces of a layer's backward beyond those of two products: two for queries, keys and values, one for gate and up."""
    if config.sequence_parallel or config.tp == 1:
        return 0
    return 2 * config.separate_qkv + int(config.separate_gate and _gated(workload))


def further_scatters(workload: Workload, config: ParallelConfig) -> tuple[int, int]:
    """Reduce_scatters of a layer's backward beyond one for each block, (of attention, of a gated MLP), with
    `separate_scatters`; asynchronous tensor parallelism, which multiplies parts, is taken to have none."""
    if not config.separate_scatters or not config.sequence_parallel or config.tp == 1 or config.tp_overlap:
        return 0, 0
    return 2, int(_gated(workload))


def _gated(workload: Workload) -> bool:
    """Whether a layer has a dense MLP of which two products read the input."""
    return workload.model.mlp == "swiglu" and not workload.model.experts
