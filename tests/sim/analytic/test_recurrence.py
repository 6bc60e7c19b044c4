"""The recurrence of a step: steps computed by hand, many candidates at once, and loops that are extrapolated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import recurrence
from sim.analytic.candidates import STAGE, Candidates, join
from sim.analytic.pass_loops import Loop, Task
from sim.analytic.pass_order import ordered_tasks
from sim.analytic.recurrence import steps, steps_and_reductions
from tests.sim.analytic.candidate_steps import candidate, many, step


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("m", "p"), [(1, 1), (4, 1), (1, 4), (8, 4), (3, 8), (192, 16)])
def test_equal_stages_take_m_plus_p_minus_one_slots(schedule: str, m: int, p: int) -> None:
    assert step(schedule, p, m, forward=1.0, inputs=2.0) == (m + p - 1) * 3.0


@pytest.mark.parametrize(("m", "p", "v"), [(4, 2, 2), (12, 4, 3), (160, 16, 2)])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(m: int, p: int, v: int) -> None:
    assert step("interleaved", p, m, v, forward=1.0, inputs=2.0) == 3.0 * (m * v + p - 1)


def test_zb_h1_leaves_p_minus_one_times_f_plus_b_minus_w_of_the_bubble() -> None:
    """Qi et al., arXiv 2401.10241, table 2: 96 (3 + 4 + 2) + 7 (3 + 4 - 2)."""
    assert step("zb-h1", 8, 96, forward=3.0, inputs=4.0, weight=2.0) == 899.0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("1f1b", 10.5),  # rank 1: F0 1.5-2.5 B0 -4.5 sent 5 F1 -6 B1 -8 sent 8.5; rank 0: B0 5-7 B1 8.5-10.5
        ("1f1b-deepspeed", 11.0),  # F1 is sent at 5, after B0: rank 1: F1 5.5-6.5 B1 -8.5 sent 9; rank 0: B1 9-11
        ("gpipe", 11.0),  # rank 1: F0 1.5-2.5 F1 3-4 B0 -6 sent 6.5 B1 -8.5 sent 9; rank 0: B0 6.5-8.5 B1 9-11
    ],
)
def test_a_sender_waits_until_its_message_has_left(schedule: str, expected: float) -> None:
    assert step(schedule, 2, 2, forward=1.0, inputs=2.0, ahead=0.5, back=0.5) == expected


@pytest.mark.parametrize(
    ("ranks", "joint", "period"), [(4, 0.0, 3.5), (4, 1.0, 3.5), (4, 2.0, 4.25), (3, 2.0, 3.5), (3, 3.0, 4.5)]
)
def test_both_messages_to_a_stage_of_deepspeed_need_its_links_one_after_the_other(
    ranks: int, joint: float, period: float
) -> None:
    """F and B take 0.25 s, a message 1 s: an inner stage sends two and waits for one that is held, 3.5 s in all. Behind the
    arrival of its own activations, those from the stage before begin after B and a message, 1.25 s, and the gradient from the
    stage behind after F, a message and B, or after F and B, 0.5 s, where that is the last one. From the earlier one on, both
    need the links for `joint` seconds, and the next activations take another second."""
    links = {"joint": (0.0, *[joint] * (ranks - 2), 0.0)}
    found = [step("1f1b-deepspeed", ranks, m, forward=0.25, inputs=0.25, ahead=1.0, back=1.0, **links) for m in (40, 41)]
    assert found[1] - found[0] == pytest.approx(period)


def test_messages_of_zb_h1_overlap_with_compute() -> None:
    """Pipeline rank 1: F0 1.5-2.5 B0 -3.5 F1 -4.5 B1 -5.5 W0 W1; rank 0: B0 4-5 W0 -6 B1 6-7 W1 -8."""
    assert step("zb-h1", 2, 2, forward=1.0, inputs=1.0, weight=1.0, ahead=0.5, back=0.5) == 8.0


def test_messages_of_one_rank_are_sent_one_after_the_other() -> None:
    """Messages take 3 s: F1 ends at 2, arrives at 7; B0 and B1 end at 9 and 10, arrive at 12 and 15; rank 0 ends B1 at 16."""
    assert step("interleaved", 2, 2, forward=1.0, inputs=1.0, ahead=3.0, back=3.0) == 16.0


@given(candidates=many())
def test_many_candidates_at_once_have_the_steps_of_single_ones(candidates: Candidates) -> None:
    one_by_one = [steps(candidates.some(slice(row, row + 1))) for row in range(len(candidates))]
    assert steps(candidates) == pytest.approx(np.concatenate(one_by_one), rel=1e-11)


@given(candidates=many())
def test_extrapolation_of_loops_is_exact(candidates: Candidates) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "SETTLED", -1.0)
        whole = steps(candidates)
    assert steps(candidates) == pytest.approx(whole, rel=1e-11)


@given(candidates=many())
def test_no_step_is_longer_without_gathers(candidates: Candidates) -> None:
    without = candidates.without_gathers()
    assert (steps(without) <= steps(candidates) * (1 + 1e-11)).all()
    assert not without.stages[STAGE.index("gather")].any()
    assert (without.stages[STAGE.index("forward")] == candidates.stages[STAGE.index("forward")]).all()


@given(candidates=many(), share=st.floats(0.0, 1.0))
def test_only_steps_above_a_limit_are_lower_bounds_that_are_above_it(candidates: Candidates, share: float) -> None:
    every, reductions = steps_and_reductions(candidates)
    limit = float(np.quantile(every, share))
    found, reduced = steps_and_reductions(candidates, limit)
    exact = abs(found - every) <= 1e-11 * every
    assert exact[every <= limit].all()
    assert ((found <= every * (1 + 1e-9)) & (exact | (found > limit))).all()
    assert reduced[:, exact & (every <= limit)] == pytest.approx(reductions[:, exact & (every <= limit)], rel=1e-11)


def test_a_step_far_above_a_limit_ends_after_few_blocks(simulated: list[int]) -> None:
    long = candidate("1f1b", 4, 512, forward=1.0, inputs=2.0, back=(0.0, 5.0, 5.0, 5.0))
    (exact,) = steps(long)
    simulated.clear()
    found, _ = steps_and_reductions(long, 1_600.0)  # 1,536 s of compute
    assert 1_600.0 < found[0] <= exact
    assert len(simulated) < 10


def test_the_drain_rules_out_a_step_before_its_steady_state(simulated: list[int]) -> None:
    """Rank 3 begins at 3 s, and computes and sends for 64 x 8 s. The last gradients pass ranks 2 and 1 in 7 s each, and rank 0
    in 2 s."""
    long = candidate("1f1b", 4, 64, forward=1.0, inputs=2.0, back=(0.0, 5.0, 5.0, 5.0))
    (exact,) = steps(long)
    simulated.clear()
    found, _ = steps_and_reductions(long, 530.0)
    assert found[0] == exact == 531.0
    assert len(simulated) == 5  # each of three loops is counted, the last one once more, and the first one is evaluated


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks of each block that the recurrence takes from the order of tasks."""
    found: list[int] = []

    def counted(*args: Any) -> list[Loop]:
        return [Loop(Counted(loop.blocks, found), loop.later) for loop in ordered_tasks(*args)]

    monkeypatch.setattr(recurrence, "ordered_tasks", counted)
    return found


