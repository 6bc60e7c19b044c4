"""Schedules as the tables one draws on a board: what every pipeline rank does, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic.pass_order import ordered_tasks
from sim.errors import NotDefined, PlanError
from sim.plan import program, schedules
from sim.plan.schedules.zb_latency import name_of

PLANNED = tuple(filter(schedules.is_planned, schedules.names()))
"""Schedules that the planner can use; `tests/sim/plan/test_dualpipev.py` tests the other one."""


def table(name: str, pp: int, microbatches: int, chunks: int = 1) -> list[str]:
    """The text of every pipeline rank's program."""
    return [program.text(schedules.actions(name, pp_rank, pp, microbatches, chunks), chunks) for pp_rank in range(pp)]


def test_1f1b_of_two_pipeline_ranks_and_four_microbatches() -> None:
    assert table("1f1b", 2, 4) == [
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_1f1b_of_four_pipeline_ranks_and_eight_microbatches() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 3 (its cells are numbered from 1)."""
    assert table("1f1b", 4, 8) == [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ]


def test_1f1b_with_fewer_microbatches_than_pipeline_ranks() -> None:
    assert table("1f1b", 4, 2) == ["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"]


def test_gpipe_does_all_forwards_then_all_backwards_at_every_pipeline_rank() -> None:
    assert table("gpipe", 2, 4) == ["F0 F1 F2 F3 B0 B1 B2 B3"] * 2
    assert table("gpipe", 4, 8) == ["F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"] * 4


def test_interleaved_of_two_pipeline_ranks_two_chunks_and_four_microbatches() -> None:
    """Pipeline rank 0 holds stages 0 and 2, pipeline rank 1 stages 1 and 3; warm-up of 2 (p - r - 1) + (v - 1) p forwards."""
    assert table("interleaved", 2, 4, 2) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_interleaved_of_four_pipeline_ranks_two_chunks_and_eight_microbatches() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 4, lower half: Megatron-LM's order on the first and the last device."""
    first, _, _, last = table("interleaved", 4, 8, 2)
    assert first == (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 "
        "0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 "
        "0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    )
    assert last == (
        "3F0 3F1 3F2 3F3 "
        "7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 "
        "3B4 3B5 3B6 3B7"
    )


def test_interleaved_with_as_many_microbatches_as_pipeline_ranks_is_all_warm_up() -> None:
    """Megatron-LM runs all forwards first where the microbatches are as many as the pipeline ranks."""
    assert table("interleaved", 2, 2, 2) == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1",
    ]


def test_zb_h1_of_four_pipeline_ranks_and_eight_microbatches() -> None:
    """Qi et al., arXiv 2401.10241, figure 3, top (its cells are numbered from 1)."""
    assert table("zb-h1", 4, 8) == [
        "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7",
        "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7",
        "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7",
        "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7",
    ]


def test_zb_h2_of_four_pipeline_ranks_and_eight_microbatches() -> None:
    """Qi et al., arXiv 2401.10241, figure 3, bottom (its cells are numbered from 1)."""
    assert table("zb-h2", 4, 8) == [
        "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7",
        "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 W0 F7 B3 W1 B4 W2 B5 W3 B6 W4 B7 W5 W6 W7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 W0 F7 B5 W1 B6 W2 B7 W3 W4 W5 W6 W7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 W0 F7 B7 W1 W2 W3 W4 W5 W6 W7",
    ]


def test_zero_bubble_with_fewer_microbatches_than_pipeline_ranks() -> None:
    assert table("zb-h1", 3, 2) == ["F0 F1 B0 W0 B1 W1", "F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"]
    assert table("zb-h2", 3, 2) == ["F0 F1 B0 W0 B1 W1", "F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"]


def test_interleaved_refuses_microbatches_that_are_no_multiple_of_the_pipeline_ranks() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.actions("interleaved", 0, 4, 6, 2)
    assert str(caught.value) == "schedule interleaved needs a number of microbatches that is a multiple of pp 4, not 6"


def test_a_schedule_of_one_stage_a_rank_refuses_chunks() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.actions("1f1b", 0, 4, 8, 2)
    assert str(caught.value) == "schedule 1f1b has one stage per rank; vpp 2 needs schedule interleaved"


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.get("1f2b")
    assert str(caught.value) == f"schedule '1f2b' is unknown; known: {', '.join(schedules.names())}"


def test_the_folder_is_the_registry() -> None:
    assert {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2"} <= set(schedules.names())
    assert all(name == schedules.get(name).NAME for name in schedules.names())


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(("pp", "microbatches"), [(1, 1), (1, 5), (2, 2), (2, 4), (4, 4), (4, 8), (4, 12), (8, 8)])
def test_every_stage_and_microbatch_goes_forward_once_and_backward_once_and_in_that_order(
    name: str, chunks: int, pp: int, microbatches: int
) -> None:
    if chunks > 1 and not schedules.get(name).CHUNKED:
        pytest.skip("holds one stage a rank")
    for pp_rank in range(pp):
        actions = schedules.actions(name, pp_rank, pp, microbatches, chunks)
        forward = [(a.stage, a.microbatch) for a in actions if a.kind == "F"]
        backward = [(a.stage, a.microbatch) for a in actions if a.kind == "B"]
        wanted = [(stage, m) for stage in range(pp_rank, pp * chunks, pp) for m in range(microbatches)]
        assert sorted(forward) == wanted
        assert sorted(backward) == wanted
        where = {(a.kind, a.stage, a.microbatch): index for index, a in enumerate(actions)}
        assert all(where["F", *key] < where["B", *key] for key in wanted)
        weights = [(a.stage, a.microbatch) for a in actions if a.kind == "W"]
        assert sorted(weights) == (wanted if schedules.get(name).SPLITS_BACKWARD else [])
        assert all(where["B", *key] < where["W", *key] for key in weights)


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize(("pp", "microbatches", "chunks"), [(2, 4, 1), (4, 8, 1), (2, 4, 2), (4, 8, 2), (4, 4, 3), (8, 16, 2)])
def test_no_pipeline_rank_waits_for_ever_if_all_run_in_order(name: str, pp: int, microbatches: int, chunks: int) -> None:
    """Every action runs as soon as what it needs is there; a table that can be drawn has no deadlock."""
    if chunks > 1 and not schedules.get(name).CHUNKED:
        pytest.skip("holds one stage a rank")
    programs = [list(schedules.actions(name, pp_rank, pp, microbatches, chunks)) for pp_rank in range(pp)]
    last, done = pp * chunks - 1, set()
    moving = True
    while moving:
        moving = False
        for actions in programs:
            while actions:
                a = actions[0]
                ahead = a.stage - 1 if a.kind == "F" else a.stage + 1
                needs = [({"B": "F", "W": "B"}[a.kind], a.stage, a.microbatch)] if a.kind != "F" else []
                needs += [(a.kind, ahead, a.microbatch)] if a.kind in "FB" and 0 <= ahead <= last else []
                if not done.issuperset(needs):
                    break
                done.add((a.kind, a.stage, a.microbatch))
                del actions[0]
                moving = True
    assert programs == [[]] * pp


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 4), (2, 4), (4, 8), (8, 3), (4, 2)])
def test_1f1b_holds_one_microbatch_for_each_pipeline_rank_from_here_on(pp: int, microbatches: int) -> None:
    held = [schedules.peak_in_flight("1f1b", pp_rank, pp, microbatches, 1) for pp_rank in range(pp)]
    assert held == [min(microbatches, pp - pp_rank) for pp_rank in range(pp)]


