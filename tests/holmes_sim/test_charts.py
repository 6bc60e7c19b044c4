"""Pictures: bars equal spans, places stand on their devices, files are whole, repeatable or not there."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from holmes_sim import charts
from holmes_sim.front import Front
from holmes_sim.intervals import step_range
from holmes_sim.results import Compared
from planner.api import Row
from planner.request import Request
from sim.engine import engine
from sim.engine.timeline import Span, Timeline
from sim.errors import HolmesError
from sim.formats import topology
from sim.hardware.cluster import Device, Trunk
from sim.hardware.measured import MeasuredRow, Profile, shape
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.plan.prediction import Prediction
from sim.results import roofline
from sim.results.disaggregated_timeline import disaggregated_timeline
from tests import builders, two_rank_sets
from tests.builders import device
from tests.more import after

TRUNK = Trunk(("a", "b"), "infiniband", 1e10, 5e-5)
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
KINDS = ("hethub-768", "holmes-hybrid-4", "mixed-h100-a100-v100", "two-sites-trunk", "peers/dtfm-4-worldwide")
"""Topologies that differ in what is drawn: hundreds of nodes, NICs, devices, trunks, many clusters."""
DRAWN = [*(path.stem for path in sorted(TOPOLOGIES.glob("*.yaml"))), "peers/dtfm-4-worldwide"]


def plan_of(path: Path, tp: int, pp: int, dp: int, **more: object) -> Plan:
    read = topology.load(path)
    assert read.workload is not None
    config = ParallelConfig(tp, pp, dp, num_microbatches=(read.workload.global_batch_size // dp,) * dp, **more)  # type: ignore[arg-type]
    every = [Device(c.name, n, i) for c in read.fleet.clusters for n in range(c.nodes) for i in range(c.node.count)]
    placement = tuple(every[: config.world_size])
    cuts = [read.workload.model.layers * i // config.num_stages for i in range(config.num_stages + 1)]
    stages = tuple(Stage(a, b) for a, b in pairwise(cuts))
    return Plan(read, read.workload, config, stages, placement, groups_of(read.fleet, config, placement), MadeBy("test", "0"))


@pytest.fixture
def plan() -> Plan:
    """Two stages on one of two clusters of two devices."""
    trunk = Trunk(("left", "right"), "infiniband", 1e10, 5e-5)
    fleet = builders.fleet(builders.cluster("left", devices=2), builders.cluster("right", devices=2), trunks=(trunk,))
    return builders.plan(fleet, pp=2, microbatches=4, layers=(12, 12))


def timeline_of(*spans: Span, alike: tuple[tuple[int, ...], ...] = ((0,), (1,))) -> Timeline:
    return Timeline("tiny", "simulated", "", max(span.end for span in spans), 1, 1.0, alike, spans)


def bars(figure: Figure, kind: str) -> list[tuple[float, float, float, float]]:
    (drawn,) = (c for c in main_axes(figure).collections if c.get_gid() == kind)
    assert isinstance(drawn, PolyCollection)
    boxes = [path.get_extents() for path in drawn.get_paths()]
    return [(round(b.x0, 9), round(b.x1, 9), round(b.y0, 9), round(b.y1, 9)) for b in boxes]


def main_axes(figure: Figure) -> Axes:
    return figure.axes[0]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in main_axes(figure).texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def png(figure: Figure) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def test_every_span_is_a_bar_where_it_happened(plan: Plan) -> None:
    figure = charts.pipeline(
        plan,
        timeline_of(
            Span(0, "compute", "F0", "F", 0.0, 1.0, 0, 0),
            Span(0, "send", "send F0", "send", 1.0, 1.5, 0, 0),
            Span(0, "wait", "send F0", "exposed", 1.0, 1.5, 0, 0),
            Span(0, "tp", "tp all_reduce", "collective", 1.25, 1.5),
            Span(0, "dp", "dp all_reduce", "collective", 3.0, 4.0),
            Span(1, "wait", "wait F0", "bubble", 0.0, 1.0, 1, 0),
            Span(1, "compute", "B0", "B", 2.0, 3.5, 1, 0),
            Span(1, "compute", "optimizer", "optimizer", 3.5, 4.0),
        ),
    )
    assert bars(figure, "F") == [(0.0, 1.0, 0.0, 0.66)]
    assert bars(figure, "send") == [(1.0, 1.5, 0.88, 0.95)]
    assert bars(figure, "exposed") == [(1.0, 1.5, 0.0, 0.66)]
    assert bars(figure, "tp") == [(1.25, 1.5, 0.0, 0.66), (1.25, 1.5, 0.7, 0.77)]
    assert bars(figure, "dp") == [(3.0, 4.0, 0.79, 0.86)]
    assert bars(figure, "bubble") == [(0.0, 1.0, 1.0, 1.66)]
    assert bars(figure, "B") == [(2.0, 3.5, 1.0, 1.66)]
    assert bars(figure, "optimizer") == [(3.5, 4.0, 1.0, 1.66)]
    assert main_axes(figure).get_xlim() == (0.0, 4.0)


def test_bars_of_a_simulated_step_cover_its_spans(plan: Plan) -> None:
    timeline = engine.simulate(plan)
    figure = charts.pipeline(plan, timeline)
    for kind in ("F", "B", "bubble", "exposed", "optimizer"):
        spans = [span for span in timeline.spans if span.kind == kind]
        drawn = bars(figure, kind)
        assert sum(end - start for start, end, _, _ in drawn) == pytest.approx(sum(span.seconds for span in spans), abs=1e-8)
        for span in spans:
            row = float(span.rank)
            assert any(y == row and start <= span.start + 1e-9 and span.end <= end + 1e-9 for start, end, y, _ in drawn)


def test_parts_of_a_microbatch_that_touch_are_one_bar(plan: Plan) -> None:
    parts = [Span(0, "compute", f"F0.{i}", "F", i, i + 1.0, 0, 0) for i in range(3)]
    later = [Span(0, "compute", "F1.0", "F", 3.0, 4.0, 0, 1), Span(0, "compute", "F1.1", "F", 5.0, 6.0, 0, 1)]
    figure = charts.pipeline(plan, timeline_of(*parts, *later))
    assert [(start, end) for start, end, _, _ in bars(figure, "F")] == [(0.0, 3.0), (3.0, 4.0), (5.0, 6.0)]
    assert texts(figure) == ["0", "1"]


def test_the_pipeline_names_its_rows_times_and_colours(plan: Plan) -> None:
    figure = charts.pipeline(plan, engine.simulate(plan))
    axes = main_axes(figure)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0 · left (rank 0)", "stage 1 · left (rank 1)"]
    assert axes.get_xlabel() == "time in the step (s)"
    title = figure.get_suptitle()
    assert title.startswith("tiny · tiny: simulated step ")
    assert "tp 1 · pp 2 · dp 1 · 1f1b · 4 microbatches of 1 per replica" in title
    assert legend(figure)[:2] == ["forward", "backward"]
    assert "bubble" in legend(figure)
    assert sorted(texts(figure)) == ["0", "0", "0", "0", "1", "1", "1", "1", "2", "2", "2", "2", "3", "3", "3", "3"]


def test_two_sets_of_ranks_have_names_and_their_layers_no_numbers():
    found = disaggregated_timeline(two_rank_sets.plan())
    named, numbered = charts.timeline(found, ("attention", "experts")), charts.timeline(found)
    assert [label.get_text() for label in main_axes(named).get_yticklabels()] == ["attention (ranks 0-1)", "experts (rank 2)"]
    assert texts(named) == [] != texts(numbered)


def test_a_box_too_narrow_for_its_number_has_none(plan: Plan) -> None:
    wide, narrow = Span(0, "compute", "F0", "F", 0.0, 10.0, 0, 0), Span(1, "compute", "F1", "F", 0.0, 0.01, 1, 1)
    assert texts(charts.pipeline(plan, timeline_of(wide, narrow))) == ["0"]


def test_virtual_stages_of_a_pipeline_rank_share_its_row() -> None:
    plan = plan_of(TOPOLOGIES / "holmes-infiniband-4.yaml", 2, 2, 8, vpp=3, schedule="interleaved", sequence_parallel=True)
    rows = [label.get_text() for label in main_axes(charts.pipeline(plan, engine.simulate(plan))).get_yticklabels()]
    assert rows[0].startswith("stages 0, 2, 4 · ib · tp 2 (")
    assert rows[-1].startswith("stages 1, 3, 5 · ib · tp 2 (")


def test_a_thousand_devices_are_a_row_a_stage() -> None:
    plan = plan_of(TOPOLOGIES / "dgx-a100-128.yaml", 8, 16, 8, sequence_parallel=True)
    rows = [label.get_text() for label in main_axes(charts.pipeline(plan, engine.simulate(plan))).get_yticklabels()]
    assert rows[0] == "stage 0 · main · tp 8 (ranks 0-63)"
    assert rows[15] == "stage 15 · main · tp 8 (ranks 960-1023)"
    assert len(rows) == 16


def test_too_many_classes_of_ranks_thin_out_and_say_so() -> None:
    plan = plan_of(TOPOLOGIES / "holmes-infiniband-8.yaml", 1, 2, 32)
    alike = tuple((rank,) for rank in range(64))
    spans = (Span(rank, "compute", "F0", "F", 0.0, 1.0, rank // 32, 0) for rank in range(64))
    figure = charts.pipeline(plan, timeline_of(*spans, alike=alike))
    rows = [label.get_text() for label in main_axes(figure).get_yticklabels()]
    assert [row[:7] for row in rows] == ["stage 0"] * 16 + ["stage 1"] * 16
    assert "32 of 64 classes of ranks shown" in figure.get_suptitle()


def test_the_timeline_of_another_plan_is_refused(plan: Plan) -> None:
    strange = replace(engine.simulate(plan), alike=((0,), (1,), (2,)))
    with pytest.raises(HolmesError) as caught:
        charts.pipeline(plan, strange)
    assert str(caught.value) == "the timeline has 3 ranks, the plan 2; give the timeline of this plan"


def test_the_fleet_says_what_its_clusters_and_trunks_are() -> None:
    found = texts(charts.topology(topology.load(TOPOLOGIES / "holmes-hybrid-4.yaml")))
    assert found[0] == "holmes-hybrid-4: 32 devices · 4 nodes in 2 clusters · 2.475 TiB · 9.984 PFLOP/s fp16"
    for words in (
        "ib",
        "roce",
        "2 nodes × 8 devices = 16",
        "a100-sxm4-80gb · 79.2 GiB · 312 TFLOP/s bf16",
        "inside a node: nvlink3 · 300 GB/s per device",
        "4 × 200 Gbit/s infiniband per node",
        "2 × 200 Gbit/s roce per node",
        "ethernet · 50 Gbit/s · 50 us",
    ):
        assert words in found


def test_many_nodes_are_one_node_and_a_factor() -> None:
    figure = charts.topology(topology.load(TOPOLOGIES / "hethub-768.yaml"))
    assert {"16 ×", "80 ×"} <= set(texts(figure))
    assert sum(isinstance(patch, Rectangle) for patch in main_axes(figure).patches) < 50


@pytest.mark.parametrize("name", after(len(KINDS), sorted(DRAWN, key=lambda name: name not in KINDS)))
def test_every_topology_can_be_drawn(name: str) -> None:
    assert png(charts.topology(topology.load(TOPOLOGIES / f"{name}.yaml")))


def test_working_devices_have_their_stage_and_idle_ones_are_grey(plan: Plan) -> None:
    figure = charts.placement(plan)
    assert legend(figure) == ["stage 0: layers 0-11", "stage 1: layers 12-23", "idle: 2 devices"]
    devices = [p for p in main_axes(figure).patches if isinstance(p, Rectangle) and round(p.get_width(), 6) == 0.24]
    red_green_blue = [tuple(round(255 * part) for part in patch.get_facecolor()[:3]) for patch in devices]
    assert red_green_blue == [(213, 194, 255), (46, 0, 110), (189, 189, 189), (189, 189, 189)]
    assert [text for text in texts(figure) if text.isdigit()] == ["0", "1"]


def test_a_big_fleet_has_one_box_a_node() -> None:
    plan = plan_of(TOPOLOGIES / "dgx-a100-128.yaml", 8, 16, 8, sequence_parallel=True)
    figure = charts.placement(plan)
    assert [text for text in texts(figure) if text.isdigit()] == [str(stage) for stage in range(16) for _ in range(8)]
    assert legend(figure)[15] == "stage 15: layers 90-95"


@pytest.fixture
def compared(plan: Plan) -> Compared:
    """Three strategies: 4 samples in 1 s, of at most 8; in 0.5 s, of at most 10; and none."""

    def predicted(step_s: float, share: float) -> Plan:
        return replace(plan, prediction=Prediction(step_s, 4 / step_s, 0.0, 0.0, 0.0, (), 0.0, 0.0, share))

    rows = (Row("slow", predicted(1.0, 0.5)), Row("lost", None, "lost: nothing fits"), Row("quick", predicted(0.5, 0.8)))
    return Compared(Request(plan.topology, plan.workload), ("slow", "lost", "quick"), rows)


def test_a_strategy_is_a_bar_of_samples_a_second_within_its_upper_bound(compared: Compared) -> None:
    axes = main_axes(charts.comparison(compared))
    drawn = [p for p in axes.patches if isinstance(p, Rectangle)]
    widths = {gid: [round(p.get_width(), 9) for p in drawn if p.get_gid() == gid] for gid in ("rate", "bound")}
    assert widths == {"rate": [8.0, 4.0], "bound": [10.0, 8.0]}, "the fastest first"
    assert [to_hex(p.get_facecolor()).upper() for p in drawn if p.get_gid() == "rate"] == ["#0072B2", "#56B4E9"]
    assert axes.get_xlabel() == "samples/s (simulated)" and axes.get_xlim()[0] == 0.0


def test_a_strategy_has_the_range_of_its_samples_a_second(compared: Compared) -> None:
    """4 samples in the longest and the shortest step of the range."""
    axes = main_axes(charts.comparison(compared))
    (bars,) = ([tuple(segment[:, 0]) for segment in lines.get_segments()] for lines in axes.collections[:1])
    ranges = [step_range(prediction.step_s, plan) for _, plan, prediction in compared.ranked]
    assert bars == [(pytest.approx(4 / ranges[0].high_s), pytest.approx(4 / ranges[0].low_s))]


def test_a_plan_that_cannot_be_told_apart_says_so(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holmes_sim.resolution.resolution", lambda fitted, several: 2.5)
    (numbers,) = main_axes(charts.comparison(compared)).child_axes
    assert numbers.get_yticklabels()[1].get_text().startswith("4 samples/s, 100.0% slower (cannot be told apart)\n")
    assert compared.close == {"slow"}
    assert [row["told_apart_from_best"] for row in compared.facts()["rows"]] == [False, None, None]
    assert compared.closeness.startswith("~ cannot be told apart: predicted differences below 150% ")


def test_a_comparison_names_its_strategies_numbers_and_reasons(compared: Compared) -> None:
    figure = charts.comparison(compared)
    axes, layout = main_axes(figure), "tp 1 · pp 2 · dp 1 · microbatch 1 · 1f1b"
    (numbers,) = axes.child_axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"quick\n{layout}", f"slow\n{layout}", "lost"]
    assert [label.get_text() for label in numbers.get_yticklabels()] == [
        "8 samples/s, fastest\n500 ms per step, 80.0% of compute-only speed",
        "4 samples/s, 100.0% slower\n1 s per step, 50.0% of compute-only speed",
    ]
    assert texts(figure) == ["no plan: nothing fits"]
    bound = "compute-only speed of the layout: all devices compute all the time"
    assert legend(figure) == ["fastest", "slower", "range of 80 % of runs", bound]
    assert png(figure)


def test_a_front_is_numbered_points_of_step_and_money_and_of_step_and_energy(plan: Plan) -> None:
    def predicted(*numbers: float) -> Plan:
        return replace(plan, prediction=Prediction(numbers[0], 0.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, 0.0, *numbers[1:]))

    request = Request(plan.topology, plan.workload)
    objectives = ("step-time", "cost", "energy")
    front, others = (predicted(1.0, 4e-6, 0.5), predicted(2.0, 3e-6, 0.25)), (predicted(3.0, 6e-6, 0.76),)
    found = Front(request, objectives, front, others)
    figure = charts.front(found)
    money, energy = figure.axes
    assert (money.get_ylabel(), energy.get_ylabel()) == ("USD per million tokens", "J per token")
    points = {line.get_gid(): [(float(x), float(y)) for x, y in line.get_xydata()] for line in money.lines}
    assert points == {"others": [(3.0, 6.0)], "front": [(1.0, 4.0), (2.0, 3.0)]}
    points = {line.get_gid(): [(float(x), float(y)) for x, y in line.get_xydata()] for line in energy.lines}
    assert points == {"others": [], "front": [(1.0, 0.5), (2.0, 0.25)]}
    assert texts(figure) == ["1", "2"]
    assert energy.get_legend_handles_labels()[1][0] == "other simulated plans (1 outside the axes)"
    assert legend(figure) == ["other simulated plans", "Pareto front: no simulated plan is better in all objectives"]
    assert png(figure)
    (alone,) = charts.front(replace(found, objectives=("step-time", "energy"), others=())).axes
    assert alone.get_ylabel() == "J per token"


def drawn_at(axes: Axes, gid: str) -> list[tuple[float, float]]:
    (line,) = (line for line in axes.lines if line.get_gid() == gid)
    return [(float(x), float(y)) for x, y in zip(*line.get_data(), strict=True)]


def test_a_roofline_has_a_panel_for_each_type_of_device_and_its_points_where_they_are() -> None:
    fast, slow = device("fast", speed=2e14, memory_bandwidth=2e12), device("slow", speed=1e14, memory_bandwidth=1e12)
    fleet = builders.fleet(
        builders.cluster("a", devices=2, spec=fast), builders.cluster("b", devices=2, spec=slow), trunks=(TRUNK,)
    )
    plan = builders.plan(fleet, pp=4, microbatches=4, layers=(6, 6, 6, 6))
    figure = charts.roofline(plan)
    found = roofline.rooflines(plan)
    assert [axes.get_title(loc="left").split()[0] for axes in figure.axes] == ["fast", "slow"]
    for axes, one in zip(figure.axes, found, strict=True):
        (left, _), bend, (_, top) = drawn_at(axes, "roof")
        assert bend == (100.0, one.peak / 1e12) and top == one.peak / 1e12
        for kind in ("products", "attention", "stages"):
            points = drawn_at(axes, kind)
            assert points == [(point.intensity, point.rate / 1e12) for point in getattr(one, kind)]
            assert all(left < x < axes.get_xlim()[1] and axes.get_ylim()[0] < y < axes.get_ylim()[1] for x, y in points)
        named = {text.get_text() for text in axes.texts}
        assert {f"{point.name} {point.rate / one.peak:.0%}" for point in (*one.products, *one.stages)} <= named
    assert (figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()) == (
        "attained (TFLOP/s)",
        "arithmetic intensity (FLOP / byte)",
    )


def test_names_of_a_roofline_do_not_stand_in_each_other(plan: Plan) -> None:
    figure = charts.roofline(plan)
    figure.draw_without_rendering()
    boxes = sorted((Text.get_window_extent(text) for text in figure.axes[0].texts), key=lambda box: box.y0)
    assert len(boxes) > 6
    for below, above in pairwise(boxes):
        assert below.y1 <= above.y0 + 1


def test_a_roofline_says_where_a_profile_stands_in_for_formulas(plan: Plan) -> None:
    (cluster, *others), workload = plan.fleet.clusters, plan.workload
    row = MeasuredRow(shape(workload.model), workload.seq_len, "bf16", 1, 1, (0.01, 0.02), (0.001, 0.001), (0.001, 0.001))
    node = replace(cluster.node, device=replace(cluster.node.device, profile=Profile((row,))))
    fleet = replace(plan.fleet, clusters=(replace(cluster, node=node), *others))
    profiled = replace(plan, topology=replace(plan.topology, fleet=fleet))
    (one,) = roofline.rooflines(profiled)
    assert one.measured and one.stages[0].seconds == pytest.approx(12 * 0.03 + 0.002)
    (axes,) = charts.roofline(profiled).axes
    assert "(stages as profiled)" in axes.get_title(loc="left")
    (axes,) = charts.roofline(plan).axes
    assert "(by formula)" in axes.get_title(loc="left")


def test_a_long_reason_stays_in_its_row(compared: Compared) -> None:
    wordy = replace(compared, rows=(*compared.rows[::2], Row("lost", None, "no room " * 50)))
    (text,) = texts(charts.comparison(wordy))
    lines = text.splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 95 and text.endswith(" …")


@pytest.mark.parametrize("ending", charts.ENDINGS)
def test_the_same_picture_gives_the_same_bytes(plan: Plan, tmp_path: Path, ending: str) -> None:
    for name in ("first", "second"):
        charts.save(charts.pipeline(plan, engine.simulate(plan)), tmp_path / f"{name}.{ending}")
    first = (tmp_path / f"first.{ending}").read_bytes()
    assert first == (tmp_path / f"second.{ending}").read_bytes()
    assert first[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_a_picture_that_fails_leaves_the_old_file(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "fleet.png"
    target.write_bytes(b"old")

    def full(self: Path, _: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(HolmesError) as caught:
        charts.save(charts.topology(plan.topology), target)
    assert str(caught.value) == f"{target}: cannot be written: No space left on device"
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.png"]


@pytest.mark.parametrize(("name", "ending"), [("fleet.gif", ".gif"), ("fleet", "nothing")])
def test_an_unknown_ending_is_refused(plan: Plan, tmp_path: Path, name: str, ending: str) -> None:
    with pytest.raises(HolmesError) as caught:
        charts.save(charts.topology(plan.topology), tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: a picture ends in one of .png, .svg, .pdf, not in {ending}"
    assert not (tmp_path / name).exists()


def test_every_chart_is_a_picture_that_a_notebook_shows():
    """Jupyter prints the words `<Figure size ...>` for matplotlib's own where pyplot was not imported."""
    for path in Path(charts.__file__).parent.glob("*.py"):
        assert " Figure(" not in path.read_text(), f"{path.name} draws on a Figure; a Picture shows itself"


def test_the_sum_of_a_tied_embedding_is_no_data_parallel_collective():
    """One replica of two stages: their only collective is that of the embedding, which the chart names."""
    tied = builders.plan(builders.fleet(builders.cluster(devices=2)), pp=2, shape={"tied_embeddings": True})
    figure = charts.pipeline(tied, engine.simulate(tied))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "sum of the tied embedding's gradient (strip 2)" in texts
    assert not any("data-parallel" in text for text in texts)
    assert figure.axes[0].findobj(lambda artist: artist.get_gid() == "embedding")
