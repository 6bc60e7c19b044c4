"""The order of tasks: loops of microbatches, and the programs of all pipeline ranks in one list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic.pass_loops import Repeated
from sim.analytic.pass_order import ordered_tasks, ordered_tasks_in_full
from sim.kernels import lowering
from sim.plan.program import COMPUTE
from tests.more import after
from tests.sim.analytic.candidate_steps import CASES


def test_microbatches_of_the_steady_state_form_a_loop() -> None:
    lone, loop, rest = ordered_tasks("1f1b", 16, 192, 1)
    assert (len(lone.blocks), len(loop.blocks), loop.later, len(rest.blocks)) == (1, 14, 12, 1)


@given(st.sampled_from([*CASES, ("interleaved", 12)]), st.integers(1, 9), st.integers(1, 300))
def test_loops_are_those_of_the_full_list_of_microbatches(case: tuple[str, int], pp: int, units: int) -> None:
    schedule, vpp = case
    microbatches = pp * (units // 8 + 1) if schedule == "interleaved" else units
    short, whole = ordered_tasks(schedule, pp, microbatches, vpp), ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    assert [(loop.later, tuple(loop.blocks)) for loop in short] == [(loop.later, tuple(loop.blocks)) for loop in whole]


@pytest.mark.parametrize(("schedule", "vpp"), CASES)
@pytest.mark.parametrize("pp", [1, 2, 5])
@pytest.mark.parametrize("units", after(3, [1, 3, 40, 101]))
def test_the_pass_order_keeps_programs_and_dependencies(schedule: str, vpp: int, pp: int, units: int) -> None:
    microbatches = units * (pp if schedule == "interleaved" else 1)
    tasks = [task for loop in ordered_tasks(schedule, pp, microbatches, vpp) for block in loop.blocks for task in block]
    for pp_rank in range(pp):
        own = [(t.kind, t.stage, t.microbatch) for t in tasks if t.pp_rank == pp_rank]
        moves = lowering.moves(schedule, pp_rank, pp, microbatches, vpp)
        assert own == [(a.kind, a.stage, a.microbatch) for a in moves if a.kind in COMPUTE]
    sent: set[object] = set()
    for task in tasks:
        assert task.receives is None or task.receives in sent
        sent |= {task.held, task.sends}


def test_blocks_of_a_loop_are_equal_whenever_they_are_made() -> None:
    head = ordered_tasks("1f1b", 2, 64, 1)[1].blocks[0]
    loop = Repeated(head, 20, 3)
    made = [tuple(task.later(3 * number) for task in head) for number in range(20)]
    assert loop[11] == made[11]  # before those that are kept
    assert list(loop) == list(loop) == made
    assert (loop[-1], loop[2:4]) == (made[19], tuple(made[2:4]))
