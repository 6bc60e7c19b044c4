"""The closed forms of the search: steps by hand, the engine's own where nothing contends, and never above it where it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import evaluator, plan_costs, recurrence
from sim.analytic.candidates import PIPELINE_RANK, STAGE, UNTIED, Candidates, join
from sim.analytic.evaluator import Table, evaluate
from sim.analytic.pass_order import ordered_tasks, ordered_tasks_in_full
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.errors import PlanError
from sim.hardware.cluster import Trunk
from sim.kernels import lowering, shards
from sim.kernels.shards import Bucket
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE

Make = Callable[..., Any]
FREE = 1e40
"""A bandwidth at which nothing takes time."""
CASES = [(name, 1) for name in schedules.names()] + [("interleaved", 2), ("interleaved", 3)]


def candidate(
    schedule: str, pp: int, microbatches: int, vpp: int = 1, tied: float = UNTIED, zero_stage: int = 0, **seconds: Any
) -> Candidates:
    """One candidate; a number stands for all stages (or pipeline ranks), a tuple has one for each."""
    stages, places = np.zeros((len(STAGE), pp * vpp, 1)), np.zeros((len(PIPELINE_RANK), pp, 1))
    for name, value in ({"parts": 1.0} | seconds).items():
        whole, names = (stages, STAGE) if name in STAGE else (places, PIPELINE_RANK)
        whole[names.index(name), :, 0] = value
    stages[STAGE.index("ahead"), -1] = stages[STAGE.index("back"), 0] = 0.0
    kind = zero_stage >= 2, zero_stage == 3
    return Candidates(schedule, pp, vpp, microbatches, stages, places, np.array([tied]), *kind)


def step(*args: Any, **seconds: Any) -> float:
    (found,) = steps(candidate(*args, **seconds))
    return float(found)


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
        ("1f1b", 10.5),  # place 1: F0 1.5-2.5 B0 -4.5 sent 5 F1 -6 B1 -8 sent 8.5; place 0: B0 5-7 B1 8.5-10.5
        ("1f1b-deepspeed", 11.0),  # F1 leaves at 5, behind B0: place 1: F1 5.5-6.5 B1 -8.5 sent 9; place 0: B1 9-11
        ("gpipe", 11.0),  # place 1: F0 1.5-2.5 F1 3-4 B0 -6 sent 6.5 B1 -8.5 sent 9; place 0: B0 6.5-8.5 B1 9-11
    ],
)
def test_two_places_and_two_microbatches_whose_senders_wait_half_a_second(schedule: str, expected: float) -> None:
    assert step(schedule, 2, 2, forward=1.0, inputs=2.0, ahead=0.5, back=0.5) == expected


def test_two_places_whose_messages_overlap() -> None:
    """Place 1: F0 1.5-2.5 B0 -3.5 F1 -4.5 B1 -5.5 W0 W1; place 0: B0 4-5 W0 -6 B1 6-7 W1 -8."""
    assert step("zb-h1", 2, 2, forward=1.0, inputs=1.0, weight=1.0, ahead=0.5, back=0.5) == 8.0


def test_messages_leave_one_after_the_other() -> None:
    """Wires of 3 s: F1, done at 2, arrives at 7; B0 and B1, done at 9 and 10, arrive at 12 and 15; place 0 ends B1 at 16."""
    assert step("interleaved", 2, 2, forward=1.0, inputs=1.0, ahead=3.0, back=3.0) == 16.0


def test_buckets_gathered_ahead_and_reduced_behind() -> None:
    """Three of 2 s: forwards end at 4, 6, 8; backwards at 10, 12, 14; reductions of 1 s at 11, 13, 15; 0.5 s of optimizer."""
    sync = {"gather": 6.0, "reduce": 3.0, "parts": 3.0, "updated": 0.5}
    assert step("1f1b", 1, 1, forward=6.0, inputs=6.0, **sync) == 15.5


def test_compute_beside_gathers_and_reductions_is_slowed() -> None:
    """Half speed till 6: forwards end at 6, 8, 10; beside reductions of 1 s backwards end at 12, 14.5, 17; the last at 18."""
    sync = {"gather": 6.0, "reduce": 3.0, "parts": 3.0, "gather_slows": 1.0, "reduce_slows": 1.0}
    busy = {"forward_compute": 6.0, "inputs_compute": 6.0}
    assert step("1f1b", 1, 1, forward=6.0, inputs=6.0, **sync, **busy) == 18.0


def test_zero_2_reduces_behind_every_backward() -> None:
    """F0 0-2, B0 2-4 4-6, F1 6-8, B1 8-10 10-12; reductions of 3 s 4-7-10 and 10-13-16; 0.5 s of optimizer."""
    sync = {"reduce": 6.0, "parts": 2.0, "updated": 0.5}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync) == 16.5


def test_zero_2_gathers_ahead_of_the_first_forward_only() -> None:
    """Gathers of 3 s 0-3-6; F0 3-4, 6-7, B0 7-9 9-11, F1 11-13, B1 13-15 15-17; reductions of 1 s, the last one 17-18."""
    sync = {"gather": 6.0, "reduce": 2.0, "parts": 2.0}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync) == 18.0


def test_reductions_of_one_microbatch_slow_the_next() -> None:
    """Two microbatches at half speed beside reductions of 3 s.

    F0 0-2, B0 2-4 and 4-7.5 (slowed till 7), reductions 4-7 and 7.5-10.5, F1 7.5-11 (slowed till 10.5), B1 11-13 and 13-16.5
    (slowed till 16), reductions 13-16 and 16.5-19.5.
    """
    sync = {"reduce": 6.0, "parts": 2.0, "reduce_slows": 1.0, "updated": 0.5}
    busy = {"forward_compute": 2.0, "inputs_compute": 4.0}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync, **busy) == 20.0


def test_under_zb_weight_gradients_are_reduced_behind_every_w() -> None:
    """F0 0-1, B0 1-2, W0 2-3, F1 3-4, B1 4-5, W1 5-6; reductions of 4 s 3-7 and 7-11."""
    assert step("zb-h1", 1, 2, zero_stage=2, forward=1.0, inputs=1.0, weight=1.0, reduce=4.0) == 11.0


def test_zero_3_gathers_every_layer_two_ahead() -> None:
    """Gathers of 1 s at 0-1-2-3, of the third from when the first part begins; parts of 1 s at 1-2, 2-3, 3-4."""
    assert shards.sharded_pass(3, 3.0, 3.0, Bucket(1.0, 0.0), None) == (4.0, 3.0)


def test_zero_3_reduces_between_its_gathers() -> None:
    """Four parts of 1 s: started are gathers 0, 1, 2 (by part 0), reduction 0, gather 3 (by part 1), reductions 1, 2, 3.

    Gathers of 2 s 0-2-4-6, part 0 2-3, reduction 0 of 1 s 6-7, part 1 4-5, gather 3 7-9, reduction 1 9-10, part 2 6-7,
    reduction 2 10-11, part 3 9-10, reduction 3 11-12.
    """
    assert shards.sharded_pass(4, 4.0, 4.0, Bucket(2.0, 0.0), Bucket(1.0, 0.0)) == (10.0, 12.0)


def test_zero_3_is_slowed_by_what_is_under_way() -> None:
    """Two parts of 2 s of compute and 1 s that nothing slows, beside gathers at half speed, reductions at two thirds.

    Gathers 0-2-4; part 0 2-5 (till 4 half of it) and 5-6; reduction 0 6-9; part 1 6-9 and 9-10; reduction 1 10-13.
    """
    assert shards.sharded_pass(2, 4.0, 6.0, Bucket(2.0, 1.0), Bucket(3.0, 0.5)) == (10.0, 13.0)


def test_under_zero_3_a_turn_waits_for_the_stream_and_gathers_again() -> None:
    """F 0-4, B 4-14, its stream till 16; F 16-20, B 20-30, its stream till 32."""
    seconds = {"forward": 4.0, "inputs": 10.0, "stream": 12.0}
    assert step("1f1b", 1, 1, zero_stage=3, **seconds) == 16.0
    assert step("1f1b", 1, 2, zero_stage=3, **seconds) == 32.0


def test_a_tied_embedding_is_summed_when_both_ends_have_reduced() -> None:
    """Ends at 9 (place 0) and 8 (place 1); 9 + 1 reduced, + 0.25 summed, + 2 for the slower optimizer."""
    own = {"forward": 1.0, "inputs": 2.0, "reduced": 1.0, "updated": (0.5, 2.0)}
    assert step("1f1b", 2, 2, **own, tied=0.25) == 12.25
    assert step("1f1b", 2, 2, **own) == 10.5


def test_a_steady_state_is_found() -> None:
    lone, loop, rest = ordered_tasks("1f1b", 16, 192, 1)
    assert (len(lone.blocks), len(loop.blocks), loop.later, len(rest.blocks)) == (1, 14, 12, 1)


@given(st.sampled_from([*CASES, ("interleaved", 12)]), st.integers(1, 9), st.integers(1, 300))
def test_a_long_walk_is_the_one_with_every_microbatch_listed(case: tuple[str, int], pp: int, units: int) -> None:
    schedule, vpp = case
    microbatches = pp * (units // 8 + 1) if schedule == "interleaved" else units
    short, whole = ordered_tasks(schedule, pp, microbatches, vpp), ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    assert [(loop.later, tuple(loop.blocks)) for loop in short] == [(loop.later, tuple(loop.blocks)) for loop in whole]


@pytest.mark.parametrize(("schedule", "vpp"), CASES)
@pytest.mark.parametrize("pp", [1, 2, 5])
@pytest.mark.parametrize("units", [1, 3, 40, 101])
def test_the_walk_is_every_place_s_program_with_nothing_before_what_it_waits_for(
    schedule: str, vpp: int, pp: int, units: int
) -> None:
    microbatches = units * (pp if schedule == "interleaved" else 1)
    turns = [turn for loop in ordered_tasks(schedule, pp, microbatches, vpp) for block in loop.blocks for turn in block]
    for place in range(pp):
        own = [(t.kind, t.stage, t.microbatch) for t in turns if t.pp_rank == place]
        moves = lowering.moves(schedule, place, pp, microbatches, vpp)
        assert own == [(a.kind, a.stage, a.microbatch) for a in moves if a.kind in COMPUTE]
    sent: set[object] = set()
    for turn in turns:
        assert turn.receives is None or turn.receives in sent
        sent |= {turn.held, turn.sends}


@st.composite
def many(draw: st.DrawFn) -> Candidates:
    """Candidates of one structure with seconds of all sizes."""
    schedule, vpp = draw(st.sampled_from(CASES))
    pp, count = draw(st.integers(1, 8)), draw(st.integers(1, 30))
    unit = pp if schedule == "interleaved" else 1
    microbatches = unit * draw(st.integers(1, max(1, 120 // unit)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    stages = rng.choice([0.0, 0.5, 1.0, 1.25], (len(STAGE), pp * vpp, count)) + rng.choice([0.0, 1e-3]) * rng.random(count)
    stages *= draw(st.sampled_from([1.0, 0.1])) ** (np.arange(len(STAGE)) > STAGE.index("weight"))[:, None, None]
    for name in ("forward", "inputs"):
        stages[STAGE.index(f"{name}_compute")] = stages[STAGE.index(name)]
    stages[STAGE.index("parts")] = rng.integers(1, 5, (pp * vpp, count))
    stages[STAGE.index("reduce")] *= draw(st.sampled_from([1.0, 10.0]))
    unused = "stream" if schedules.get(schedule).SPLITS_BACKWARD else "weight"  # B's stream: it reduces nothing then
    stages[STAGE.index(unused)] = 0.0
    places = rng.random((len(PIPELINE_RANK), pp, count)) * rng.choice([0.0, 1.0], (len(PIPELINE_RANK), 1, 1))
    tied, zero_stage = rng.choice([UNTIED, 0.0, 1.0], count), draw(st.integers(1, 3))
    return Candidates(schedule, pp, vpp, microbatches, stages, places, tied, zero_stage >= 2, zero_stage == 3)


@given(candidates=many())
def test_many_candidates_take_what_each_takes_by_itself(candidates: Candidates) -> None:
    one_by_one = [steps(candidates.some(slice(row, row + 1))) for row in range(len(candidates))]
    assert steps(candidates) == pytest.approx(np.concatenate(one_by_one), rel=1e-11)


@given(candidates=many())
def test_leaving_out_what_repeats_changes_nothing(candidates: Candidates) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "SETTLED", -1.0)
        whole = steps(candidates)
    assert steps(candidates) == pytest.approx(whole, rel=1e-11)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of turns that are played at a time."""
    found: list[int] = []
    play = recurrence._Recurrence.advance

    def counted(player: Any, state: Any, turns: Any) -> None:
        found.append(len(turns))
        play(player, state, turns)

    monkeypatch.setattr(recurrence._Recurrence, "advance", counted)
    return found


