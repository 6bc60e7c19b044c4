"""Stages with a ZeRO stage and an offload of their own: memory and programs of each, and steps timed by hand."""

from __future__ import annotations

from functools import partial

import pytest

from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds
from sim.analytic.stage_costs import compute_seconds
from sim.engine.engine import simulate
from sim.kernels import compute, offload
from sim.kernels.lowering import program
from sim.kernels.memory import peak_memory
from tests import builders as make

FIRST, LAST = (True, False), (False, True)
ZERO = (3, 0, 2, 1)
AWAY = ("none", "optimizer", "activations", "optimizer+activations")


def machines(many: int = 4):
    """Nodes of two devices, each with one NIC of 1 GB/s."""
    return make.fleet(make.cluster(nodes=many, devices=2, nics=(make.nic(bandwidth=1e9),)))


def plan(**options):
    """Four stages of two replicas on four nodes, with three microbatches each."""
    return make.plan(machines(), 1, 4, 2, microbatches=3, layers=(2, 1, 3, 2), **options)


def test_a_stage_needs_the_memory_and_runs_the_program_of_a_plan_where_all_are_as_it_is():
    unlike = plan(zero_stage=3, stage_zero=ZERO, offload=("optimizer", "activations"), stage_offload=AWAY)
    peaks = peak_memory(unlike)
    for pp_rank, (zero, choice) in enumerate(zip(ZERO, AWAY, strict=True)):
        alike = plan(zero_stage=zero, offload=() if choice == "none" else tuple(choice.split("+")))
        assert peaks[pp_rank] == peak_memory(alike)[pp_rank]
        assert program(unlike, pp_rank, 3) == program(alike, pp_rank, 3)


def test_a_stage_has_the_memory_and_the_program_of_a_plan_that_recomputes_as_it_does():
    """On both virtual stages of a pipeline rank, with experts divided among two ranks."""
    shape = {"experts": 4, "experts_per_token": 2}
    shared = {"schedule": "interleaved", "vpp": 2, "microbatches": 4, "layers": (2, 1, 3, 2) * 2, "ep": 2, "shape": shape}
    made = partial(make.plan, machines(), 1, 4, 2, attention="unfused", **shared)
    whole = {"recompute": "full", "recompute_layers": (1,)}
    unlike = made(stage_recompute=("full", "none", "layernorm+moe", "selective"), **whole)
    kinds = whole, {}, {"recompute": "selective", "recompute_modules": ("layernorm", "moe")}, {"recompute": "selective"}
    every = [made(**kind) for kind in kinds]
    for pp_rank, alike in enumerate(every):
        held = unlike.stages_of(pp_rank)
        assert unlike.config_of(held) == alike.config_of(held)
        assert peak_memory(unlike)[pp_rank] == peak_memory(alike)[pp_rank]
        assert program(unlike, pp_rank, 4) == program(alike, pp_rank, 4)
    assert len({peak_memory(one) for one in every}) == 4


def test_timetable_of_an_optimizer_on_the_host_of_the_last_stage():
    """Two stages of two layers; a message takes `hop` seconds, for which its sender waits. Stage 0 ends with its update on the
    device. Stage 1 updates on its host, which takes longer than all that stage 0 has left."""
    fleet = make.fleet(make.cluster(nodes=2, devices=1, nics=(make.nic(bandwidth=1e9),)))
    found = make.plan(fleet, 1, 2, 1, offload=("optimizer",), stage_offload=("none", "optimizer"))
    device, hop, model = fleet.clusters[0].node.device, 64 * 96 * 2 / 1e9, found.workload.model
    (f0, b0), (f1, b1) = (compute_seconds(device, found.workload, found.config, 2, *ends) for ends in (FIRST, LAST))
    first, last = (2 * model.layer_parameters + ends for ends in (model.embedding_parameters, model.head_parameters))
    back = f0 + hop + f1 + b1 + hop  # the gradients are on stage 0
    ends = back + b0 + compute.optimizer_seconds(device, first, first), back + offload.optimizer_seconds(device, last, last)
    assert ends[1] > 3 * ends[0]
    spans = [span for span in simulate(found).spans if span.kind == "optimizer"]
    assert [(span.rank, span.end) for span in spans] == [(rank, pytest.approx(end, rel=1e-9)) for rank, end in enumerate(ends)]
    assert evaluate([found])[0] == step_seconds(found) == pytest.approx(ends[1], rel=1e-9)


def test_hosts_keep_the_state_of_the_stages_that_offload_it():
    found = plan(offload=("optimizer",), stage_offload=("none", "optimizer", "none", "none"))
    alike = offload.host_bytes(plan(offload=("optimizer",)))
    assert offload.host_bytes(found) == {("c", 1): alike["c", 1]}
