"""The bound of replicas with whole layers and microbatches: by hand, and against every replica of small fleets.

`test_unlike_pipelines` tries plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds.pipeline_columns import columns_seconds
from planner.bounds.pipeline_modes import Mode, Modes
from planner.bounds.stage_tables import APART, FINE
from planner.request import Request
from tests.planner.pipelines.fleets import two_kinds

LAYERS = 3


def every(*modes: Mode) -> Modes:
    """The same modes on both clusters."""
    return {"a": modes, "b": modes}


def one(size: int, head: float = 0.0, tp: int = 1) -> Mode:
    """A mode whose layers take a second for the forward, for the gradients of inputs and for those of weights of a sample."""
    return Mode(tp, 1, size, (3.0 * size, 0.0, head * size), size, size)


def is_found(asked: Request, modes: Modes, seconds: float) -> bool:
    """Whether the bound is so many seconds, up to its accuracy."""
    found = columns_seconds(asked, modes, seconds / 10)
    return seconds / (1 + FINE) ** 2 <= found <= seconds * (1 + 1e-9)


def test_many_microbatches_take_their_work():
    """Four devices with two samples of three layers each."""
    assert is_found(two_kinds(), every(one(1)), 18.0)


def test_one_microbatch_fills_and_drains_its_stages():
    """Two samples, each on two devices: forward through three layers, and back. Their work takes 4.5 s."""
    assert is_found(two_kinds(batch=2), every(one(1)), 6.0)


def test_a_stage_behind_others_waits_for_its_first_microbatch():
    """Two replicas of three stages of one layer with two samples each: 2 s until the last one begins, and 2 x 3 s of work, the
    last two of which are as long as the way back. On four devices, each has a replica of its own."""
    assert is_found(two_kinds(nodes=(3, 3), devices=(1, 1), batch=4), every(one(1)), 8.0)
    assert is_found(two_kinds(batch=4), every(one(1)), 9.0)


def test_one_replica_leaves_a_sample_to_another():
    """A microbatch of the whole batch would be the only one."""
    assert is_found(two_kinds(batch=2), every(Mode(1, 1, 2, (1.0, 0.0, 0.0), 0.3, 0.3), one(1)), 6.0)


def test_the_head_is_on_a_stage_of_its_own_or_with_layers():
    """A head of three layers' time: two samples with layers and head on each device; or, of three samples on six devices, each
    on two: the head has a device of its own behind all layers, and begins after 3 s."""
    assert is_found(two_kinds(), every(one(1, head=9.0)), 36.0)
    assert is_found(two_kinds(nodes=(3, 3), devices=(1, 1), batch=3), every(one(1, head=9.0)), 12.0)


def test_the_fastest_slot_of_a_replica_decides_how_long_others_take():
    """Two replicas of a slot of one device with two layers, and one of two devices, which passes the third in half the time:
    1 + 4 s. Two slots of one device take 6, also where a wide slot would be faster that has a replica of its own."""
    slow, fast = Mode(1, 1, 1, (2.0, 0.0, 0.0), 1.0, 1.0), Mode(2, 1, 1, (4.0, 0.0, 0.0), 0.5, 0.5)
    assert is_found(two_kinds(nodes=(2, 2), devices=(1, 2), batch=2), {"a": (slow,), "b": (fast,)}, 5.0)
    assert is_found(two_kinds(batch=2), every(slow), 6.0)
    alone = Mode(2, 1, 1, (1.0, 0.0, 0.0), 0.5, 0.5)
    assert is_found(two_kinds(batch=2), {"a": (slow,), "b": (alone,)}, 6.0)


def test_what_is_known_is_kept():
    asked = two_kinds()
    assert columns_seconds(asked, every(one(1)), 18.0) == 18.0
    assert columns_seconds(asked, every(one(1)), 40.0) == 40.0


def test_without_memory_there_is_no_replica():
    assert columns_seconds(two_kinds(memory=1e6), every(one(1)), 1.0) == math.inf


def replicas(modes: tuple[Mode, ...], batch: int, seconds: float) -> Iterator[tuple[int, int]]:
    """(devices, samples) of every replica that ends within so many seconds, with its own stages, layers and microbatches. The
    last stage may hold the head alone."""
    for size in {mode.size for mode in modes}:
        own = [mode for mode in modes if mode.size == size]
        for layers in splits():
            for slots in itertools.product(own, repeat=len(layers)):
                samples, widest = 0, max(mode.devices for mode in slots)
                for number in range(1, (batch - 1) // size + 1):
                    in_time = True
                    others = [mode for mode in own if mode.devices <= widest or number > APART]
                    forward = min(mode.forward for mode in others)
                    through = min(mode.forward + mode.inputs for mode in others)
                    for index, (k, mode) in enumerate(zip(layers, slots, strict=True)):
                        before, head = sum(layers[:index]), mode.seconds[2] if index == len(layers) - 1 else 0.0
                        work = before * forward + number * (k * mode.seconds[0] + head)
                        passing = before * through + number * k * (mode.forward + mode.inputs)
                        latency = (LAYERS - k) * through + k * (mode.forward + number * mode.inputs)
                        in_time &= max(work, passing, latency) <= seconds
                    samples = number * size if in_time else samples
                if samples:
                    yield sum(mode.devices for mode in slots), samples


def splits() -> Iterator[list[int]]:
    """All splits of the layers into stages, each also with a stage of no layer behind it."""
    for count in range(1, LAYERS + 1):
        for cuts in itertools.combinations(range(1, LAYERS), count - 1):
            layers = [end - first for first, end in itertools.pairwise((0, *cuts, LAYERS))]
            yield layers
            yield [*layers, 0]


DRAWN = st.builds(
    lambda tp, size, both, forward, inputs, head: Mode(
        tp, 1, size, (both, 0.0, both * head), both * forward, both * (1 - forward) * inputs
    ),
    st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.floats(1, 9), st.floats(0.2, 0.5), st.floats(0.3, 0.7),
    st.floats(0.0, 0.9),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(DRAWN, min_size=1, max_size=3, unique_by=lambda mode: (mode.tp, mode.size)), st.integers(3, 12))
def test_against_every_replica(modes, batch):
    """On devices of one kind, replicas pass the batch in the bound and a little more, and in no less than the bound."""
    asked = two_kinds(nodes=(2, 1), devices=(1, 2), batch=batch)
    if all((batch - 1) // mode.size == 0 for mode in modes):
        return
    found = columns_seconds(asked, every(*modes), 1e-3)

    def passed(seconds: float) -> float:
        return max((4 * samples / devices for devices, samples in replicas(tuple(modes), batch, seconds)), default=0.0)

    assert passed(found * (1 - 1e-6)) < batch
    assert passed(found * (1 + 3 * FINE)) >= batch * (1 - 3 * FINE)