def test_equal_stages_repeat_from_the_second_block_on(played: list[int]) -> None:
    """Of 192 microbatches no more is played than of 64."""
    assert step("1f1b", 16, 192, forward=1.0, inputs=2.0) == 207 * 3.0
    assert sum(played) < 2 * 16 * 64


@pytest.mark.parametrize(
    ("slows", "begun"),
    [
        (0.0, 5.0),  # B0 of place 0, the later to begin to reduce: 4-6, its first bucket at 5
        (0.5, 5.5),  # B0 of place 1 takes 1 + 1.5 s, its second part beside its first reduction
    ],
)
def test_streams_that_fall_behind_repeat_too(slows: float, begun: float, played: list[int]) -> None:
    """192 x 6 s of reductions that never rest, where microbatches take 3 s (slowed 4.5)."""
    seconds = {"forward": 1.0, "inputs": 2.0, "forward_compute": 1.0, "inputs_compute": 2.0}
    sync = {"reduce": 6.0, "parts": 2.0, "reduce_slows": slows}
    assert step("1f1b", 2, 192, zero_stage=2, **seconds, **sync) == begun + 192 * 6.0
    assert sum(played) < 2 * 2 * 64


def test_turns_that_gather_repeat_too(played: list[int]) -> None:
    """The last place's stream ends 3 s after each backward, and a microbatch takes it 3 + 5 + 3 s: 15 x 3 + 192 x 11.

    The way back of the last gradients takes 15 x 5 s, 3 s less than which the last place's stream ends before."""
    assert step("1f1b", 16, 192, zero_stage=3, forward=3.0, inputs=5.0, stream=8.0) == 15 * 3.0 + 192 * 11.0 + 15 * 5.0
    assert sum(played) < 2 * 16 * 64


