"""Charts of sweeps: a curve of one key, curves by words, a heat map of two numbers; what has no plan is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from holmes_sim import charts, commands
from holmes_sim.sweeping import study
from holmes_sim.sweeping.sweep import Swept
from holmes_sim.sweeping.worker import Row
from sim.errors import HolmesError

BANDWIDTH = "links[0].bandwidth"
ROCE, IB = "clusters.roce.node.nics[0].bandwidth", "clusters.ib.node.nics[0].bandwidth"


def swept(vary: dict[str, list[Any]], numbers: list[float | None], scenarios: tuple[dict[str, Any], ...] = ()) -> Swept:
    given = study.study_of(commands.load("lab/lab-hybrid-nics"), vary, scenarios, {})

    def row(number: float | None) -> Row:
        layout = (
            {"tp": 1, "pp": 2, "dp": 2, "clusters": "ib + roce"}
            if number != 30.0
            else {"tp": 1, "pp": 1, "dp": 4, "clusters": "ib"}
        )
        planned = {"status": "planned", "tokens_per_s": number, **layout}
        return planned if number is not None else {"status": "infeasible", "reason_if_none": "no"}

    return Swept(given, tuple(map(row, numbers)), len(numbers), 1.0)


def axes_of(found: Swept) -> Axes:
    return charts.sweep(found).axes[0]


def lines(axes: Axes, gid: str) -> list[list[tuple[float, float]]]:
    return [[(float(x), float(y)) for x, y in line.get_xydata()] for line in axes.lines if line.get_gid() == gid]


def test_one_key_is_a_curve_from_the_least_value_with_its_layouts():
    axes = axes_of(swept({BANDWIDTH: ["10 Gbit/s", "1 Gbit/s", "5 Gbit/s"]}, [30.0, 10.0, 20.0]))
    assert lines(axes, "curve") == [[(1.0, 10.0), (5.0, 20.0), (10.0, 30.0)]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("links[0].bandwidth (Gbit/s)", "tokens/s (simulated)")
    assert [text.get_text() for text in axes.texts] == ["tp 1 · pp 2 · dp 2\nib + roce", "tp 1 · pp 1 · dp 4\nib"]
    assert axes.get_xscale() == "log" and axes.get_ylim()[0] == 0.0
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5", "10"]


def test_what_has_no_plan_is_a_cross_at_the_bottom():
    axes = axes_of(swept({"workload.global_batch_size": [16, 17, 18]}, [10.0, None, 20.0]))
    assert lines(axes, "curve") == [[(16.0, 10.0), (18.0, 20.0)]]
    assert lines(axes, "lost") == [[(17.0, 0.0)]]
    assert axes.get_xscale() == "linear"


def test_words_are_curves_and_numbers_their_axis():
    axes = axes_of(swept({"plan.strategy": ["holmes", "certified"], "plan.pp": [1, 2]}, [10.0, 20.0, 30.0, None]))
    assert lines(axes, "curve") == [[(1.0, 10.0), (2.0, 20.0)], [(1.0, 30.0)]]
    assert axes.get_legend_handles_labels()[1] == ["strategy holmes", "strategy certified", "no plan"]
    assert axes.get_xlabel() == "plan.pp"


def test_two_numbers_are_a_heat_map_whose_cells_say_what_they_are():
    axes = axes_of(swept({"plan.pp": [2, 1], "workload.global_batch_size": [32, 64]}, [10.0, 20.0, 30.0, None]))
    (heat,) = axes.images
    assert np.array_equal(np.ma.filled(heat.get_array().astype(float), np.nan), [[30.0, 10.0], [np.nan, 20.0]], equal_nan=True)
    said = {text.get_position(): text.get_text() for text in axes.texts}
    assert said == {
        (1, 0): "10\ntp 1 · pp 2 · dp 2\nib + roce", (1, 1): "20\ntp 1 · pp 2 · dp 2\nib + roce",
        (0, 0): "30\ntp 1 · pp 1 · dp 4\nib", (0, 1): "no plan",
    }  # fmt: skip
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("plan.pp", "workload.global_batch_size")


def test_keys_that_go_together_are_one_axis_and_a_key_of_one_value_is_none():
    together = tuple({IB: f"{rate} Gbit/s", ROCE: f"{rate} Gbit/s"} for rate in (1, 2))
    axes = axes_of(swept({"plan.tp": [1]}, [10.0, 20.0], together))
    assert lines(axes, "curve") == [[(1.0, 10.0), (2.0, 20.0)]]
    assert axes.get_xlabel() == f"{IB} (Gbit/s)\n{ROCE} (Gbit/s)"


def test_a_key_that_some_leave_as_it_is_has_a_place_for_it():
    axes = axes_of(swept({}, [10.0, 20.0], ({}, {IB: "1 Gbit/s"})))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["unchanged", "1"]
    assert lines(axes, "curve") == [[(0.0, 10.0), (1.0, 20.0)]]


@pytest.mark.parametrize(
    ("vary", "message"), [({"plan.tp": [1]}, "has 0$"), ({"plan.tp": [1, 2], "plan.pp": [1, 2], "plan.dp": [1, 2]}, "has 3: ")]
)
def test_none_and_three_keys_are_no_chart(vary, message):
    with pytest.raises(HolmesError, match=f"^a chart shows one or two varied keys; lab-hybrid-nics {message}"):
        axes_of(swept(vary, [10.0] * 8))


def test_islands_are_drawn_by_effective_tokens_with_what_they_give_up():
    batches = {"workload.global_batch_size": [16, 32]}
    given = study.study_of(commands.load("lab/lab-slow-trunk"), batches, (), {"sync": "any"})
    worth = {"token_worth": 0.9, "token_worth_low": 0.8, "token_worth_high": 1.0, "effective_tokens_per_s": 90.0}
    first = {"status": "planned", "tokens_per_s": 100.0, "sync": "diloco 30", "price": "bounded", "clusters": "a | b", **worth}
    unknown = first | dict.fromkeys(worth) | {"tokens_per_s": 110.0, "sync": "co2 8"}
    axes = axes_of(Swept(given, (first, unknown), 2, 1.0))
    assert lines(axes, "curve") == [[(16.0, 90.0), (32.0, 110.0)]]
    assert lines(axes, "unknown") == [[(32.0, 110.0)]]
    (bars,) = (one for one in axes.collections if one.get_gid() == "worth")
    assert [path.vertices.tolist() for path in bars.get_paths()] == [[[16.0, 80.0], [16.0, 100.0]]]
    assert axes.get_ylabel() == "effective tokens/s (simulated tokens/s x worth of a token)"
    assert [text.get_text() for text in axes.texts] == ["diloco 30\nnot exact\na | b", "co2 8\nnot exact\na | b"]
    assert axes.get_legend_handles_labels()[1] == ["range of the worth of a token", "tokens/s of unknown worth"]
