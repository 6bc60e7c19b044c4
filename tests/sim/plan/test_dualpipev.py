"""DualPipeV: the order of deepseek-ai/DualPipe, its bubble, what it holds, and the pairs whose communication is hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.symmetry import unfolded
from sim.errors import NotDefined, NotModelled, PlanError
from sim.kernels import lowering, memory
from sim.plan import program, schedules
from sim.plan.plan import Plan
from tests.sim.context_and_experts import nodes

EXPERTS = {"experts": 8, "experts_per_token": 2, "tied_embeddings": False}
QUIET = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}


def rank_program(rank: int, ranks: int, microbatches: int) -> str:
    return program.text(schedules.actions("dualpipev", rank, ranks, microbatches, 2), 2)


def test_four_ranks_and_eight_microbatches_run_in_the_order_of_the_source() -> None:
    """dualpipev.py (3da1bbe) with num_ranks 4, num_chunks 8, recorded from its `step`; stage 7 - r is rank r's second one. W is
    written after each backward that is whole. The ranks 0 to 7 of dualpipe.py with num_chunks 16 have the orders of the ranks 0
    1 2 3 3 2 1 0, in each of its two directions."""
    assert [rank_program(rank, 4, 8) for rank in range(4)] == [
        "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7B0 7W0 7F1 7B1 7W1 7F2 7B2 7W2 7F3 0F7 7B3 7W3 7F4 0B0 0W0 7B4 7W4 7F5 0B1 0W1 "
        "7B5 7W5 7F6 0B2 0W2 7B6 7W6 7F7 0B3 0W3 7B7 7W7 0B4 0W4 0B5 0W5 0B6 0W6 0B7 0W7",
        "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6B0 6W0 6F2 6B1 6W1 6F3 1F6 6B2 6W2 6F4 1B0 1W0 1F7 6B3 6W3 6F5 1B1 1W1 "
        "6B4 6W4 6F6 1B2 1W2 6B5 6W5 6F7 1B3 1W3 6B6 6W6 1B4 1W4 6B7 1B5 6W7 1B6 1W5 1B7 1W6 1W7",
        "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5B0 5W0 5F3 2F5 5B1 5W1 5F4 2B0 2W0 2F6 5B2 5W2 5F5 2B1 2W1 2F7 5B3 5W3 5F6 2B2 2W2 "
        "5B4 5W4 5F7 2B3 2W3 5B5 5W5 2B4 2W4 5B6 5W6 2B5 5B7 2B6 2W5 2B7 5W7 2W6 2W7",
        "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 3F4 4B0 4W0 4F4 3B0 3W0 3F5 4B1 4W1 4F5 3B1 3W1 3F6 4B2 4W2 4F6 3B2 3W2 "
        "3F7 4B3 4W3 4F7 3B3 3W3 4B4 4W4 3B4 3W4 4B5 4W5 3B5 3W5 4B6 3B6 4B7 3B7 4W6 3W6 4W7 3W7",
    ]


def test_dualpipe_of_four_ranks_and_eight_microbatches_has_the_order_of_two_ranks_and_four() -> None:
    """dualpipe.py (3da1bbe) with num_ranks 4, num_chunks 8, recorded from its `step`: ranks 0 and 3, then 1 and 2. Here stage 0
    is its phase 0 and stage 3 its phase 1 (rank 1: 1 and 2)."""
    assert [rank_program(rank, 2, 4) for rank in range(2)] == [
        "0F0 0F1 0F2 3F0 3B0 3W0 3F1 0F3 3B1 3W1 3F2 0B0 0W0 3B2 3W2 3F3 0B1 0W1 3B3 3W3 0B2 0W2 0B3 0W3",
        "1F0 2F0 1F1 2F1 1F2 2B0 2W0 2F2 1B0 1W0 1F3 2B1 2W1 2F3 1B1 1W1 2B2 2W2 1B2 1W2 2B3 1B3 2W3 1W3",
    ]


def test_pairs_are_a_forward_of_one_stage_and_a_whole_backward_of_the_other() -> None:
    actions = schedules.actions("dualpipev", 1, 4, 8, 2)
    pairs = [(a, b, w) for a, b, w in zip(actions, actions[1:], actions[2:], strict=False) if a.operation == program.PAIR]
    assert [f"{a.stage}{a} {b.stage}{b}" for a, b, _ in pairs] == [
        "1F6 6B2", "6F4 1B0", "1F7 6B3", "6F5 1B1", "6F6 1B2", "6F7 1B3",
    ]  # fmt: skip
    assert all((b.operation, w.kind, w[1:3]) == (program.WHOLE, "W", b[1:3]) for _, b, w in pairs)
    (first, *_) = (a for a in schedules.actions("dualpipev", 3, 4, 8, 2) if a.operation == program.PAIR)
    assert (first.stage, first.microbatch) == (4, 4), "the last rank does not pair its first F0 and B1"


def _as_soon_as_possible(ranks: int, microbatches: int, seconds: dict[str, float]) -> list[float]:
    """The end of each rank where messages take no time."""
    left = [list(lowering.moves("dualpipev", rank, ranks, microbatches, 2)) for rank in range(ranks)]
    ends, sent = [0.0] * ranks, dict[tuple[str, int, int], float]()
    moving = True
    while moving:
        moving = False
        for rank, moves in enumerate(left):
            while moves and (moves[0].kind != "recv" or (moves[0].operation, *moves[0][1:3]) in sent):
                move = moves.pop(0)
                if move.kind == "recv":
                    ends[rank] = max(ends[rank], sent[move.operation, move.stage, move.microbatch])
                elif move.kind == "send":
                    sent[move.operation, move.stage, move.microbatch] = ends[rank]
                else:
                    ends[rank] += seconds[move.kind]
                moving = True
    assert left == [[]] * ranks, "a rank waits for ever"
    return ends


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (2, 9), (3, 6), (4, 8), (4, 13), (8, 20)])
def test_the_bubble_is_that_of_the_source(ranks: int, microbatches: int) -> None:
    """(PP / 2 - 1) (F&B + B - 3 W) of its README, with PP / 2 ranks, F = W = 1, whole backwards B = 2 and pairs F&B = 3."""
    ends = _as_soon_as_possible(ranks, microbatches, {"F": 1.0, "B": 1.0, "W": 1.0})
    assert ends == [2 * microbatches * 3 + (ranks - 1) * (3 + 2 - 3)] * ranks


def test_a_rank_holds_one_activation_more_than_there_are_stages() -> None:
    """PP + 1 activations of a stage, as the README has it, and the head's stage is with the embedding on the first rank."""
    for ranks in (2, 4, 8):
        held = [schedules.peak_in_flight("dualpipev", rank, ranks, 3 * ranks, 2) for rank in range(ranks)]
        assert max(held) == 2 * ranks + 1
        assert [schedules.rank_of("dualpipev", stage, ranks) for stage in (0, ranks - 1, ranks, 2 * ranks - 1)] == [
            0, ranks - 1, ranks - 1, 0,
        ]  # fmt: skip


