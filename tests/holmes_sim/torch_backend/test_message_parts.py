"""Parts of activations for several peers: samples first, then slices of the sequence."""

from __future__ import annotations

import pytest

from sim.plan.parallel_config import ParallelConfig

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import message_parts  # noqa: E402
from holmes_sim.torch_backend.context_parallel import positions  # noqa: E402


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


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("degrees", [(1, 2), (2, 4), (1, 4), (2, 6)])
def test_ranks_with_another_cp_get_the_tokens_that_they_have(tp, degrees):
    """Each rank names its tokens by their positions: parts that go from those of one stage to the other, and back."""
    length, config = 48, ParallelConfig(tp=tp, pp=2, cp=degrees[0], stage_cp=degrees, num_microbatches=(1,))
    held = {}
    for rank in range(config.world_size):
        index, cp, pp_rank = config.coordinates(rank)
        held[rank] = positions(length, cp, degrees[pp_rank]).unsqueeze(1).chunk(tp)[index]
    for rank in range(config.first_rank(1)):
        peers, chunks = config.peers(rank, 1), message_parts.chunks_of(config, rank % tp)
        parts = message_parts.cut(held[rank], len(peers), 1, chunks)
        assert all(torch.equal(part, held[peer]) for part, peer in zip(parts, peers, strict=True))
        assert torch.equal(message_parts.joined([held[peer] for peer in peers], 1, chunks), held[rank])