@pytest.mark.parametrize("batch", [1, 3])
def test_batches_are_reckoned_in_pieces(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = join([candidate("1f1b", 2, 4, forward=float(f), inputs=1.0) for f in range(1, 8)])
    monkeypatch.setattr(recurrence, "ROWS", batch)
    assert steps(whole).tolist() == [10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]


@st.composite
def lone_flows(draw: st.DrawFn, make: dict[str, Make]) -> Plan:
    """Plans of alike replicas in which no flow ever waits for another: a cluster for each place, wires that take time only
    by latency and overhead, so that whatever goes at once does not share."""
    schedule, vpp = draw(st.sampled_from(CASES))
    tp, pp, dp = draw(st.sampled_from([1, 2])), draw(st.integers(1, 5)), draw(st.sampled_from([1, 2]))
    unit = pp if schedule == "interleaved" else 1
    microbatches = unit * draw(st.integers(1, max(1, draw(st.sampled_from([10, 90])) // unit)))
    seconds = st.sampled_from([0.0, 1e-5, 1e-3, 0.02])
    slow = draw(st.sampled_from([0.0, 0.0, 0.25]))

    def place(name: str) -> Any:
        speed = draw(st.sampled_from([1e13, 1.7e13, 0.9e13]))
        card = make["nic"](bandwidth=FREE, count=tp, latency=draw(seconds), overhead=draw(seconds), interference=slow)
        inside = make["wire"](bandwidth=FREE, latency=draw(seconds) / 100, interference=slow)
        chip = make["device"](f"chip {speed}", speed, host_bandwidth=FREE)
        return make["cluster"](name, nodes=dp, devices=tp, nics=(card,), spec=chip, intra_node=inside)

    names = [f"c{index}" for index in range(pp)]
    trunks = tuple(Trunk(pair, "infiniband", FREE, draw(seconds)) for pair in pairwise(names))
    machines = make["fleet"](*map(place, names), trunks=trunks)
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=pp * vpp, max_size=pp * vpp)))
    shape = {"hidden": draw(st.sampled_from([96, 3072])), "tied_embeddings": draw(st.booleans())}
    return make["plan"](
        machines, tp, pp, dp, vpp, microbatches, layers, shape=shape, schedule=schedule,
        zero_stage=draw(st.integers(0, 3)), recompute=draw(st.sampled_from(["none", "full"])),
        sequence_parallel=tp > 1 and draw(st.booleans()), overlap_grad_reduce=draw(st.booleans()),
        overlap_param_gather=draw(st.booleans()),
    )  # fmt: skip


@pytest.fixture(scope="session")
def make(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make, make_device: Make
) -> dict[str, Make]:
    made = (make_plan, make_fleet, make_cluster, make_nic, make_wire, make_device)
    return dict(zip(("plan", "fleet", "cluster", "nic", "wire", "device"), made, strict=True))


@given(data=st.data())
def test_where_no_flow_waits_for_another_it_is_the_engine_s_step(data: st.DataObject, make: dict[str, Make]) -> None:
    plan = data.draw(lone_flows(make))
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("interference", [0.0, 0.3])
def test_buckets_on_wires_of_real_bandwidth_take_what_they_take_in_the_engine(
    zero_stage: int, overlap: bool, interference: float, make: dict[str, Make]
) -> None:
    card = make["nic"](latency=5e-6, overhead=8e-6, interference=interference)
    plan = make["plan"](
        make["fleet"](make["cluster"](nodes=4, nics=(card,))), dp=4, microbatches=3, layers=(6,), shape={"hidden": 3072},
        zero_stage=zero_stage, overlap_grad_reduce=overlap, overlap_param_gather=overlap,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("speed", [1e12, 3e13, 1e15])
def test_gathers_and_reductions_that_slow_compute_unlike_take_what_they_take_in_the_engine(
    schedule: str, zero_stage: int, speed: float, make: dict[str, Make]
) -> None:
    """Weights are gathered inside nodes of two, gradients are reduced among them too."""
    inside, card = make["wire"](bandwidth=3e10, interference=0.6), make["nic"](bandwidth=1e10, interference=0.2)
    machines = make["fleet"](make["cluster"]("c", 2, 2, (card,), make["device"](speed=speed), inside))
    plan = make["plan"](
        machines, dp=4, microbatches=50, layers=(7,), shape={"hidden": 3072}, schedule=schedule, zero_stage=zero_stage,
        zero_shard_size=2,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
def test_keys_and_values_around_a_ring_take_what_they_take_in_the_engine(
    cp: int, bandwidth: float, make: dict[str, Make]
) -> None:
    machines = make["fleet"](make["cluster"](nodes=cp, nics=(make["nic"](bandwidth=bandwidth),)))
    plan = make["plan"](machines, cp=cp, microbatches=3, overlap_grad_reduce=False, overlap_param_gather=False, seq_len=512)
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("layers", [(4,), (3, 1)])
def test_gradients_of_experts_beside_dense_ones_take_what_they_take_in_the_engine(
    zero_stage: int, overlap: bool, layers: tuple[int, ...], make: dict[str, Make]
) -> None:
    """Two replicas of every expert, four of dense weights, on wires that take time but have room for both."""
    card, chip = make["nic"](bandwidth=FREE, latency=2e-3), make["device"](host_bandwidth=FREE)
    machines = make["fleet"](make["cluster"](nodes=4 * len(layers), nics=(card,), spec=chip))
    plan = make["plan"](
        machines, dp=4, ep=2, pp=len(layers), microbatches=3, layers=layers,
        shape={"experts": 4, "experts_per_token": 2}, zero_stage=zero_stage,
        overlap_grad_reduce=overlap, overlap_param_gather=overlap,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


def held(plan: Plan) -> bool:
    """Whether the evaluator holds a plan."""
    try:
        evaluator.check(plan.config)
    except PlanError:
        return False
    return True


@given(data=st.data())
def test_alike_replicas_are_never_slower_than_in_the_engine(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=32))
    assume(held(plan) and len(fold(plan).representatives) == plan.config.pp)
    assert evaluate([plan])[0] <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data())
def test_it_is_never_below_the_looser_closed_form(data: st.DataObject, plans: Make) -> None:
    """Where every microbatch is reduced, the closed form lets messages wait for reductions and may be above the engine."""
    plan = data.draw(plans(ranks=32))
    assume(held(plan) and not plan.config.reduces_each_microbatch)
    assert evaluate([plan])[0] >= plan_costs.step_seconds(plan) * (1 - 1e-9)


@given(data=st.data())
def test_many_plans_take_what_each_takes_by_itself(data: st.DataObject, plans: Make) -> None:
    drawn = [plan for plan in data.draw(st.lists(plans(ranks=16), max_size=4)) if held(plan)]
    assert evaluate(drawn) == pytest.approx([evaluate([plan])[0] for plan in drawn], rel=1e-11)


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("zb-h1", 1), ("interleaved", 2)])
@pytest.mark.parametrize(("zero_stage", "overlap"), [(1, False), (1, True), (2, True), (3, True)])
def test_a_table_makes_of_splits_what_their_plans_are(
    schedule: str, vpp: int, zero_stage: int, overlap: bool, make: dict[str, Make]
) -> None:
    """Two kinds of devices, one for the first place and one for the other two; eight splits of twelve layers."""
    inside = make["wire"](latency=1e-6, interference=0.1)
    cards = (make["nic"](latency=2e-5, interference=0.2),)
    slow = make["cluster"]("slow", 2, 2, cards, make["device"]("slow", 1e13), inside)
    fast = make["cluster"]("fast", 4, 2, cards, make["device"]("fast", 3e13), inside)
    machines = make["fleet"](slow, fast, trunks=(Trunk(("slow", "fast"), "infiniband", 1e9, 1e-4),))
    rng = np.random.default_rng(5)
    layers = 1 + rng.multinomial(12 - 3 * vpp, np.full(3 * vpp, 1 / (3 * vpp)), 8)
    plans = [
        make["plan"](
            machines, 2, 3, 2, vpp, 6, tuple(int(n) for n in row), schedule=schedule, zero_stage=zero_stage,
            overlap_grad_reduce=overlap, overlap_param_gather=overlap, shape={"hidden": 1536, "tied_embeddings": True},
        )
        for row in layers
    ]  # fmt: skip
    found, alike = PlanCosts(plans[0]), (0, 1)
    messages = np.array([[0.0, found.message(0, 1, alike)], [found.message(1, 0, alike), found.message(1, 2, alike)]])
    table = Table([found.at(0, alike), found.at(1, alike)], messages, np.full((2, 2), plan_costs.tied_seconds(plans[0])))
    candidates = table.candidates(np.tile([0, 1, 1], (8, 1)), layers)
    assert steps(candidates) == pytest.approx(evaluate(plans), rel=1e-12)


def test_what_is_not_held_is_refused(make: dict[str, Make]) -> None:
    machines = make["fleet"](make["cluster"](nodes=4))
    experts = {"experts": 4, "experts_per_token": 2}
    with pytest.raises(PlanError, match=r"zero_stage 3 with ep 2 and vpp 2: .* take turns on two streams of a place"):
        evaluate([make["plan"](machines, dp=4, ep=2, vpp=2, schedule="interleaved", shape=experts, zero_stage=3)])
    uneven = make["plan"](machines, dp=2, microbatches=(1, 2))
    with pytest.raises(PlanError, match="equal num_microbatches; evaluate plans"):
        Table([PlanCosts(uneven).at(0, (0,))], np.zeros((1, 1)))


def test_unlike_replicas_count_by_the_latest(make: dict[str, Make]) -> None:
    plan = make["plan"](make["fleet"](make["cluster"](nodes=2)), dp=2, microbatches=(1, 7), zero_stage=0)
    alone = replace(plan.config, num_microbatches=(7, 7))
    workload = replace(plan.workload, global_batch_size=14)
    assert evaluate([plan]) == pytest.approx(evaluate([replace(plan, config=alone, workload=workload)]), rel=1e-12)
