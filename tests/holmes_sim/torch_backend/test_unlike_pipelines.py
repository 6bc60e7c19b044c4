"""Losses and weights of unlike pipelines equal those of one process that trains the same model on the same data."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

from holmes_sim import printing, running  # noqa: E402
from holmes_sim.measurement import measured_step  # noqa: E402
from holmes_sim.torch_backend import local  # noqa: E402
from holmes_sim.torch_backend.groups import groups_of, numbered  # noqa: E402
from holmes_sim.torch_backend.rank_in_plan import RankInPlan  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from sim.engine.engine import simulate  # noqa: E402
from sim.engine.timeline import from_json  # noqa: E402
from sim.hardware.cluster import Device  # noqa: E402
from sim.plan.pipelines import PipelinesPlan, of_plans  # noqa: E402
from sim.plan.plan import Plan  # noqa: E402
from sim.workload.adapter import Adapter  # noqa: E402
from tests.holmes_sim.documents import conforms  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import (  # noqa: E402
    GPT,
    GRADIENTS_CLOSE,
    LLAMA,
    STEPS,
    alone,
    part,
    plan_of,
)
from tests.more import after  # noqa: E402

Shape = tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]
"""Layers of the stages, microbatches of the replicas, and further settings of an entry."""
GPT_UNTIED = GPT.replace("}", ", tied_embeddings: false}")
EXPERTS = GPT_UNTIED.replace("}", ", experts: 4, experts_per_token: 2}")
OF_TWO = {"microbatch_size": 2, "recompute": "full"}
CASES: dict[str, tuple[tuple[Shape, ...], dict[str, object]]] = {
    "two stages and one": ((((3, 2), (3,), {}), ((5,), (2,), {})), {"model": LLAMA}),
    "3|2 and 1|4, tied, microbatches of 1 and 2": ((((3, 2), (3,), {}), ((1, 4), (2,), OF_TWO)), {}),
    "three entries, two replicas alike, zero 0": (
        (((1, 2, 2), (1,), {}), ((4, 1), (2, 1), OF_TWO), ((5,), (1,), {})),
        {"model": LLAMA, "zero_stage": 0},
    ),
    "tp 2, embedding alone, nothing overlapped": (
        (((0, 5), (2,), {}), ((2, 3), (1,), {})),
        {"tp": 2, "sequence_parallel": True, "overlap_grad_reduce": False, "overlap_param_gather": False},
    ),
    "zb-h1": ((((2, 3), (4,), {}), ((4, 1), (2,), {})), {"model": LLAMA, "schedule": "zb-h1"}),
    "zb-latency": ((((1, 2, 2), (4,), {}), ((4, 1), (2,), {})), {"model": LLAMA, "schedule": "zb-latency"}),
    "tp 1 and 2": ((((5,), (3,), {}), ((3, 2), (2,), {"tp": 2})), {"model": LLAMA}),
    "tp 2 | 1 and 1 | 2, tied, sequence parallel": (
        (((2, 3), (3,), {"tp": 2, "stage_tp": (2, 1)}), ((4, 1), (1,), OF_TWO | {"tp": 2, "stage_tp": (1, 2)})),
        {"sequence_parallel": True, "zero_stage": 0},
    ),
    "tp 4 and 2, sequence parallel, zb-h1": (
        (((5,), (2,), {"tp": 4}), ((3, 2), (2,), {"tp": 2})),
        {"model": GPT_UNTIED, "sequence_parallel": True, "schedule": "zb-h1"},
    ),
    "adapters on 4 bits, two stages and one, tied": (
        (((3, 2), (3,), {}), ((5,), (2,), OF_TWO)),
        {"adapter": Adapter(4, base_precision="nf4")},
    ),
    "adapters, tp 2 | 1 and 1": (
        (((2, 3), (2,), {"tp": 2, "stage_tp": (2, 1)}), ((5,), (1,), {})),
        {"model": LLAMA, "adapter": Adapter(4)},
    ),
    "cp 2 and tp 2": ((((5,), (2,), {"cp": 2}), ((3, 2), (2,), {"tp": 2})), {"model": LLAMA}),
    "cp 1, cp 2 in two stages, zb-h1, tied": (
        (((2, 3), (3,), {}), ((4, 1), (2,), {"cp": 2, "microbatch_size": 2})),
        {"schedule": "zb-h1"},
    ),
    "ep 2 and 1": ((((5,), (1, 1), {"ep": 2}), ((2, 3), (1,), {})), {"model": EXPERTS}),
    "ep 2 across tp and 1, zb-h1": (
        (((2, 3), (3,), {"tp": 2, "ep": 2, "etp": 1}), ((5,), (2,), {})),
        {"model": EXPERTS, "sequence_parallel": True, "schedule": "zb-h1"},
    ),
    "etp 2 and 1 of tp 2, ep 1 and 2, zero 0": (
        (((5,), (2,), {"tp": 2}), ((4, 1), (1,), {"tp": 2, "ep": 2, "etp": 1})),
        {"model": EXPERTS, "sequence_parallel": True, "zero_stage": 0},
    ),
    "ep 4 over tp and dp, and 1 of tp 1": (
        (((5,), (1, 1), {"tp": 2, "ep": 4, "etp": 1}), ((3, 2), (2,), {})),
        {"model": EXPERTS, "sequence_parallel": True},
    ),
    "Adam on hosts of one, activations of the other, recomputation by stage, tp 1 and 2": (
        (
            (
                (2, 3),
                (2,),
                {"tp": 2, "offload": ("optimizer",), "recompute": "full", "stage_recompute": ("layernorm+mlp", "full")},
            ),
            ((4, 1), (2,), {"offload": ("optimizer", "activations"), "stage_offload": ("activations", "optimizer")}),
        ),
        {"model": LLAMA, "sequence_parallel": True},
    ),
    "experts, tp 1 and 2": ((((5,), (2,), {}), ((5,), (1,), {"tp": 2})), {"model": EXPERTS}),
}
LATER = (
    "tp 4 and 2, sequence parallel, zb-h1", "cp 2 and tp 2", "tp 1 and 2", "zb-h1", "adapters, tp 2 | 1 and 1",
    "3|2 and 1|4, tied, microbatches of 1 and 2", "three entries, two replicas alike, zero 0", "zb-latency",
    "ep 2 and 1", "ep 2 across tp and 1, zb-h1", "ep 4 over tp and dp, and 1 of tp 1", "experts, tp 1 and 2",
)  # fmt: skip
"""Cases whose features others have in pairs, for `make test-more`."""


def made(folder: Path, shapes: tuple[Shape, ...], **options: object) -> tuple[PipelinesPlan, Plan]:
    """(unlike pipelines on the devices of a node in order, one replica of one stage for each of theirs)."""
    plans, first, adapter = [], 0, options.pop("adapter", None)
    for layers, microbatches, own in shapes:
        plan = adapted(plan_of(folder, layers, microbatches, **options | own), adapter)  # type: ignore[arg-type]
        placement = tuple(Device("a", 0, first + index) for index in range(plan.config.world_size))
        plans.append(replace(plan, placement=placement))
        first += len(placement)
    numbers = tuple(number * int(own.get("microbatch_size", 1)) for _, many, own in shapes for number in many)
    whole = adapted(plan_of(folder, (5,), numbers, **options), adapter)  # type: ignore[arg-type]
    plans = [replace(plan, topology=whole.topology) for plan in plans]
    return of_plans(plans, plans[0].made_by), whole


def adapted(plan: Plan, adapter: Adapter | None) -> Plan:
    """The plan with adapters in place of all weights."""
    workload = replace(plan.workload, adapter=adapter)
    return replace(plan, workload=workload, topology=replace(plan.topology, workload=workload))


@pytest.mark.parametrize("name", after(len(CASES) - len(LATER), sorted(CASES, key=lambda name: name in LATER)))
def test_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    shapes, options = CASES[name]
    plan, whole = made(tmp_path, shapes, **options)
    here.run(plan, RunOptions(steps=STEPS - 1, weights=str(tmp_path), output=str(tmp_path / "timeline.json")))
    losses, weights, moments = alone(whole, STEPS)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(len(plan.placement))]
    total, seen = torch.zeros(STEPS), set()
    for rank, result in enumerate(results):
        place = RankInPlan.of(plan, rank)
        if place.plan.config.coordinates(place.rank)[0] == 0:
            total += result["losses"]
        for weight_name, weight in result["weights"].items():
            expected, mean = (
                part(place.plan, weight_name, every[weight_name], weight.shape, place.rank) for every in (weights, moments)
            )
            torch.testing.assert_close(weight, expected, rtol=0, atol=1e-5, msg=f"rank {rank}: {weight_name}")
            close = GRADIENTS_CLOSE * float(moments[weight_name].abs().max())
            torch.testing.assert_close(result["moments"][weight_name], mean, rtol=0, atol=close, msg=f"{rank}: {weight_name}")
            seen.add(weight_name)
    assert total.tolist() == pytest.approx(losses, rel=1e-5)
    assert seen == set(weights)
    timeline = from_json((tmp_path / "timeline.json").read_text(), "timeline.json")
    assert {span.rank for span in timeline.spans if span.group == "dp"} == set(range(len(results)))


def test_paced_ranks_sum_each_section(tmp_path: Path, here: local.Local) -> None:
    """Layers 0 to 2 and 3 to 4 are sections: rank 2, which has all layers, reduces both. (A first gather may end before the
    clocks of all ranks say that the step has begun.)"""
    plan, _ = made(tmp_path, CASES["two stages and one"][0], model=LLAMA)
    here.run(plan, RunOptions(steps=1, compute="paced", output=str(tmp_path / "timeline.json")))
    timeline = from_json((tmp_path / "timeline.json").read_text(), "timeline.json")
    spans = [[span.name for span in timeline.of(rank) if (span.kind, span.group) == ("collective", "dp")] for rank in range(3)]
    assert [sum("reduce_scatter" in name for name in names) for names in spans] == [1, 1, 2]


def test_paced_ranks_sum_each_part_of_the_experts(tmp_path: Path, here: local.Local) -> None:
    """Two sections: layers 0 and 1, and 2 to 4. Ranks 0 and 1 have one of two parts of the experts of both, rank 2 has both
    parts of the first, rank 3 both of the second: each reduces two."""
    plan, _ = made(tmp_path, CASES["ep 2 and 1"][0], model=EXPERTS)
    here.run(plan, RunOptions(steps=1, compute="paced", output=str(tmp_path / "timeline.json")))
    timeline = from_json((tmp_path / "timeline.json").read_text(), "timeline.json")
    spans = [[span.name for span in timeline.of(rank) if (span.kind, span.group) == ("collective", "edp")] for rank in range(4)]
    assert [sum("reduce_scatter" in name for name in names) for names in spans] == [2, 2, 2, 2]
    assert [len(RankInPlan.of(plan, rank).groups_of("edp", int(rank > 2))) for rank in range(4)] == [1, 1, 2, 2]


def test_a_measured_step_is_compared_with_the_simulated_one(tmp_path: Path, here: local.Local) -> None:
    plan, _ = made(tmp_path, CASES["two stages and one"][0], model=LLAMA)
    here.run(plan, RunOptions(steps=1, compute="paced", output=str(tmp_path / "timeline.json")))
    measured = from_json((tmp_path / "timeline.json").read_text(), "timeline.json")
    compared = measured_step(plan, simulate(plan), measured, "run")
    document = running.facts(compared)
    assert conforms(document) == "run"
    assert document["predicted"]["step_s"] == pytest.approx(simulate(plan).step_s)
    assert document["measured"]["step_s"] >= document["predicted"]["step_s"]
    console = Console(record=True, file=StringIO())
    console.print(printing.measured((compared,)))
    assert console.export_text().count(" | 1f1b | ZeRO 1 | ") == 2


def test_a_rank_has_a_group_for_each_slice(tmp_path: Path) -> None:
    """The rank with tp 1 has two slices of each section, of layers 0 to 2 and 3 to 4: it is in a group for each."""
    narrow, wide = (plan_of(tmp_path, layers, (2,), model=LLAMA, tp=tp) for layers, tp in (((5,), 1), ((3, 2), 2)))
    placement = tuple(Device("a", 0, 1 + index) for index in range(4))
    plans = [replace(one, topology=narrow.topology) for one in (narrow, replace(wide, placement=placement))]
    plan = of_plans(plans, narrow.made_by)
    assert [group.ranks for group in groups_of(plan, 0)] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert RankInPlan.of(plan, 0).groups_of("dp", 1) == ("dp 2", "dp 3")
    assert RankInPlan.of(plan, 4).groups_of("dp", 1) == ("dp",)


def test_all_ranks_of_a_group_have_made_as_many_groups_before(tmp_path: Path) -> None:
    plan, _ = made(tmp_path, CASES["three entries, two replicas alike, zero 0"][0], model=LLAMA)
    of_rank = [dict(numbered(plan, rank)) for rank in range(len(plan.placement))]
    for groups in of_rank:
        for group, number in groups.items():
            assert {of_rank[rank][group] for rank in group.ranks} == {number}
