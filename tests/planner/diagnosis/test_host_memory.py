"""What hosts could keep so that a plan exists, and why they cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.diagnosis.host_memory import choices, helpful, too_small
from planner.diagnosis.remedies import in_words
from planner.placement.simulation import simulate_plan
from planner.request import Request, Wishes
from planner.search.fitting import fitting
from sim.kernels import memory, offload
from tests import builders as make
from tests.planner.builders import request

LAYERS = 24


def long_sequences(nbytes: float, host: float | None = None, **pins: object) -> Request:
    """A narrow model with long sequences on one device with so many bytes, of a host with `host` bytes."""
    one = make.cluster(devices=1, nics=(), spec=make.device(memory=nbytes))
    fleet = make.fleet(replace(one, node=replace(one.node, host_memory=host)))
    found = request(fleet, make.model(LAYERS), 2)
    return replace(found, workload=replace(found.workload, seq_len=2**14), wishes=Wishes(**pins))  # type: ignore[arg-type]


def needed(**pins: object) -> float:
    """Bytes of the device that a plan with one microbatch of one sequence takes, which recomputes all layers."""
    plan = fitting(long_sequences(1e12, microbatch_size=1, recompute="full", **pins))
    assert plan is not None
    return max(memory.peak_memory(plan))


def test_activations_are_named_where_optimizer_state_does_not_help() -> None:
    kept, state, away = needed(), needed(offload="optimizer"), needed(offload="activations")
    assert away < state < kept
    between = long_sequences((away + state) / 2)
    found = helpful(between)
    assert found is not None
    plan = fitting(replace(between, wishes=Wishes(offload="activations")))
    assert plan is not None
    predicted = simulate_plan(plan).prediction
    assert predicted is not None
    assert found == ("activations", predicted.step_s)
    assert "--offload activations, with a step of " in in_words(between)
    both = needed(offload="optimizer+activations")
    assert helpful(long_sequences(0.99 * both)) is None
    found = helpful(long_sequences((both + away) / 2))
    assert found is not None and found[0] == "optimizer+activations"


def test_hosts_keep_what_they_have_memory_for() -> None:
    pins = {"microbatch_size": 1, "recompute": "full", "offload": "activations"}
    plan = fitting(long_sequences(1e12, **pins))
    assert plan is not None
    (nbytes,) = offload.fullest_hosts(plan).values()
    assert fitting(long_sequences(1e12, 1.01 * nbytes, **pins)) is not None
    assert fitting(long_sequences(1e12, 0.99 * nbytes, **pins)) is None
    assert too_small(long_sequences(1e12, 0.99 * nbytes, **pins)).startswith("host memory: the activations of tiny take ")
    assert too_small(long_sequences(1e12, 1.01 * nbytes, **pins)) == ""


@pytest.mark.parametrize(("recompute", "number"), [(None, 3), ("full", 3), ("block", 1)])
def test_choices_keep_to_the_other_pins(recompute: str | None, number: int) -> None:
    assert len(choices(long_sequences(1e12, recompute=recompute))) == number
