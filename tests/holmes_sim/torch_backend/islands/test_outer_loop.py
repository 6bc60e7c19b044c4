"""The outer steps of each strategy, on a vector whose inner steps add a constant that differs between islands."""

from __future__ import annotations

from typing import Any

import pytest

from sim import sync as strategies
from sim.sync import Sync

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend.islands import outer_updates  # noqa: E402
from holmes_sim.torch_backend.islands.links import Cell, links_of  # noqa: E402
from holmes_sim.torch_backend.islands.outer_loop import OuterLoop  # noqa: E402
from holmes_sim.torch_backend.islands.outer_updates import DelayedNesterov, MeanOfWeights, Nesterov  # noqa: E402
from holmes_sim.torch_backend.islands.training import reducer_of  # noqa: E402
from tests.holmes_sim.torch_backend.islands.ranks_as_threads import together  # noqa: E402

START = [1.0, 2.0, 3.0, 4.0]


class Drifting:
    """Values that each inner step changes by a constant."""

    def __init__(self, drift: float):
        self.values, self.drift, self.gradient = torch.tensor(START), drift, torch.zeros(4)

    def weights(self) -> torch.Tensor:
        return self.values.clone()

    def set_weights(self, values: torch.Tensor) -> None:
        self.values = values.clone()

    def gradients(self) -> torch.Tensor:
        return self.gradient.clone()

    def set_gradients(self, values: torch.Tensor) -> None:
        self.gradient = values.clone()


def trained(sync: Sync, drifts: tuple[float, ...], steps: int, weights: tuple[float, ...] = ()) -> list[list[list[float]]]:
    """The weights of each island after each inner step."""
    islands = len(drifts)
    shares = weights or (1 / islands,) * islands
    cells = [[[Cell("all", 0, 4, (4,))]] for _ in drifts]

    def work(group: Any) -> list[list[float]]:
        values, own = Drifting(drifts[group.rank()]), group.rank()
        links = links_of(cells, own, 0) if sync.exchanges else []
        loop = OuterLoop(sync, values, links, reducer_of(sync, links, [group] * len(links), shares[own]))
        seen = []
        for _ in range(steps):
            values.gradient = torch.full((4,), values.drift)
            loop.before_optimizer()
            values.values += values.gradient
            loop.after_step()
            seen.append(values.values.tolist())
        loop.close()
        return seen

    return together(islands, work)


def flat(rows: list[list[float]]) -> list[float]:
    return [row[0] for row in rows]


def test_every_strategy_can_be_executed() -> None:
    senders = [name for name in strategies.names() if strategies.get(name).SENDS == "outer gradients"]
    assert [outer_updates.of(Sync(name)) for name in senders] == [
        MeanOfWeights, DelayedNesterov, Nesterov, MeanOfWeights, Nesterov
    ]  # fmt: skip
    assert sorted(set(strategies.names()) - set(senders)) == ["every-step", "independent"]


def test_every_step_adds_up_gradients_by_shares_of_the_batch() -> None:
    first, second = trained(Sync("every-step"), (1.0, 3.0), 2, (0.75, 0.25))
    assert first == second
    assert flat(first) == [2.5, 4.0]


def test_local_steps_take_the_mean_of_the_weights() -> None:
    first, second = trained(Sync("local-sgd", inner_steps=2), (1.0, 3.0), 4)
    assert flat(first) == [2.0, 5.0, 6.0, 9.0]
    assert flat(second) == [4.0, 5.0, 8.0, 9.0]


def test_adaptive_sgd_weights_the_mean_by_batches() -> None:
    first, _ = trained(Sync("adaptive-sgd", inner_steps=1), (1.0, 5.0), 1, (0.75, 0.25))
    assert flat(first) == [3.0]


def test_diloco_steps_as_torch_s_sgd_with_nesterov_momentum() -> None:
    found, other = trained(Sync("diloco", inner_steps=3), (0.1, 0.3), 9)
    weights = torch.nn.Parameter(torch.tensor(START))
    outer, expected = torch.optim.SGD([weights], lr=0.7, momentum=0.9, nesterov=True), []
    for _ in range(3):
        weights.grad = torch.full((4,), -0.6)  # three steps of 0.2 in the mean
        outer.step()
        expected.append(weights.tolist())
    assert found[2::3] == [pytest.approx(row) for row in expected]
    assert other[2::3] == found[2::3]


def test_streaming_diloco_exchanges_fragments_and_mixes_late_results() -> None:
    """Two fragments of two values, exchanged after steps 2 and 4, each used one step later: half of the outer step 0.7 x 1.9 x
    2 steps of 0.2, and half of the own 3 steps."""
    found, other = trained(Sync("streaming-diloco", inner_steps=4, overlap_steps=1, fragments=2), (0.1, 0.3), 5)
    assert [row[0] for row in found[:2]] == pytest.approx([1.1, 1.2])
    outer = 0.7 * 1.9 * 0.4
    assert found[2][0] == pytest.approx(1 + 0.5 * outer + 0.5 * 0.3)
    assert other[2][0] == pytest.approx(1 + 0.5 * outer + 0.5 * 0.9)
    assert [row[3] for row in found[:4]] == pytest.approx([4.1, 4.2, 4.3, 4.4])
    assert found[4][3] == pytest.approx(4 + 0.5 * 2 * outer + 0.5 * 0.5)


def test_co2_applies_the_change_of_the_period_before() -> None:
    """The first period's change, 0.4 in the mean, is used after the second, to which the own change of the second is added."""
    found, other = trained(Sync("co2", inner_steps=2), (0.1, 0.3), 6)
    assert (found[1][0], other[1][0]) == pytest.approx((1.2, 1.6))
    moved = 0.7 * 1.5 * 0.4
    assert (found[3][0], other[3][0]) == pytest.approx((1 + moved + 0.2, 1 + moved + 0.6))
    late = 0.4 / 1.05  # how far the weights moved is 1.05 times the change that is applied
    assert found[5][0] == pytest.approx(1 + moved + 0.7 * (late + 0.5 * (0.5 * 0.4 + late)) + 0.2)


def test_independent_islands_exchange_nothing() -> None:
    first, second = trained(Sync("independent"), (1.0, 3.0), 2)
    assert (flat(first), flat(second)) == ([2.0, 3.0], [4.0, 7.0])


@pytest.mark.parametrize(
    ("aggregation", "after"), [("median", 1.2), ("krum", 1.2), ("multi-krum", 1.2), ("flag", 1.2), ("mean", 21.0)]
)
def test_robust_aggregations_withstand_an_island_that_is_wrong(aggregation: str, after: float) -> None:
    """Five islands change the weights by 0.1, 0.2, 0.2, 0.3 and 99.2."""
    drifts = (0.1, 0.2, 0.2, 0.3, 99.2)
    found = trained(Sync("local-sgd", inner_steps=1, aggregation=aggregation), drifts, 1)
    assert [rows[0][0] for rows in found] == pytest.approx([after] * 5)


def test_compressed_outer_gradients_reach_the_mean_up_to_their_rounding() -> None:
    for compression, close in (("bf16", 0.01), ("int8", 0.01), ("int4", 0.2), ("top-k=100%", 1e-6), ("powersgd=4", 1e-6)):
        found, other = trained(Sync("local-sgd", inner_steps=2, compression=compression), (0.1, 0.3), 2)
        assert found[-1] == other[-1]
        assert found[-1] == pytest.approx([value + 0.4 for value in START], abs=close)