class Counted(Sequence[tuple[Task, ...]]):
    """Blocks of tasks that append their numbers of tasks to a list when they are taken."""

    def __init__(self, blocks: Sequence[tuple[Task, ...]], taken: list[int]):
        self.blocks, self.taken = blocks, taken

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: Any) -> Any:
        block = self.blocks[index]
        self.taken.append(len(block))
        return block


def test_loops_of_equal_stages_are_extrapolated(simulated: list[int]) -> None:
    """Of 192 microbatches no more than 64 are simulated."""
    assert step("1f1b", 16, 192, forward=1.0, inputs=2.0) == 207 * 3.0
    assert sum(simulated) < 2 * 16 * 64


@pytest.mark.parametrize(
    ("slows", "begun"),
    [
        (0.0, 5.0),  # B0 of pipeline rank 0, which begins to reduce last: 4-6, its first bucket at 5
        (0.5, 5.5),  # B0 of pipeline rank 1 takes 1 + 1.5 s, since its second part overlaps its first reduction
    ],
)
def test_loops_whose_reductions_fall_behind_are_extrapolated(slows: float, begun: float, simulated: list[int]) -> None:
    """192 x 6 s of reductions without a pause; a microbatch takes 3 s (4.5 s if slowed)."""
    seconds = {"forward": 1.0, "inputs": 2.0, "forward_compute": 1.0, "inputs_compute": 2.0}
    sync = {"reduce": 6.0, "parts": 2.0, "reduce_slows": slows}
    assert step("1f1b", 2, 192, zero_stage=2, **seconds, **sync) == begun + 192 * 6.0
    assert sum(simulated) < 2 * 2 * 64


def test_loops_of_zero_3_are_extrapolated(simulated: list[int]) -> None:
    """On the last pipeline rank reductions end 3 s after each backward, so a microbatch takes 3 + 5 + 3 s: 15 x 3 + 192 x 11.

    Then the last gradients pass back through 15 stages of 5 s each.
    """
    assert step("1f1b", 16, 192, zero_stage=3, forward=3.0, inputs=5.0, stream=8.0) == 15 * 3.0 + 192 * 11.0 + 15 * 5.0
    assert sum(simulated) < 2 * 16 * 64


@pytest.mark.parametrize("batch", [1, 3])
def test_candidates_are_evaluated_in_batches(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = join([candidate("1f1b", 2, 4, forward=float(f), inputs=1.0) for f in range(1, 8)])
    monkeypatch.setattr(recurrence, "ROWS", batch)
    assert steps(whole).tolist() == [10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
