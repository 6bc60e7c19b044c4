"""The cost model of Sailor (eth-easl/sailor cf2c8e3, sailor/Planner/simulations/runtime_simulator.py), and plans under it.

Its numbers are in sailor.yaml. Stages i = 0 .. S - 1 are given by device, tp and layers (26: embedding, 24 blocks, head), each
has dp replicas, and M = ceil(1024 / (samples dp)) microbatches go through them. An iteration takes

    (M - 1) max_i (c_i + n_i) + sum c_i + sum n_i + max_i update_i + max_i sync_i

with c_i forward and backward of a stage, n_i its messages (to the next and to the one before; a first stage of more than three
counts its own twice, a last one too; whole activations whatever tp), sync_i a ring all_reduce of a stage's fp32 weights over
tp among single devices, in buckets of 5e8 bytes. Bytes of a device, which must fit its memory:

    24 parameters + 4 samples kept (S - i) + 2e9 (3e9 with tp > 1)

`search` is exact for stages of one device type each: a dynamic programme from the last stage to the first over remaining layers
and devices, which keeps the partial pipelines that are not dominated in maximum, sum, sync and update.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holmes_sim import commands
from planner.placement.ranks import assemble
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.hardware.cluster import Device
from sim.plan.plan import Plan

BATCH, LAYERS = 1024, 26
BUCKET = 5e8
FACTS = Path(__file__).with_name("sailor.yaml")

Kind = tuple[str, int]
"""Device and tp of a stage."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers from `first` up to, not including, `past`, on devices of one kind."""

    device: str
    tp: int
    first: int
    past: int

    @property
    def kind(self) -> Kind:
        """Device and tp."""
        return self.device, self.tp


@dataclass(frozen=True, slots=True)
class Layout:
    """A plan for Sailor's simulator: stages in order, dp replicas of each, samples per microbatch."""

    stages: tuple[Stage, ...]
    dp: int
    samples: int


@functools.cache
def facts() -> dict[str, Any]:
    """Content of sailor.yaml."""
    with FACTS.open(encoding="utf-8") as file:
        read: dict[str, Any] = yaml.safe_load(file)
    return read


def _of_layer(layer: int) -> str:
    return "embed" if layer == 0 else "head" if layer == LAYERS - 1 else "block"


@functools.cache
def _before(key: str, tp: int) -> tuple[float, ...]:
    """Sum over all layers before each layer of the number `key` (parameters or kept)."""
    return tuple(itertools.accumulate((facts()["layers"][tp][_of_layer(i)][key] for i in range(LAYERS)), initial=0))


@functools.cache
def _row(device: str, tp: int, samples: int) -> dict[str, list[float]] | None:
    rows = (row for row in facts()["seconds"][device] if (row["tp"], row["samples"]) == (tp, samples))
    return next(rows, None)


@functools.cache
def _seconds_before(device: str, tp: int, samples: int) -> tuple[float, ...]:
    row = _row(device, tp, samples)
    assert row is not None
    return tuple(itertools.accumulate((sum(row["first" if i == 1 else _of_layer(i)][:2]) for i in range(LAYERS)), initial=0))


def compute(stage: Stage, samples: int) -> float:
    """c_i: seconds of forward and backward of a microbatch."""
    before = _seconds_before(*stage.kind, samples)
    return before[stage.past] - before[stage.first]


def update(stage: Stage, samples: int) -> float:
    """Seconds of the optimizer step, as measured for a whole small model."""
    row = _row(*stage.kind, samples)
    assert row is not None
    return row[_of_layer(stage.first)][2]


def fits(stage: Stage, samples: int, behind: int) -> bool:
    """Whether a stage that is followed by `behind` stages fits the memory of its devices."""
    parameters, kept = (_before(key, stage.tp) for key in ("parameters", "kept"))
    bytes_ = 24 * (parameters[stage.past] - parameters[stage.first])
    bytes_ += 4 * samples * (kept[stage.past] - kept[stage.first]) * (behind + 1)
    return bytes_ + (2e9 if stage.tp == 1 else 3e9) <= facts()["memory_gib"][stage.device] * 2**30


@functools.cache
def _fit(sender: Kind, receiver: Kind) -> tuple[float, float, float]:
    rows = facts()["fit_of"][f"{sender[0]} -> {receiver[0]}"]
    a, b, c = facts()["fits"][rows[(1, 2, 4).index(sender[1])][(1, 2, 4).index(receiver[1])]]
    return a, b, c