def test_gpipe_holds_all_microbatches_everywhere() -> None:
    assert [schedules.peak_in_flight("gpipe", pp_rank, 4, 8, 1) for pp_rank in range(4)] == [8, 8, 8, 8]


def test_interleaving_holds_a_warm_up_and_one_more() -> None:
    """In chunks of half a rank: 2 (p - r - 1) + (v - 1) p + 1; p v (1 + (p - 1) / p v) at first (arXiv 2205.05198, 4.2.3)."""
    assert [schedules.peak_in_flight("interleaved", pp_rank, 4, 8, 2) for pp_rank in range(4)] == [11, 9, 7, 5]


def holds_no_less(more: tuple[tuple[int, int], ...], less: tuple[tuple[int, int], ...]) -> bool:
    """Whether each pair of `less` needs no more memory than some pair of `more`, if waiting for W takes no more than for B."""
    return all(any(b <= a and b + d <= a + c for a, c in more) for b, d in less)


def held_at_most(kinds: list[str], splits: bool) -> set[tuple[int, int]]:
    """(microbatches between F and B, those between B and W) after the actions of some kinds, without what holds less."""
    every = set()
    for number in range(1, len(kinds) + 1):
        f, b, w = (kinds[:number].count(kind) for kind in "FBW")
        every.add((f - b, b - w if splits else 0))
    return {one for one in every if not any(one != other and one[0] <= other[0] and one[1] <= other[1] for other in every)}


