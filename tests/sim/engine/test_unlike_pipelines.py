"""Unlike pipelines: a timetable by hand, plans of alike replicas that they are equal to, and laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.engine import simulate, simulate_at_length
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.symmetry import fold, unfolded
from sim.hardware.cluster import Device
from sim.kernels import compute, memory
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan
from sim.workload.adapter import Adapter
from tests import builders as make
from tests.sim.plan.pipelines_by_hand import devices, entries, nodes, pipelines

HAND = MadeBy("by hand", "1")
OFFLOADS = [(), (), ("optimizer",), ("activations",), ("optimizer", "activations")]
"""What hosts keep of all stages."""
EXPERTS = {"experts": 4, "experts_per_token": 2}


@pytest.fixture
def simple_layers(monkeypatch: pytest.MonkeyPatch, free_ends: None) -> None:
    """A layer computes its forward in 1 s and its backward in 2 s, and has gradients of 4 MB; all else is free."""
    monkeypatch.setattr(compute, "layer_parts", lambda *_: (1.0, 1.0, 1.0))
    monkeypatch.setattr(memory, "stage_parameters", lambda workload, config, layers, *_: layers * 1e6 / config.tp)


@pytest.mark.parametrize(
    ("microbatches", "bandwidth", "backward", "sums", "step"),
    [
        (1, 4e6, [("B0.0", 4, 6), ("B0.1", 6, 12)], [(9, 10), (18, 21)], 21),
        (4, 0.5e6, [("B3.0", 40, 42), ("B3.1", 42, 48)], [(42, 52), (48, 74)], 74),
    ],
)
@pytest.mark.parametrize("folding", [fold, unfolded])
def test_timetable_of_a_pipeline_of_two_stages_and_one_of_one(
    microbatches, bandwidth, backward, sums, step, folding, simple_layers
):
    """Ranks 0 and 1 share a node and have layers 0 to 2 and layer 3, rank 2 on the other node has all. 1F1B: rank 0 computes
    F0 (until 3), F1 (6), B0 (12), B1 (18); rank 1 F0 (4), B0 (6), F1 (7), B1 (9). The last backward of rank 2 passes layer 3
    first. The sum of a layer's gradients over two NICs takes 1 s, or 8 s in the second case: there the sum of layer 3 begins at
    42, that of the other layers at 48, and both share the NICs until 52."""
    chip, card = make.device(memory_bandwidth=1e18), make.nic(bandwidth=bandwidth)
    machines = make.fleet(make.cluster(nodes=2, devices=2, nics=(card,), spec=chip))
    first, second = make.every_device(machines)[:2], devices(1)
    shapes = (
        {"pp": 2, "layers": (3, 1), "microbatches": 2, "placement": first},
        {"layers": (4,), "microbatches": microbatches, "placement": second},
    )
    plan = pipelines(machines, shapes, zero_stage=0, seq_len=1)
    timeline = simulate_at_length(plan, folding(plan))
    done = {rank: [(s.name, s.start, s.end) for s in timeline.of(rank) if s.kind in ("F", "B")] for rank in (0, 1, 2)}

    def expect(found: list[tuple[str, float, float]], wanted: list[tuple[str, float, float]]) -> None:
        assert [name for name, *_ in found] == [name for name, *_ in wanted]
        moments = [[time for _, *both in rows for time in both] for rows in (found, wanted)]
        assert moments[0] == pytest.approx(moments[1], abs=1e-5)

    expect(done[0], [("F0", 0, 3), ("F1", 3, 6), ("B0", 6, 12), ("B1", 12, 18)])
    expect(done[1], [("F0", 3, 4), ("B0", 4, 6), ("F1", 6, 7), ("B1", 7, 9)])
    expect(done[2][-2:], backward)
    summed = sorted((span.start, span.end) for span in timeline.of(2) if span.group == "dp" and span.kind == "collective")
    assert [time for both in summed for time in both] == pytest.approx([time for both in sums for time in both], abs=1e-5)
    assert timeline.step_s == pytest.approx(step, abs=1e-5)


@pytest.mark.parametrize("folding", [fold, unfolded])
def test_slices_of_unlike_tp_cross_the_nic_once(folding, simple_layers):
    """The rank with tp 1 sums both halves of 16 MB with the two ranks of the other node, at the same time: 16 MB over each NIC
    at 4 MB/s, as with equal tp."""
    machines = nodes(2, devices=2, bandwidth=4e6)
    shapes = ({"tp": 2, "layers": (4,)}, {"layers": (4,), "placement": devices(1)})
    plan = pipelines(machines, shapes, zero_stage=0, overlap_grad_reduce=False)
    timeline = simulate(plan, folding(plan))
    sums = [span for span in timeline.of(2) if span.group == "dp" and span.kind == "collective"]
    assert {round(span.seconds, 9) for span in sums} == {4.0}
    assert len(sums) == 2 if folding is unfolded else 1


def adapted(plan: Plan, adapter: Adapter | None) -> Plan:
    """The plan with adapters in place of all weights."""
    workload = replace(plan.workload, adapter=adapter)
    return replace(plan, workload=workload, topology=replace(plan.topology, workload=workload))


def of_replicas(plan: Plan, number: int, each: int = 1) -> tuple[Device, ...]:
    """The devices of a replica, or of the next `each` replicas after those of smaller numbers, stage by stage."""
    config = plan.config
    own = range(number * each * config.cp, (number + 1) * each * config.cp)
    ranks = (config.rank(one, dp_cp, stage) for stage in range(config.pp) for dp_cp in own for one in range(config.tp))
    return tuple(plan.placement[rank] for rank in ranks)


def alike(draw: st.DrawFn) -> tuple[PipelinesPlan, object]:
    """Replicas as entries of their own, of as many as divide experts, and as one plan; on the same devices."""
    tp, pp, entries = draw(st.sampled_from([1, 2])), draw(st.integers(1, 3)), draw(st.integers(2, 3))
    cp, ep, etp = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([None, 1, 2]))
    etp = etp if ep > 1 or tp > 1 else None
    each = max(1, (etp or tp) * ep // tp // cp)
    numbers = draw(st.sampled_from([(3,) * entries, (2, 7, 4)[:entries], (20,) * entries]))
    layers = tuple(draw(st.lists(st.integers(1, 3), min_size=pp, max_size=pp)))
    machines = draw(make.any_fleet(ranks=24).filter(lambda fleet: fleet.devices >= tp * pp * entries * each * cp))
    free = draw(st.permutations(make.every_device(machines)))
    common = {
        "layers": layers, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "microbatch_size": draw(st.integers(1, 2)),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "zb-h1", "zb-latency"])), "zero_stage": draw(st.integers(0, 1)),
        "overlap_grad_reduce": draw(st.booleans()), "overlap_param_gather": draw(st.booleans()),
        "recompute": draw(st.sampled_from(["none", "full"])), "offload": draw(st.sampled_from(OFFLOADS)),
        "sequence_parallel": tp > 1 and (etp is not None or draw(st.booleans())),
        "shape": {"hidden": draw(st.sampled_from([96, 3072])), "tied_embeddings": draw(st.booleans())}
        | (EXPERTS if ep > 1 or etp else {}),
    }  # fmt: skip
    adapter = draw(st.sampled_from([None, Adapter(8)])) if ep == 1 and not etp and not common["offload"] else None
    if draw(st.booleans()):
        common |= draw(make.unlike_recomputation(pp)) if not common["offload"] and "experts" not in common["shape"] else {}
    many = tuple(number for number in numbers for _ in range(each))
    whole = adapted(make.plan(machines, dp=len(many), microbatches=many, placement=tuple(free), **common), adapter)
    parts = []
    for index, number in enumerate(numbers):
        own = of_replicas(whole, index, each)
        part = make.plan(machines, dp=each, microbatches=number, placement=own, **common)
        parts.append(adapted(part, adapter))
    return of_plans(parts, HAND), whole


@settings(max_examples=10)
@given(data=st.data())
def test_alike_pipelines_are_a_plan_of_alike_replicas(data):
    unlike, whole = data.draw(st.composite(alike)())
    assert simulate(unlike).step_s == pytest.approx(simulate(whole).step_s, rel=1e-9, abs=0)
    found = [memory.peak_memory(pipeline) for pipeline in unlike.pipelines]
    assert tuple(map(max, zip(*found, strict=True))) == pytest.approx(memory.peak_memory(whole), rel=1e-12)


@st.composite
def any_pipelines(draw: st.DrawFn, **common: object) -> PipelinesPlan:
    """Unlike pipelines on any fleet, some of several alike replicas; some divide experts."""
    with_experts = draw(st.booleans())
    machines = draw(make.any_fleet(ranks=24))
    free, layers, shapes = list(draw(st.permutations(make.every_device(machines)))), draw(st.integers(2, 6)), []
    for _ in range(draw(st.integers(2, 3))):
        tp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, min(3, layers)))
        dp, cp = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2]))
        if tp * pp * dp * cp > len(free):
            continue
        cuts = sorted(draw(st.lists(st.integers(1, layers - 1), min_size=pp - 1, max_size=pp - 1, unique=True)))
        own = tuple(end - begin for begin, end in zip((0, *cuts), (*cuts, layers), strict=True))
        many = (draw(st.integers(1, 9)),) * dp
        degrees = [(1, None), (dp * cp, None), (tp * dp * cp, 1)] if with_experts else [(1, None)]
        ep, etp = draw(st.sampled_from([one for one in degrees if one[0] <= EXPERTS["experts"]]))
        shape = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "etp": etp, "layers": own, "microbatches": many}
        shape["placement"] = tuple(free)
        shape["recompute"] = draw(st.sampled_from(["none", "full"]))
        if draw(st.booleans()) and not with_experts:
            shape |= draw(make.unlike_recomputation(pp))
        elif draw(st.booleans()):
            shape["offload"] = draw(st.sampled_from(OFFLOADS))
        shapes.append(shape | {"microbatch_size": draw(st.integers(1, 2))})
        free = free[tp * pp * dp * cp :]
    common = {
        "schedule": draw(st.sampled_from(["1f1b", "zb-h1", "zb-latency"])), "zero_stage": draw(st.integers(0, 1)),
        "overlap_grad_reduce": draw(st.booleans()), "overlap_param_gather": draw(st.booleans()),
        "shape": {"hidden": draw(st.sampled_from([96, 3072]))} | (EXPERTS if with_experts else {}),
        "sequence_parallel": with_experts,
    } | common  # fmt: skip
    return tuple(shapes), entries(machines, shapes, **common), machines, common


@settings(max_examples=10)
@given(data=st.data())
def test_folding_and_extrapolation_change_nothing(data):
    _, plans, *_ = data.draw(any_pipelines().filter(lambda found: len(found[0]) > 1))
    adapter = data.draw(st.sampled_from([None, Adapter(8)])) if not plans[0].workload.model.experts else None
    plan = of_plans([adapted(one, adapter) for one in plans], HAND)
    slow = data.draw(st.sampled_from([None, *plan.placement]))
    drawn = DrawnFaults(slow=((slow, 1.5),)) if slow else NO_FAULTS
    step = simulate_at_length(plan, unfolded(plan, drawn), drawn).step_s
    assert simulate(plan, fold(plan, drawn), drawn).step_s == pytest.approx(step, rel=1e-9, abs=0)
    assert simulate(plan, unfolded(plan, drawn), drawn).step_s == pytest.approx(step, rel=1e-9, abs=0)


@settings(max_examples=15)
@given(data=st.data())
def test_no_step_is_shorter_than_that_of_its_slowest_pipeline_alone(data):
    """Alone, and without sums of gradients: ZeRO 0, one replica on ranks with weights of their own. With cp 2, two ranks alone
    may take longer for a sum than three: where devices of a node are joined in pairs, three have twice the lines."""
    shapes, plans, machines, common = data.draw(any_pipelines(zero_stage=0).filter(lambda found: len(found[0]) > 1))
    alone = [0.0]
    for shape, plan in zip(shapes, plans, strict=True):
        if plan.config.cp == 1 and not plan.config.splits_experts:
            own = {"dp": 1, "microbatches": shape["microbatches"][0], "placement": of_replicas(plan, 0)}
            alone.append(simulate(make.plan(machines, **common | shape | own)).step_s)
    assert simulate(of_plans(plans, HAND)).step_s >= max(alone) * (1 - 1e-9)


def test_pipelines_that_compute_otherwise_are_classes_of_their_own():
    shapes = ({"layers": (4,)}, {"layers": (4,)}, {"layers": (4,), "microbatch_size": 2}, {"layers": (4,), "recompute": "full"})
    assert fold(pipelines(nodes(4), shapes)).alike == ((0, 1), (2,), (3,))


def test_where_messages_and_sums_are_free_the_slowest_pipeline_sets_the_step(simple_layers):
    """1F1B with m microbatches: equal stages of 2 layers take (m + 1) x 6 s, one stage of 4 layers m x 12 s, and unlike stages
    of 1 and 3 layers one slot of the first, then m of the last: 3 + m x 9 s."""
    machines = nodes(5, bandwidth=1e18)
    shapes = ({"pp": 2, "layers": (2, 2), "microbatches": 7}, {"layers": (4,)}, {"pp": 2, "layers": (1, 3)})
    for numbers, step in (((7, 3, 4), 48), ((1, 5, 3), 60), ((6, 3, 5), 48), ((7, 1, 6), 57)):
        own = [shape | {"microbatches": number} for shape, number in zip(shapes, numbers, strict=True)]
        assert simulate(pipelines(machines, own)).step_s == pytest.approx(step, abs=1e-3)