@functools.cache
def message(nbytes: float, sender: Kind, receiver: Kind) -> float:
    """Seconds of a message between two VMs, by device and number of devices used on each."""
    a, b, c = _fit(sender, receiver)
    x = math.log2(nbytes / 1e6)
    return nbytes / 1e9 / (a * x * x + b * x + c)


@functools.cache
def sync(stage: Stage, dp: int) -> float:
    """sync_i: seconds of the ring all_reduce of a stage's weights."""
    weights = _before("parameters", 1)
    left, seconds = 4 * (weights[stage.past] - weights[stage.first]) / stage.tp, 0.0
    single = stage.device, 1
    while left > 0 and dp > 1:
        bucket = min(left, BUCKET)
        seconds += 2 * (dp - 1) * message(bucket / dp, single, single)
        left -= bucket
    return seconds


def network(stage: Stage, samples: int, before: Kind | None, after: Kind | None, stages: int) -> float:
    """n_i: seconds of the messages of a stage for one microbatch."""
    output = facts()["layers"][1]
    ahead = message(4 * samples * output[_of_layer(stage.past - 1)]["output"], stage.kind, after) if after else 0.0
    back = message(4 * samples * output[_of_layer(stage.first)]["output"], stage.kind, before) if before else 0.0
    if before and after:
        return ahead + back
    return 2 * back if before else ahead if stages <= 3 else 2 * ahead


def microbatches(dp: int, samples: int) -> int:
    """M: number of microbatches per replica."""
    return math.ceil(BATCH / (samples * dp))


def judge(layout: Layout) -> float:
    """Seconds of an iteration by Sailor's simulator; raises ValueError if a stage does not fit memory."""
    stages, samples = layout.stages, layout.samples
    if not all(fits(stage, samples, len(stages) - 1 - i) for i, stage in enumerate(stages)):
        raise ValueError("a stage does not fit its devices")
    kinds = (None, *(stage.kind for stage in stages), None)
    times = [
        compute(stage, samples) + network(stage, samples, kinds[i], kinds[i + 2], len(stages)) for i, stage in enumerate(stages)
    ]
    slowest = max(times) * (microbatches(layout.dp, samples) - 1)
    last = max(update(stage, samples) for stage in stages) + max(sync(stage, layout.dp) for stage in stages)
    return slowest + sum(times) + last


Label = tuple[float, float, float, float, tuple[Stage, ...]]
"""Maximum and sum of seconds, greatest sync and update, stages; of the last stages of a pipeline."""


def search(devices: dict[str, int], tps: tuple[int, ...] = (1, 2, 4), alike: bool = False) -> Layout:
    """The fastest layout on these devices. `alike`: one tp for all stages and at least one block in each."""
    best: tuple[float, Layout | None] = (math.inf, None)
    shapes = sorted(set(_shapes(devices)), key=lambda shape: (-shape[1], shape[0]))
    for allowed in [*((tp,) for tp in tps), *(() if alike else (tps,))]:  # one tp for all is quick and prunes the rest
        for samples, dp in shapes:
            found = _search(devices, samples, dp, allowed, alike, best[0])
            best = min(best, found, key=lambda pair: pair[0])
    assert best[1] is not None
    return best[1]


def _shapes(devices: dict[str, int]) -> Iterator[tuple[int, int]]:
    """(samples, dp): for each number of microbatches the least dp, which needs the fewest devices."""
    for samples in {row["samples"] for device in devices for row in facts()["seconds"][device]}:
        for dp in range(1, max(devices.values()) + 1):
            yield samples, math.ceil(BATCH / (samples * microbatches(dp, samples)))