@pytest.mark.parametrize("name", PLANNED)
@given(ranks=st.integers(1, 8), microbatches=st.integers(1, 40), chunks=st.integers(1, 4))
def test_declared_facts_hold(name: str, ranks: int, microbatches: int, chunks: int) -> None:
    """`FORWARDS_FIRST`, `WHOLE_ROUNDS` and the three statements of `WARM_UP`; the planner has no bounds for split chunks."""
    schedule = schedules.get(name)
    assert not (schedule.CHUNKED and schedule.SPLITS_BACKWARD)
    chunks = chunks if schedule.CHUNKED else 1
    microbatches += -microbatches % ranks if schedules.whole_rounds(name) else 0
    assert schedules.is_defined(name, ranks, microbatches, chunks)
    assert schedules.is_defined(name, ranks + 1, microbatches, chunks) == (
        not schedules.whole_rounds(name) or microbatches % (ranks + 1) == 0
    )
    held = [schedules.in_flight(name, rank, ranks, microbatches, chunks) for rank in range(ranks)]
    if schedules.forwards_first(name):
        assert held == [((microbatches * chunks, 0),)] * ranks
    for longer in (ranks, ranks + 3):
        most = schedules.most_in_flight(name, longer, microbatches, chunks)
        assert all(number <= limit for pairs in held for pair in pairs for number, limit in zip(pair, most, strict=True))
    for rank, pairs in enumerate(held):
        kinds = [action.kind for action in schedules.actions(name, rank, ranks, microbatches, chunks)]
        assert set(pairs) == held_at_most(kinds, schedule.SPLITS_BACKWARD)
        behind = schedules.weights_behind(name, rank, ranks, microbatches, chunks)
        assert behind == len(kinds) - 1 - max(i for i, kind in enumerate(kinds) if kind == "B")
    if schedules.holds_more_before(name):
        assert all(holds_no_less(held[rank], held[later]) for rank in range(ranks) for later in range(rank, ranks))
        for rank in range(ranks if not schedule.CHUNKED else 0):
            assert holds_no_less(held[rank], schedules.in_flight(name, 0, ranks - rank, microbatches, chunks))


pipelines = st.tuples(st.sampled_from(["zb-h1", "zb-h2"]), st.integers(1, 9), st.integers(1, 30))


@given(pipelines)
def test_a_split_backward_runs_whole_and_in_order(pipeline: tuple[str, int, int]) -> None:
    """F, B and W once a microbatch, each kind in order of the microbatches, W behind its B."""
    name, pp, microbatches = pipeline
    for pp_rank in range(pp):
        actions = schedules.actions(name, pp_rank, pp, microbatches, 1)
        assert len(actions) == 3 * microbatches
        for kind in "FBW":
            assert [a.microbatch for a in actions if a.kind == kind] == list(range(microbatches))
        order = [str(a) for a in actions]
        assert all(order.index(f"F{m}") < order.index(f"B{m}") < order.index(f"W{m}") for m in range(microbatches))


