"""How messages between stages of unlike degrees are named, and where users see it."""

from __future__ import annotations

import html
import io

import pytest
from rich.console import Console

import holmes_sim as hs
from holmes_sim import printing, reporting
from holmes_sim.message_cuts import message_cuts
from sim.kernels.payloads import gathered_bytes
from sim.plan.plan import Plan
from tests import builders as make


def plan(dp: tuple[int, ...] = (1, 1), tp: tuple[int, ...] = (1, 1), cp: tuple[int, ...] = (1, 1), **options: object) -> Plan:
    """Stages of these degrees on nodes of eight devices, with one microbatch of four samples for each replica."""
    unlike = {f"stage_{name}": own for name, own in (("dp", dp), ("tp", tp), ("cp", cp)) if len(set(own)) > 1}
    machines = make.fleet(make.cluster("a", 3, 8, (make.nic(bandwidth=1e9),)))
    given = {"sequence_parallel": max(tp) > 1, "microbatch_size": 4, "cp": min(cp)} | options
    return make.plan(machines, max(tp), len(dp), min(dp), **unlike, **given)


def test_stages_of_equal_degrees_have_no_line():
    assert message_cuts(plan()) == message_cuts(plan((2, 2), (2, 2))) == ()


def test_slices_of_a_narrower_stage():
    """Of three stages, the last two have equal degrees."""
    assert message_cuts(plan((1, 1, 1), (4, 2, 2))) == (
        "Messages between stages 0 and 1 (tp 4 and tp 2) are re-cut by slices: at once, each rank of stage 0 exchanges with 1 "
        "of stage 1, and each of stage 1 with 2 of stage 0; nothing is gathered.",
    )


def test_samples_and_slices():
    assert message_cuts(plan((2, 4), (2, 1))) == (
        "Messages between stages 0 and 1 (tp 2, dp 2 and tp 1, dp 4) are re-cut by samples and slices: at once, each rank of "
        "stage 0 exchanges with 2 of stage 1, and each of stage 1 with 2 of stage 0; nothing is gathered.",
    )


def test_tokens():
    (line,) = message_cuts(plan(cp=(1, 2)))
    assert "(cp 1 and cp 2) are re-cut by tokens: at once, each rank of stage 0 exchanges with 2 of stage 1" in line


@pytest.mark.parametrize(
    ("options", "gathers"),
    [({"sequence_parallel": True}, ()), ({"sequence_parallel": False}, (0, 1)), ({"whole_messages": True}, ())],
)
def test_slices_are_gathered_without_sequence_parallelism(options, gathers):
    """As the simulator counts it, where both stages have several tensor-parallel ranks."""
    own = plan(tp=(4, 2), **{"sequence_parallel": False} | options)
    ranks = [stage for stage in range(2) if gathered_bytes(own.workload, own.config.of_pp_rank(stage))]
    assert tuple(ranks) == gathers
    (line,) = message_cuts(own)
    assert ("the ranks of stages 0 and 1 gather what they receive inside their node" in line) == bool(gathers)
    assert ("nothing is gathered" in line) != bool(gathers)


@pytest.mark.parametrize(
    "degrees", [{"tp": (4, 1)}, {"dp": (1, 4)}, {"dp": (2, 4), "tp": (4, 2)}, {"cp": (4, 2), "tp": (1, 2)}]
)
def test_both_sides_of_a_border_have_equally_many_pairs(degrees):
    config = plan(**degrees).config
    first = config.first_rank(1)
    ahead = sum(len(config.peers(rank, 1)) for rank in range(first))
    assert ahead == first * len(config.peers(0, 1))
    assert ahead == (config.world_size - first) * len(config.peers(first, 0))


def test_users_see_it():
    """In the tables of `plan`, `show` and `simulate`, and in the report."""
    run, console = hs.simulate(plan(tp=(2, 1))), Console(width=400, file=io.StringIO(), record=True)
    console.print(printing.simulated(run))
    (line,) = message_cuts(run.plan)
    assert line in console.export_text()
    assert line in html.unescape(reporting.page(reporting.gather(run.plan, ())))
