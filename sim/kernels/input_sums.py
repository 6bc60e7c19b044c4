"""Sums of input gradients of products that share an input, where each product has its own.

Without sequence parallelism tensor-parallel ranks all-reduce the gradient of what a column-parallel product multiplies.
Megatron-LM joins the weights of queries, keys and values, and those of gate and up, so that a layer has two such sums (Shoeybi
et al., arXiv 1909.08053, section 3). Where weights are separate and each product has the operator f of its own, autograd calls
one all_reduce for each: Aleph Alpha's Scaling (Aleph-Alpha/scaling 737f855, copy_to_tensor_model_parallel_region in forward of
src/scaling/core/nn/linear/column_parallel_linear.py; dense_in and siglu_weight of mlp.py; queries, keys and values are joined)
and ATorch (intelligent-machine-learning/atorch 7fb7da8, copy_to_group in forward of ColumnParallelLinear of
atorch/modules/distributed_modules/layers.py; q_proj, k_proj, v_proj, gate_proj and up_proj of examples/llama2/ds_3d_llama2.py).

With sequence parallelism ranks gather an input once, before all of its products. Layers with routed experts have those of
attention.
"""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def further_sums(workload: Workload, config: ParallelConfig) -> int:
    """All_reduces of a layer's backward beyond those of two products: two for queries, keys and values, one for gate and up."""
    if config.sequence_parallel or config.tp == 1:
        return 0
    model = workload.model
    gated = model.mlp == "swiglu" and not model.experts
    return 2 * config.separate_qkv + int(config.separate_gate and gated)
