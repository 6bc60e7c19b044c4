"""Sums and gathers between islands: the right values, the same on all islands, with the bytes that the simulator counts."""

from __future__ import annotations

import pytest

from sim import compression
from sim.workload.model import Model

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend.compressors import codec  # noqa: E402
from holmes_sim.torch_backend.islands.collectives import gather, ring_sum  # noqa: E402
from holmes_sim.torch_backend.islands.powersgd import LowRankSum  # noqa: E402
from holmes_sim.torch_backend.islands.reducers import Gathered, RingMean  # noqa: E402
from tests.holmes_sim.torch_backend.islands.ranks_as_threads import together  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import GPT, alone, plan_of  # noqa: E402


def drawn(ranks: int, count: int) -> list[torch.Tensor]:
    return [torch.randn(count, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]


@pytest.mark.parametrize(("ranks", "name", "sent", "close"), [
    (2, "none", 40_960, 1e-6), (4, "none", 61_440, 1e-6), (4, "bf16", 30_720, 0.01), (4, "int8", 15_408, 0.03),
])  # fmt: skip
def test_a_ring_sends_twice_the_code_less_a_share(ranks: int, name: str, sent: int, close: float) -> None:
    """10,240 values: 2 (n - 1) / n of 4, 2 or 1 bytes each, and the scales of the blocks of each part."""
    values, chosen = drawn(ranks, 10_240), codec(name)
    assert chosen is not None

    def work(group: object) -> tuple[torch.Tensor, int]:
        return ring_sum(values[group.rank()], chosen, group), group.sent  # type: ignore[attr-defined, arg-type]

    found = together(ranks, work)
    assert [nbytes for _, nbytes in found] == [sent] * ranks
    assert all(torch.equal(total, found[0][0]) for total, _ in found)
    torch.testing.assert_close(found[0][0], torch.stack(values).sum(0), rtol=0, atol=close * float(found[0][0].abs().max()))


def test_a_ring_sums_fewer_values_than_ranks() -> None:
    chosen = codec("int8")
    assert chosen is not None
    found = together(4, lambda group: ring_sum(torch.tensor([1.0, 2.0]) * (group.rank() + 1), chosen, group))
    assert [total.tolist() for total in found] == [[10.0, 20.0]] * 4


def test_gathered_codes_are_sent_to_all_others() -> None:
    values, chosen = drawn(3, 8192), codec("int4")
    assert chosen is not None
    found = together(3, lambda group: (gather(values[group.rank()], chosen, group), group.sent))
    assert [sent for _, sent in found] == [2 * (4096 + 8)] * 3
    assert all(torch.equal(torch.stack(every), torch.stack(found[0][0])) for every, _ in found)


def test_error_feedback_sends_every_value_in_the_end() -> None:
    """Of [4, 2, 1] one value is sent at a time: 4; then [4, 4, 2] gives the first; the mean of many is the whole."""
    chosen = codec("top-k=34%")
    assert chosen is not None

    def work(group: object) -> list[list[float]]:
        reducer = Gathered([group], chosen, 0.5, feeds_back=True)  # type: ignore[list-item]
        return [reducer.reduce([torch.tensor([4.0, 2.0, 1.0])], 0)[0].tolist() for _ in range(24)]

    found = together(2, work)
    assert found[0] == found[1]
    assert found[0][0] == [4.0, 0.0, 0.0]
    mean = torch.tensor(found[0]).mean(0)
    assert mean.tolist() == pytest.approx([4.0, 2.0, 1.0], abs=0.5)


def test_weighted_means_add_up_shares_of_the_batch() -> None:
    chosen = codec("none")
    assert chosen is not None

    def work(group: object) -> list[float]:
        weight = (0.75, 0.25)[group.rank()]  # type: ignore[attr-defined]
        return RingMean([group], chosen, weight).reduce([torch.tensor([8.0, 4.0]) * group.rank()], 0)[0].tolist()  # type: ignore

    assert together(2, work) == [[2.0, 1.0]] * 2


def test_powersgd_sends_thin_matrices_and_whole_vectors() -> None:
    """32 x 8 and a vector of 5: rank 2 sends 2 (32 + 8) + 5 values. What it loses comes with later sums."""
    values = drawn(2, 32 * 8 + 5)

    def work(group: object) -> tuple[torch.Tensor, int]:
        sums = LowRankSum([(32, 8), (5,)], 2)
        first = sums.sum(values[group.rank()], group)  # type: ignore[attr-defined, arg-type]
        sent = group.sent  # type: ignore[attr-defined]
        later = [sums.sum(values[group.rank()], group) for _ in range(39)]  # type: ignore[attr-defined, arg-type]
        return torch.stack([first, *later]).mean(0), sent

    found = together(2, work)
    assert [sent for _, sent in found] == [4 * (2 * 40 + 5)] * 2
    assert torch.equal(found[0][0], found[1][0])
    total = values[0] + values[1]
    assert torch.equal(found[0][0][-5:], total[-5:]) or torch.allclose(found[0][0][-5:], total[-5:])
    assert float((found[0][0] - total).norm() / total.norm()) < 0.1


def test_powersgd_bytes_are_those_of_the_weights_of_the_model(tmp_path: object) -> None:
    """The matrices of the model that torch trains give the bytes that the simulator computes: 0.83 a parameter."""
    plan = plan_of(tmp_path, (5,), (1,), model=GPT)  # type: ignore[arg-type]
    _, weights, _ = alone(plan, 0)
    shapes = [tuple(weight.shape) for name, weight in weights.items() if name != "head.words"]  # tied to the embedding
    sums = LowRankSum(shapes, 4)
    sent = sum(4 * sum(sides) if thin else size for sides, thin, size in zip(sums.sides, sums.thin, sums.sizes, strict=True))
    model: Model = plan.workload.model
    assert compression.bytes_per_parameter("powersgd=4", model) == pytest.approx(4 * sent / model.parameters)
    assert 4 * sent / model.parameters == pytest.approx(0.826636, abs=1e-6)