@given(st.integers(1, 9), st.integers(1, 30))
def test_zb_h1_holds_no_more_than_the_first_pipeline_rank_of_1f1b(pp: int, microbatches: int) -> None:
    """For B no more than 1F1B at the same rank, in all no more than at its first rank (arXiv 2401.10241, section 2.3)."""
    for pp_rank in range(pp):
        of_1f1b = schedules.peak_in_flight("1f1b", pp_rank, pp, microbatches, 1)
        held = schedules.in_flight("zb-h1", pp_rank, pp, microbatches, 1)
        assert max(before for before, _ in held) == of_1f1b
        assert schedules.peak_in_flight("zb-h1", pp_rank, pp, microbatches, 1) == min(pp, microbatches)


@given(st.integers(1, 9), st.integers(1, 30))
def test_zb_h2_holds_up_to_twice_the_pipeline_ranks_but_one(pp: int, microbatches: int) -> None:
    held = [schedules.peak_in_flight("zb-h2", pp_rank, pp, microbatches, 1) for pp_rank in range(pp)]
    assert held == [min(2 * pp - 1, microbatches)] * pp


def test_activations_kept_for_w_are_counted_separately() -> None:
    """Pipeline rank 1 of 2, three microbatches: F0 B0 F1 B1 W0 F2 B2 W1 W2."""
    assert schedules.in_flight("zb-h1", 1, 2, 3, 1) == ((1, 1), (0, 2))
    assert schedules.in_flight("1f1b", 0, 2, 3, 1) == ((2, 0),)


def test_weight_gradients_after_the_last_b_are_those_that_the_pipeline_rank_lags_behind() -> None:
    assert [schedules.weights_behind("zb-h1", pp_rank, 4, 8, 1) for pp_rank in range(4)] == [1, 2, 3, 4]
    assert [schedules.weights_behind("zb-h2", pp_rank, 4, 8, 1) for pp_rank in range(4)] == [1, 3, 5, 7]
    assert [schedules.weights_behind("zb-h2", pp_rank, 4, 2, 1) for pp_rank in range(4)] == [1, 2, 2, 2]
    assert schedules.weights_behind("1f1b", 0, 4, 8, 1) == 0


def idle(name: str, pp: int, microbatches: int, seconds: dict[str, int]) -> list[int]:
    """Time that each pipeline rank idles between its first action and its last, where messages take none."""
    programs = [list(schedules.actions(name, pp_rank, pp, microbatches, 1)) for pp_rank in range(pp)]
    ends: dict[tuple[str, int, int], int] = {}
    clock, begun = [0] * pp, [-1] * pp
    while any(programs):
        for pp_rank, actions in enumerate(programs):
            while actions:
                a = actions[0]
                ahead = {"F": pp_rank - 1, "B": pp_rank + 1, "W": -1}[a.kind]
                if 0 <= ahead < pp and (a.kind, ahead, a.microbatch) not in ends:
                    break
                start = max(clock[pp_rank], ends.get((a.kind, ahead, a.microbatch), 0))
                begun[pp_rank] = start if begun[pp_rank] < 0 else begun[pp_rank]
                clock[pp_rank] = ends[a.kind, pp_rank, a.microbatch] = start + seconds[a.kind]
                del actions[0]
    return [clock[pp_rank] - begun[pp_rank] - microbatches * sum(seconds.values()) for pp_rank in range(pp)]


def test_zero_bubble_idles_as_in_the_figure_of_the_paper() -> None:
    """arXiv 2401.10241, figures 2 and 3: 9 idle slots on device 1 of 1F1B, a third of them under ZB-H1, none under ZB-H2."""
    slots = {"F": 1, "B": 1, "W": 1}
    assert idle("1f1b", 4, 8, {"F": 1, "B": 2}) == [9, 6, 3, 0]
    assert idle("zb-h1", 4, 8, slots) == [3, 2, 1, 0]
    assert idle("zb-h2", 4, 8, slots) == [0, 0, 0, 0]