@pytest.mark.parametrize(("numbers", "line"), [
    ((4, 7, 2), "schedule dualpipev needs at least 2 x pp 4 microbatches, not 7"),
    ((4, 8, 1), "schedule dualpipev has two stages on each of two or more ranks; pp 4, vpp 1 has not"),
    ((1, 8, 2), "schedule dualpipev has two stages on each of two or more ranks; pp 1, vpp 2 has not"),
])  # fmt: skip
def test_other_numbers_are_refused(numbers: tuple[int, int, int], line: str) -> None:
    with pytest.raises(NotDefined) as caught:
        schedules.actions("dualpipev", 0, *numbers)
    assert str(caught.value) == line


def vee(**facts: object) -> Plan:
    """Two ranks with two stages each, four of them to an ep group."""
    given = {"pp": 2, "vpp": 2, "dp": 4, "ep": 4, "microbatches": 6, "schedule": "dualpipev", "shape": EXPERTS}
    return nodes(**given | QUIET | facts)


def test_a_program_has_the_messages_of_a_pair_around_it_and_its_exchanges_beside_it() -> None:
    text = program.text(lowering.program(vee(microbatches=4), 0, 4), 2)
    pair = "recv F2 recv B0 start ep all_to_all.0 start ep all_to_all.0 3F2 0B0 0W0 wait ep all_to_all.0 wait ep all_to_all.0"
    assert pair in text
    assert text.startswith("0F0 ep all_to_all send F0 0F1 ep all_to_all send F1"), "no pair: the rank waits"
    assert "recv F0 3F0 ep all_to_all 3B0 ep all_to_all send B0 3W0" in text, "a split backward sends before W"
    last = program.text(lowering.program(vee(microbatches=4), 1, 4), 2)
    assert last.startswith("recv F0 1F0 ep all_to_all 2F0 ep all_to_all send F0"), "no message between its own stages"
    assert "2B0 ep all_to_all 2W0" in last and "1B0 1W0" in last.replace("recv ", "")


def test_pairs_hide_exchanges_as_far_as_their_compute_lasts() -> None:
    """Between a step without exchanges and one that waits for each; the closed form, which counts none, is below."""
    hidden, none = vee(), vee(exchange=0.0)
    waiting = vee(schedule="interleaved", microbatches=6)
    whole = simulate(waiting).step_s - simulate(replace(waiting, config=replace(waiting.config, exchange=0.0))).step_s
    own = simulate(hidden).step_s - simulate(none).step_s
    assert 0 < own < whole
    assert plan_costs.step_seconds(hidden) <= simulate(hidden).step_s


def test_an_extrapolated_and_folded_step_equals_a_fully_simulated_one() -> None:
    plan = vee(microbatches=30, overlap_grad_reduce=True, zero_stage=1)
    found, whole = simulate(plan), simulate_at_length(plan, unfolded(plan))
    assert found.step_s == pytest.approx(whole.step_s, rel=1e-9)
    assert found.events < whole.events / 4
    assert len([span for span in found.spans if span.kind == "F" and span.rank == 0]) == 60


def test_memory_has_both_stages_of_a_rank() -> None:
    two = vee(microbatches=8)
    held = memory.in_flight(two, 0)
    assert two.stages_of(0) == (0, 3) and two.stages_of(1) == (1, 2)
    assert two.ends(two.stages_of(0)) == (True, True)
    assert max(sum(pair) for pair in held) == 5
    assert memory.peak_memory(two)[0] > memory.peak_memory(two)[1]


def test_what_it_does_not_go_with_is_refused() -> None:
    with pytest.raises(PlanError, match=r"overlap_expert_communication with schedule dualpipev: its pairs overlap it"):
        vee(overlap_expert_communication=True)
    with pytest.raises(NotModelled, match=r"schedule dualpipev is not modelled with zero_stage 2; 0 or 1"):
        vee(zero_stage=2)
    with pytest.raises(NotModelled, match=r"both ends of the pipeline are on one rank; not modelled with a tied embedding"):
        vee(shape=EXPERTS | {"tied_embeddings": True})
