"""A measured step beside the prediction of its plan and a new simulation: a simulated step, stretched by known factors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import charts
from holmes_sim.measurement import MeasuredStep, measured_step
from holmes_sim.running import is_comparable
from sim.engine.engine import simulate
from sim.engine.timeline import PeakBytes, Timeline
from sim.errors import HolmesError, TimelineError
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.results import report
from tests import builders
from tests.builders import cluster, nic

FACTORS = {"compute": 1.25, "dp": 2.0, "send": 0.8, "return": 0.8, "wait": 1.0}
"""By how much the spans of each lane are longer than simulated, beyond the scale."""
SCALE = 10.0


@pytest.fixture
def plan() -> Plan:
    """Two stages of two replicas, a node each."""
    fleet = builders.fleet(cluster("c", nodes=4, nics=(nic(bandwidth=1e9),)))
    made = builders.plan(fleet, pp=2, dp=2, microbatches=3)
    return replace(made, prediction=report.predict(made, simulate(made)))


def measured(plan: Plan, factors: dict[str, float] = FACTORS, scale: float = SCALE) -> Timeline:
    """Every rank by itself, as a measurement has them; the second replica computes for a fifth longer yet."""
    simulated = simulate(plan)
    spans = []
    for rank in range(plan.config.world_size):
        slow = 1.2 if plan.config.coordinates(rank)[1] == 1 and factors is FACTORS else 1.0
        for span in simulated.of(rank):
            factor = scale * factors[span.lane] * (slow if span.lane == "compute" else 1.0)
            start = scale * span.start
            spans.append(span._replace(rank=rank, start=start, end=start + factor * span.seconds))
    step = 1.5 * scale * simulated.step_s
    return replace(
        simulated,
        origin="measured",
        alike=tuple((rank,) for rank in range(plan.config.world_size)),
        spans=tuple(spans),
        step_s=step,
        steps_s=(step, 0.9 * step, 1.1 * step),
        scale=scale,
        compute="paced",
    )


def test_memory_is_that_of_the_rank_that_took_most(plan: Plan) -> None:
    """Two stages of two ranks; torch reserves what it needs here, and CUDA takes 2 GB."""
    peaks = (PeakBytes(1e9, 2e9, 4e8), PeakBytes(3e9, 1e9, 5e8), PeakBytes(1e9, 1e9, 0.0), PeakBytes(1e9, 1e9, 0.0))
    row = measured_step(plan, simulate(plan), replace(measured(plan), peak_bytes=peaks), "run")
    needed = memory.torch_bytes(plan)
    assert [(line.pp_rank, line.name, line.predicted, line.measured) for line in row.memory] == [
        (0, "allocated", needed[0], 3e9), (0, "reserved", needed[0], 2e9), (0, "outside", 2267959552.0, 5e8),
        (1, "allocated", needed[1], 1e9), (1, "reserved", needed[1], 1e9), (1, "outside", 2267959552.0, 0.0),
    ]  # fmt: skip
    assert row.memory[2].error == pytest.approx(3.5359191)
    assert row.memory[5].error is None
    assert row.facts()["memory"][0] == {
        "stage": 0, "name": "allocated", "predicted_bytes": needed[0], "measured_bytes": 3e9, "error": needed[0] / 3e9 - 1,
    }  # fmt: skip


@pytest.fixture
def comparison(plan: Plan) -> MeasuredStep:
    return measured_step(plan, simulate(plan), measured(plan), "lab.json")


def test_predicted_and_simulated_times_are_multiplied_by_the_scale(plan: Plan, comparison: MeasuredStep) -> None:
    assert plan.prediction is not None
    assert comparison.step.predicted == comparison.step.simulated == SCALE * plan.prediction.step_s
    assert comparison.step.measured == pytest.approx(1.5 * SCALE * plan.prediction.step_s)
    assert comparison.step.error == pytest.approx(-1 / 3)
    assert comparison.spread == pytest.approx(0.2)
    exposed = {line.name: line for line in comparison.seconds}["exposed"]
    assert exposed.predicted == pytest.approx(exposed.simulated)


def test_errors_are_those_of_the_factors(comparison: MeasuredStep) -> None:
    """Compute is 1.25 and 1.5 times as long on the two replicas, so 1.375 on a mean rank."""
    for row in comparison.pipeline_ranks:
        compute, exposed, bubble, other = row.seconds
        assert (row.ranks, compute.name) == (2, "compute")
        assert compute.error == pytest.approx(1 / 1.375 - 1)
        assert compute.most == pytest.approx(1.2 * compute.least)
        assert (exposed.error, bubble.error) == (pytest.approx(0.0), pytest.approx(0.0))
        assert other.simulated is None
        assert other.measured == pytest.approx(1.5 * comparison.step.simulated - sum(x.measured for x in row.seconds[:3]))
    first, second = ({line.name: line.error for line in row.groups} for row in comparison.pipeline_ranks)
    assert first == {"dp": pytest.approx(-0.5), "pp activations": pytest.approx(0.25)}
    assert second == {"dp": pytest.approx(-0.5), "pp gradients": pytest.approx(0.25)}


def test_a_simulated_timeline_has_no_errors(plan: Plan) -> None:
    found = measured_step(plan, simulate(plan), simulate(plan), "again.json")
    lines = [found.step, *found.seconds, *(line for row in found.pipeline_ranks for line in (*row.seconds, *row.groups))]
    assert {line.error for line in lines} == {0.0, None}
    assert found.spread is None


def test_a_kind_of_group_that_only_one_of_both_has_is_listed_without_an_error(plan: Plan) -> None:
    seen = measured(plan)
    spans = tuple(span._replace(lane="edp", group="edp") if span.lane == "dp" else span for span in seen.spans)
    found = measured_step(plan, simulate(plan), replace(seen, spans=spans), "lab.json")
    lines = {line.name: line for line in found.pipeline_ranks[0].groups}
    assert (lines["dp"].measured, lines["dp"].error) == (None, None)
    assert (lines["edp"].simulated, lines["edp"].error) == (None, None)


def test_plain_data(comparison: MeasuredStep) -> None:
    facts = comparison.facts()
    assert {key: facts[key] for key in ("name", "origin", "compute", "scale")} == {
        "name": "lab.json", "origin": "measured", "compute": "paced", "scale": 10.0,
    }  # fmt: skip
    assert facts["step"]["error"] == comparison.step.error and facts["step"]["spread"] == comparison.spread
    assert list(facts["seconds"]) == ["compute", "exposed", "bubble", "other"]
    assert facts["stages"][1]["groups"]["dp"]["error"] == pytest.approx(-0.5)


def test_a_timeline_of_another_plan_is_refused(plan: Plan) -> None:
    simulated, seen = simulate(plan), measured(plan)
    wrong = {
        "plan_digest: 'feed' belongs to another plan; timelines of this plan have ": replace(seen, plan_digest="feed"),
        "alike: 5 ranks; the plan has 4": replace(seen, alike=(*seen.alike, (4,))),
        "its stages are 0; the plan has 0, 1": replace(
            seen, spans=tuple(s._replace(stage=min(s.stage, 0)) for s in seen.spans)
        ),
    }
    for text, timeline in wrong.items():
        with pytest.raises(TimelineError) as caught:
            measured_step(plan, simulated, timeline, "t.json")
        assert str(caught.value).startswith(f"t.json: {text}")


def test_the_digest_of_the_plan_without_its_profile_is_right_too(plan: Plan) -> None:
    other = replace(measured(plan), plan_digest="feed")
    assert measured_step(plan, simulate(plan), other, "t.json", ("feed",)).measured is other


# the picture


def test_the_measured_step_stands_below_the_simulated_one_on_one_axis(plan: Plan, comparison: MeasuredStep) -> None:
    figure = charts.measurement([comparison])
    above, below = figure.axes
    assert above.get_xlim() == below.get_xlim() == (0.0, comparison.measured.step_s)
    assert [label.get_text() for label in above.get_yticklabels()] == ["stage 0 · c (ranks 0-1)", "stage 1 · c (ranks 2-3)"]
    assert [label.get_text() for label in below.get_yticklabels()] == ["stage 0 · c (rank 0)", "stage 1 · c (rank 2)"]
    assert above.get_title("left").startswith("simulated: ") and above.get_title("left").endswith(
        ", 10 times as long as planned"
    )
    assert below.get_title("left").startswith("measured, paced compute: ")
    assert below.get_title("left").endswith(" (lab.json; simulated -33.3%)")
    for axes, timeline, ranks in ((above, comparison.simulated, (0, 2)), (below, comparison.measured, (0, 2))):
        (drawn,) = (c for c in axes.collections if c.get_gid() == "F")
        boxes = sorted((box.y0, box.x0, box.x1) for box in (path.get_extents() for path in drawn.get_paths()))
        spans = [(float(row), s.start, s.end) for row, rank in enumerate(ranks) for s in timeline.of(rank) if s.kind == "F"]
        assert boxes == [pytest.approx(box) for box in sorted(spans)]


def test_timelines_of_two_scales_have_no_common_axis(plan: Plan, comparison: MeasuredStep) -> None:
    other = measured_step(plan, simulate(plan), measured(plan, scale=20.0), "other.json")
    with pytest.raises(
        HolmesError, match=r"^timelines at scales 10 and 20 have no common time axis; draw timelines of one scale$"
    ):
        charts.measurement([comparison, other])
    assert len(charts.measurement([comparison, comparison]).axes) == 3


def test_a_timeline_alone_is_drawn_by_its_stages(plan: Plan, comparison: MeasuredStep) -> None:
    figure = charts.timeline(comparison.measured)
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["stage 0 (rank 0)", "stage 0 (rank 1)", "stage 1 (rank 2)", "stage 1 (rank 3)"]
    assert "measured step " in figure.get_suptitle() and "paced compute, 10 times as long as planned" in figure.get_suptitle()


@pytest.mark.parametrize(
    ("computed_on", "comparable"), [(("CPU",), False), (("A100", "CPU"), False), (("A100",), True), ((), True)]
)
def test_a_cpu_in_place_of_a_device_says_nothing_about_its_prediction(computed_on: tuple[str, ...], comparable: bool) -> None:
    plan = builders.plan(builders.fleet(builders.cluster()))
    simulated = simulate(plan)
    measured = replace(simulated, computed_on=computed_on)
    compared = measured_step(plan, simulated, measured, "run")
    assert is_comparable(compared.measured.computed_on, compared.plan.specs) is comparable