@given(pp=st.integers(1, 8), more=st.integers(0, 20), times=st.lists(st.integers(1, 9), min_size=3, max_size=3).map(sorted))
def test_the_bubbles_are_those_of_the_paper(pp: int, more: int, times: list[int]) -> None:
    """Table 2: (p - 1)(F + B - W) and (p - 1)(F + B - 2 W), where W <= F <= B as in a transformer (table 1)."""
    w, f, b = times
    seconds = {"F": f, "B": b, "W": w}
    assert max(idle("zb-h1", pp, pp + more, seconds)) == (pp - 1) * (f + b - w)
    assert max(idle("zb-h2", pp, 2 * pp - 1 + more, seconds)) == (pp - 1) * (f + b - 2 * w)


def test_zb_latency_warms_up_as_its_name_lists() -> None:
    """F, B and W in turn after the warm-up, W at once; without a list, the warm-up is that of 1F1B."""
    assert table("zb-latency=3,1,0", 3, 4) == [
        "F0 F1 F2 F3 B0 W0 B1 W1 B2 W2 B3 W3",
        "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3",
        "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3",
    ]
    assert table("zb-latency", 3, 4) == table("zb-latency=2,1,0", 3, 4)
    assert [schedules.in_flight("zb-latency=3,1,0", rank, 3, 8, 1) for rank in range(3)] == [
        ((4, 0), (3, 1)),
        ((2, 0), (1, 1)),
        ((1, 0), (0, 1)),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zb-latency=", "schedule zb-latency=: warm-ups are whole numbers with commas between them, such as zb-latency=3,2,0"),
        (
            "zb-latency=2,x",
            "schedule zb-latency=2,x: warm-ups are whole numbers with commas between them, such as zb-latency=3,2,0",
        ),
        ("zb-latency=1,2", "schedule zb-latency=1,2: no warm-up may be longer than that of the rank before"),
        ("zb-h2=1,0", "schedule zb-h2 takes no list; zb-h2=1,0 has one"),
        ("zb-h3=1,0", f"schedule 'zb-h3' is unknown; known: {', '.join(schedules.names())}"),
    ],
)
def test_what_lists_no_warm_ups_is_refused(name: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        schedules.get(name)
    assert str(caught.value) == said


def test_zb_latency_is_defined_for_as_many_ranks_as_it_lists() -> None:
    """Nothing else is known about it, so that bounds of the planner assume the least."""
    name = "zb-latency=3,1,0"
    assert [schedules.is_defined(name, ranks, 4, 1) for ranks in (2, 3, 4)] == [False, True, False]
    assert not schedules.has_bounded_warm_up(name)
    assert schedules.in_flight(name, 0, 3, 100, 1) == schedules.in_flight(name, 0, 3, 5, 1) == ((4, 0), (3, 1))
    with pytest.raises(NotDefined) as caught:
        schedules.actions(name, 0, 2, 4, 1)
    assert str(caught.value) == "schedule zb-latency=3,1,0 has 3 warm-ups, one for each rank; pp is 2"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 20))
def test_no_rank_of_zb_latency_waits_for_ever(hops: list[int], microbatches: int) -> None:
    """Warm-ups that never rise along the pipeline; the evaluator's order of tasks asserts that some rank can always go on."""
    warm_ups = tuple(sum(hops[rank:]) for rank in range(len(hops)))
    (*_, loop) = ordered_tasks(name_of(warm_ups), len(hops), microbatches, 1)
    assert loop.blocks
    held = [schedules.peak_in_flight(name_of(warm_ups), rank, len(hops), microbatches, 1) for rank in range(len(hops))]
    assert held == [min(warm_up + 1, microbatches) for warm_up in warm_ups]
