"""Parts of activations for several peers: samples first, then slices of the sequence."""

from __future__ import annotations

import pytest

from sim.plan import token_parts
from sim.plan.parallel_config import ParallelConfig

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import message_parts  # noqa: E402
from holmes_sim.torch_backend.context_parallel import positions  # noqa: E402


def test_four_peers_get_two_slices_of_each_half_of_the_samples():
    whole = torch.arange(8).reshape(4, 2, 1)  # four positions of two samples
    parts = message_parts.cut(whole, 2, ((0,), (1,)))
    assert [part.flatten().tolist() for part in parts] == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert torch.equal(message_parts.joined(parts, 2, ((0,), (1,))), whole)
    assert torch.equal(message_parts.joined(message_parts.cut(whole, 1, ((0,),)), 1, ((0,),)), whole)


def test_how_many_ranks_divide_the_samples_of_a_rank():
    config = ParallelConfig(pp=3, stage_dp=(1, 4, 2), microbatch_size=4)
    found = [[message_parts.shares(config, pp_rank, peer) for peer in range(3)] for pp_rank in range(3)]
    assert found == [[1, 4, 2], [1, 1, 1], [1, 2, 1]]


@pytest.mark.parametrize("tps", [(1, 1), (2, 2), (4, 4), (4, 1), (1, 4), (2, 8), (8, 2)])
@pytest.mark.parametrize("degrees", [(1, 2), (2, 4), (1, 4), (2, 6), (2, 1)])
def test_ranks_with_another_cp_get_the_tokens_that_they_have(tps, degrees):
    """Each rank names its tokens by their positions: what it sends is what it gets from a peer that sends what it has."""
    stage_tp = tps if len(set(tps)) > 1 else ()
    if not token_parts.match(*zip(degrees, tps, strict=True)):
        pytest.skip("the tokens do not match")
    config = ParallelConfig(
        tp=max(tps), stage_tp=stage_tp, pp=2, cp=min(degrees), stage_cp=degrees, num_microbatches=(1,), sequence_parallel=True
    )
    held, sent = {}, {}
    for rank in range(config.world_size):
        index, cp, pp_rank = config.coordinates(rank)
        held[rank] = positions(96, cp, degrees[pp_rank]).unsqueeze(1).chunk(tps[pp_rank])[index]
        peers, parts = config.peers(rank, 1 - pp_rank), message_parts.parts_of(config, rank, 1 - pp_rank)
        sent |= zip([(rank, peer) for peer in peers], message_parts.cut(held[rank], 1, parts), strict=True)
    for rank in range(config.world_size):
        other = 1 - config.coordinates(rank)[2]
        values = [sent[peer, rank] for peer in config.peers(rank, other)]
        assert torch.equal(message_parts.joined(values, 1, message_parts.parts_of(config, rank, other)), held[rank])
