"""Parts of activations for several peers: samples first, then slices of the sequence."""

from __future__ import annotations

import pytest

from sim.plan.parallel_config import ParallelConfig

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import message_parts  # noqa: E402


def test_four_peers_get_two_slices_of_each_half_of_the_samples():
    whole = torch.arange(8).reshape(4, 2, 1)  # four positions of two samples
    parts = message_parts.cut(whole, 4, 2)
    assert [part.flatten().tolist() for part in parts] == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert torch.equal(message_parts.joined(parts, 2), whole)
    assert torch.equal(message_parts.joined(message_parts.cut(whole, 1, 1), 1), whole)


def test_how_many_ranks_divide_the_samples_of_a_rank():
    config = ParallelConfig(pp=3, stage_dp=(1, 4, 2), microbatch_size=4)
    found = [[message_parts.shares(config, pp_rank, peer) for peer in range(3)] for pp_rank in range(3)]
    assert found == [[1, 4, 2], [1, 1, 1], [1, 2, 1]]
