"""Whether the ranks of a stage find the largest values of its tensors together (fp8 with scales of earlier values)."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig


def shares_amax(config: ParallelConfig) -> bool:
    """Whether replicas share the largest values of tensors after each pass in fp8 (`ParallelConfig.amax_reduction`).

    Not modelled in unlike pipelines, and where replicas have unlike numbers of microbatches or shard state in blocks."""
    alike = len(set(config.num_microbatches)) == 1 and not config.other_dp_cp and config.zero_shard_size is None
    return config.amax_reduction and not config.current_scaling and config.sums_gradients and alike
