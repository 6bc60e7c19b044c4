"""Products of one input that are not one product: what tensor-parallel ranks sum more often for it.

Megatron-LM computes queries, keys and values by one product, and gate and up by one, so that a backward sums one input gradient
of attention and one of the MLP over tensor-parallel ranks (arXiv 1909.08053, section 3). Where each is a product of its own, as
in PaddleNLP (`sim/catalog/stacks/paddlenlp-2023.yaml`), the gradients of the same input are summed one by one. Left out: that
smaller products may be slower, the copies of the input, and sums with sequence parallelism, where inputs are gathered as often.
"""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def further_sums(workload: Workload, config: ParallelConfig, layers: int) -> int:
    """All_reduces of a backward of so many layers beyond one for each attention and MLP (`ParallelConfig.separate_products`);
    none for experts and for latent attention, which no such software has."""
    if not config.separate_products or config.sequence_parallel:
        return 0
    model = workload.model
    of_attention = 2 if model.attention == "standard" else 0
    return layers * (of_attention + (model.mlp == "swiglu" and not model.experts))
