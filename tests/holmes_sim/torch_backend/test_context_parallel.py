"""Parts of a sequence on context-parallel ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend.context_parallel import attend, part, positions, positions_of  # noqa: E402
from holmes_sim.torch_backend.tensor_parallel import TensorParallel  # noqa: E402


def test_a_rank_has_an_early_and_a_late_chunk():
    assert positions(8, 0, 2).tolist() == [0, 1, 6, 7]
    assert positions(8, 1, 2).tolist() == [2, 3, 4, 5]
    assert positions(4, 0, 1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_ranks_have_equally_many_pairs(ranks):
    own = [positions(16, rank, ranks) for rank in range(ranks)]
    assert sorted(torch.cat(own).tolist()) == list(range(16))
    assert len({int((some + 1).sum()) for some in own}) == 1


def test_a_rank_takes_its_rows_of_tokens():
    alone, second = TensorParallel(), TensorParallel(context=TensorParallel(rank=1, ranks=2))
    tokens = torch.arange(16).reshape(8, 2)
    assert part(tokens, alone) is tokens
    assert part(tokens, second)[:, 0].tolist() == [4, 6, 8, 10]
    assert positions_of(4, second).tolist() == [2, 3, 4, 5]
    assert positions_of(4, alone).tolist() == [0, 1, 2, 3]


def test_without_other_ranks_attention_is_causal():
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    found = attend(q, k, v, TensorParallel(), grouped=False)
    assert torch.allclose(found[:, :, 0], v[:, :, 0])
    longer = torch.softmax(q[0, 0, 1] @ k[0, 0, :2].T / 8**0.5, -1) @ v[0, 0, :2]
    assert torch.allclose(found[0, 0, 1], longer, atol=1e-6)
