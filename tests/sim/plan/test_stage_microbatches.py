"""Stages with unlike microbatch sizes: which are accepted, how many passes and messages each has; none waits for ever."""

from __future__ import annotations

import random

import pytest

from sim.errors import NotModelled, PlanError
from sim.kernels import lowering, memory
from sim.kernels.pass_messages import Rates
from sim.plan import program, schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import Action
from sim.plan.schedules.one_f_one_b import warm_ups
from tests import builders as make
from tests.more import after

TWO = {"pp": 2, "num_microbatches": (2,), "microbatch_size": 2, "stage_microbatch_size": (1, 2)}


def test_microbatches_of_each_stage() -> None:
    config = ParallelConfig(pp=3, dp=2, num_microbatches=(3, 2), microbatch_size=4, stage_microbatch_size=(1, 4, 2))
    assert [config.size_of(rank) for rank in range(3)] == [1, 4, 2]
    assert [config.cuts_of(rank) for rank in range(3)] == [4, 1, 2]
    assert [[config.microbatches_of(replica, rank) for replica in (0, 1)] for rank in range(3)] == [[12, 8], [3, 2], [6, 4]]
    assert [config.messages_of(*ends) for ends in ((0, 1), (1, 0), (1, 2), (2, 1))] == [1, 4, 2, 1]
    own = config.of_pp_rank(0)
    assert (own.microbatch_size, own.num_microbatches, own.stage_microbatch_size) == (1, (12, 8), ())
    assert (config.microbatch_text, config.microbatch_words) == ("1x1+4x1+2x1", "4 (1x1+4x1+2x1 by stage)")
    assert ParallelConfig(microbatch_size=4).microbatch_words == "4"


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (
            {"stage_microbatch_size": (2, 2)},
            PlanError,
            "one size for each of pp 2 pipeline ranks, of which the largest",
        ),
        ({"stage_microbatch_size": (1, 1)}, PlanError, "batch_size 2 and some are smaller; leave it out where all are equal"),
        ({"stage_microbatch_size": (1, 4)}, PlanError, "the largest is microbatch_size 2"),
        ({"stage_microbatch_size": (1, 2, 1)}, PlanError, "one size for each of pp 2 pipeline ranks"),
        (
            {"stage_microbatch_size": (3, 2), "microbatch_size": 3},
            PlanError,
            "stage_microbatch_size 3, 2: of two sizes, one must divide the other, so that messages are whole microbatches, "
            "but 2 does not divide 3",
        ),
        (
            {"schedule": "zb-h1"},
            NotModelled,
            "stage_microbatch_size 1, 2 with schedule zb-h1: it runs equally many passes on each stage; 1f1b, gpipe",
        ),
        ({"schedule": "interleaved", "vpp": 2}, NotModelled, "with schedule interleaved"),
        ({"schedule": "1f1b-deepspeed"}, NotModelled, "with schedule 1f1b-deepspeed"),
        ({"stage_dp": (1, 2)}, NotModelled, "with stage_dp is not modelled: its ranks divide the samples of a microbatch"),
        ({"message_compression": "int8"}, NotModelled, "with message_compression int8 is not modelled; one of both"),
        ({"held_receivers": True}, NotModelled, "held_receivers"),
    ],
)
def test_what_does_not_fit_is_said(values: dict[str, object], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        ParallelConfig(**TWO | values)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_programs_by_hand() -> None:
    """Two microbatches of two samples: stage 0 computes them one by one, and sends four messages to stage 1, which waits for
    two of them before each pass."""
    two = make.fleet(make.cluster("c", 2))
    plan = make.plan(two, pp=2, microbatches=2, microbatch_size=2, stage_microbatch_size=(1, 2), zero_stage=0)
    texts = [program.text(lowering.program(plan, rank, plan.config.microbatches_of(0, rank))) for rank in (0, 1)]
    assert texts[0] == ("F0 send F0 F1 send F1 F2 send F2 F3 send F3 recv B0 B0 recv B1 B1 recv B2 B2 recv B3 B3 optimizer")
    assert texts[1] == ("recv F0 recv F1 F0 B0 send B0 send B1 recv F2 recv F3 F1 B1 send B2 send B3 optimizer")
    other = make.plan(two, pp=2, microbatches=2, microbatch_size=2, stage_microbatch_size=(2, 1), zero_stage=0)
    assert program.text(lowering.program(other, 0, 2)) == (
        "F0 send F0 send F1 F1 send F2 send F3 recv B0 recv B1 B0 recv B2 recv B3 B1 optimizer"
    )
    assert (memory.in_flight(plan, 0), memory.in_flight(other, 0)) == ({(4, 0)}, {(2, 0)})


def test_how_many_passes_and_messages_the_largest_microbatch_is() -> None:
    config = ParallelConfig(pp=3, microbatch_size=4, stage_microbatch_size=(1, 4, 2))
    rates = [Rates.of(config, rank) for rank in range(3)]
    assert [one.passes for one in rates] == [4, 1, 2]
    assert [rates[1].of_action(Action("send", 1, 0, peer=peer)) for peer in (0, 2)] == [4, 2]
    assert rates[1].of_action(Action("F", 1)) == 1
    assert [rates[0].of_message(*message) for message in (("F", 0), ("B", 1), ("F", 1), ("B", 2))] == [4, 4, 2, 2]
    alike = Rates.of(ParallelConfig(pp=3), 1)
    assert (alike.passes, alike.of_action(Action("send", 1, 0, peer=2)), alike.of_message("B", 1)) == (1, 1, 1)


def test_warm_ups_are_those_of_equal_microbatches_in_samples() -> None:
    assert [warm_ups(sizes) for sizes in ((2, 2, 2), (1, 2), (2, 1), (1, 2, 4, 1))] == [
        (2, 1, 0),
        (3, 0),
        (1, 0),
        (13, 5, 1, 0),
    ]
    assert schedules.in_flight_of_sizes("1f1b", 0, (1, 2, 4, 1), 32) == ((14, 0),)
    assert schedules.in_flight_of_sizes("gpipe", 0, (1, 2), 8) == ((8, 0),)


def ends(name: str, sizes: tuple[int, ...], samples: int) -> bool:
    """Whether all ranks come to the end of their programs, where a pass waits for all samples of its microbatch."""
    ranks = range(len(sizes))
    programs = [schedules.actions_of_sizes(name, rank, sizes, samples // sizes[rank]) for rank in ranks]
    done = {(kind, rank): 0 for kind in "FB" for rank in ranks}  # samples
    at, moved = [0] * len(sizes), True
    while moved:
        moved = False
        for rank in ranks:
            while at[rank] < len(programs[rank]):
                action = programs[rank][at[rank]]
                needed = (action.microbatch + 1) * sizes[rank]
                before = ("F", rank - 1) if action.kind == "F" else ("B", rank + 1)
                if done.get(before, samples) < needed or (action.kind == "B" and done["F", rank] < needed):
                    break
                done[action.kind, rank] = needed
                at[rank] += 1
                moved = True
    return all(one == len(each) for one, each in zip(at, programs, strict=True))


@pytest.mark.parametrize("seed", after(2, range(10)))
def test_no_pass_waits_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        sizes = tuple(rng.choice((1, 2, 4, 8, 24)) for _ in range(rng.randint(1, 7)))
        samples = max(sizes) * rng.randint(1, 12)
        assert all(ends(name, sizes, samples) for name in filter(schedules.takes_sizes, schedules.names()))
        held = schedules.in_flight_of_sizes("1f1b", 0, sizes, samples // sizes[0])[0][0] * sizes[0]
        assert held <= max(sizes) * len(sizes)  # not more samples than with the largest size on all stages