def _search(
    devices: dict[str, int], samples: int, dp: int, tps: tuple[int, ...], alike: bool, limit: float
) -> tuple[float, Layout | None]:
    names, m = tuple(devices), microbatches(dp, samples)
    room = tuple(devices[name] // dp for name in names)
    kinds = [(name, tp) for name in names for tp in tps if _row(name, tp, samples) is not None]
    unit = {
        name: min((tp * compute(Stage(name, tp, 2, 3), samples) for n, tp in kinds if n == name), default=0) for name in names
    }
    rates = [1 / unit[name] if unit[name] else 0.0 for name in names]
    least = _least_before(kinds, samples)
    if not kinds or (m - 1) * (LAYERS - 2) / max(sum(r * n for r, n in zip(rates, room, strict=True)), 1e-9) > limit:
        return limit, None
    best: tuple[float, Layout | None] = (limit, None)
    fronts: list[dict[tuple[Any, ...], list[Label]]] = [{} for _ in range(LAYERS + 1)]
    for kind in kinds:
        if (left := _taken(room, names, kind)) is not None:
            fronts[LAYERS][left, 0, None, kind] = [(0.0, 0.0, 0.0, 0.0, ())]
    for past in range(LAYERS, 0, -1):
        for (left, behind, after, kind), labels in fronts[past].items():
            rate = sum(r * n for r, n in zip(rates, left, strict=True))
            for first in range(past - 1, -1, -1):
                stage = Stage(*kind, first, past)
                if not fits(stage, samples, behind):
                    break
                if alike and not max(first, 1) < min(past, LAYERS - 1):
                    continue
                own, reduced, updated = compute(stage, samples), sync(stage, dp), update(stage, samples)
                froms = [(None, left)] if first == 0 else [(k, t) for k in kinds if (t := _taken(left, names, k)) is not None]
                for before, rest in froms:
                    seconds = own + network(stage, samples, before, after, behind + 1)
                    floor = (first - 1) / rate if first > 1 else 0.0
                    for top, total, synced, late, stages in labels:
                        label = max(top, seconds), total + seconds, max(synced, reduced), max(late, updated), (stage, *stages)
                        bound = (m - 1) * max(label[0], floor) + label[1] + least[first] + label[2] + label[3]
                        if bound >= best[0]:
                            continue
                        if first == 0:
                            best = bound, Layout(label[4], dp, samples)
                        else:
                            _keep(fronts[first].setdefault((rest, behind + 1, kind, before), []), label)
        fronts[past] = {}
    return best


def _least_before(kinds: list[Kind], samples: int) -> list[float]:
    """Lower bound on the seconds of all layers before each layer: each on its fastest device and tp."""
    each = (min((compute(Stage(*kind, i, i + 1), samples) for kind in kinds), default=0.0) for i in range(LAYERS))
    return list(itertools.accumulate(each, initial=0.0))


def _taken(left: tuple[int, ...], names: tuple[str, ...], kind: Kind) -> tuple[int, ...] | None:
    """Remaining devices of each type, in units of dp, after a stage of a kind; None if there are too few."""
    rest = tuple(n - kind[1] if name == kind[0] else n for n, name in zip(left, names, strict=True))
    return rest if min(rest) >= 0 else None


def _keep(labels: list[Label], new: Label) -> None:
    """Add a label, unless one is as good in all; drop those that it is as good as."""
    if any(all(a <= b for a, b in zip(old[:4], new[:4], strict=True)) for old in labels):
        return
    labels[:] = [old for old in labels if not all(a <= b for a, b in zip(new[:4], old[:4], strict=True))]
    labels.append(new)


def expressed(layout: Layout, name: str) -> Plan:
    """A layout as a plan on the topology of the case; microbatches are uneven if M was rounded up.

    Raises PlanError if a plan cannot express the layout."""
    topology = commands.load(f"peers/sailor-{name}")
    named = {facts()["catalogue"][device]: device for device in facts()["cases"][name]["devices"]}
    cluster_of = {named[cluster.node.device.name]: cluster for cluster in topology.fleet.clusters}
    degrees = tuple(stage.tp for stage in layout.stages)
    taken = dict.fromkeys(cluster_of, 0)
    devices: list[Device] = []
    for stage in layout.stages:
        start = -(-taken[stage.device] // stage.tp)
        taken[stage.device] = (start + layout.dp) * stage.tp
        devices += [d for i in range(layout.dp) for d in slot(cluster_of[stage.device], stage.tp, start + i)]
    blocks = tuple(min(stage.past, LAYERS - 1) - max(stage.first, 1) for stage in layout.stages)
    even, more = divmod(BATCH // layout.samples, layout.dp)
    shape = Shape(max(degrees), layout.dp, layout.samples, "none", "1f1b", 1, 0)
    request = Request(topology, commands.workload_of(topology))
    counts = tuple(even + (i < more) for i in range(layout.dp))
    return assemble(request, shape, blocks, tuple(devices), "sailor-judged", counts, degrees)


@dataclass(frozen=True, slots=True)
class Row:
    """A case: seconds by Sailor's simulator of Sailor's own plan, of the best with any tp by stage, of the best with one tp."""

    name: str
    sailor: float
    found: Layout
    alike: Layout
    seconds: float


def measure() -> list[Row]:
    """Rows of the cases of sailor.yaml; CPU seconds are those of the first search."""
    rows = []
    for name, case in facts()["cases"].items():
        begun = time.process_time()
        found = search(case["devices"])
        seconds = time.process_time() - begun
        rows.append(Row(name, case["published"]["sailor"], found, search(case["devices"], alike=True), seconds))
    return rows
