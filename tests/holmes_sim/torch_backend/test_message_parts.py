"""Parts of activations for several peers: samples first, then slices of the sequence."""

from __future__ import annotations

import pytest

from sim.plan import token_parts
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import Action

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import message_parts  # noqa: E402
from holmes_sim.torch_backend.context_parallel import positions  # noqa: E402


def test_four_peers_get_two_slices_of_each_half_of_the_samples():
    whole = torch.arange(8).reshape(4, 2, 1)  # four positions of two samples
    parts = message_parts.cut(whole, 2, ((0,), (1,)))
    assert [part.flatten().tolist() for part in parts] == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert torch.equal(message_parts.joined(parts, 2, ((0,), (1,))), whole)
    assert torch.equal(message_parts.joined(message_parts.cut(whole, 1, ((0,),)), 1, ((0,),)), whole)


def test_a_pass_with_several_messages_joins_them_and_cuts_its_output():
    """Stage 1 computes four samples where stage 0 computes two, and stage 2 one: it joins two messages, and sends four."""
    config = ParallelConfig(pp=3, microbatch_size=4, stage_microbatch_size=(2, 4, 1), num_microbatches=(2,))
    whole = torch.arange(16).reshape(2, 8, 1)  # two positions of eight samples
    inputs = {("F", 1, index): part for index, part in enumerate(whole.chunk(4, 1))}
    second = message_parts.entered(inputs, config, 1, Action("F", 1, 1))
    assert torch.equal(second, whole[:, 4:]) and sorted(inputs) == [("F", 1, 0), ("F", 1, 1)]
    inputs["F", 1, 1] = second  # what a part of the pass leaves for the next one
    assert message_parts.entered(inputs, config, 1, Action("F", 1, 1, 1, 2)) is second
    outputs = {("F", 1, 1): second}
    for sample in range(4):
        assert list(outputs) == [("F", 1, 1)]
        sent = message_parts.taken(outputs, config, 1, Action("send", 1, 4 + sample, peer=2, operation="F"))
        assert sent.is_contiguous() and torch.equal(sent, whole[:, 4 + sample : 5 + sample])
    assert not outputs


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
